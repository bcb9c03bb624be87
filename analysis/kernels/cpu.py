"""Grouped attention on the CPU: causal flash attention per group, the local part as a band, merged by logsumexp.

Focus, appendix D, without its assumptions: groups may be unequal or empty, a token may be in none or in several. With
several, a pair belongs to its lowest shared group: in the call of group g queries carry their memberships in lower
groups in a few extra head dimensions, times PUSH, and keys carry theirs times -PUSH, so a pair that shares a lower
group scores -PUSH^2 per such group and weighs nothing. No mask is needed, and nothing is counted twice.

Every kernel: q [B, H, T, D], k and v [B, G, T, D], members bool [B, T, K] -> (out [B, H, T, D], lse [B, H, T] float32).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from .members import bit_sets
from .merge import merge
from .parts import part
from .window import flash, never, strangers

PUSH = 100.0  # exp(-PUSH^2) is 0 as long as the scores of a row differ by less than PUSH^2 / 2
EXTRA = 8  # extra head dimensions come in multiples of this
SPAN = 4096  # tokens of small groups that are gathered together
MASKED_ROWS = 768  # queries at once: from here on the kernel takes its widest tile


def groups(q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, scale: float) -> tuple[Tensor, Tensor]:
    """Any number of groups per token: one causal call per group, and the strangers in the window."""
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for b, sets in enumerate(members):
        far, far_lse, place = _by_group(q[b], k[b], v[b], sets, scale)
        pieces = strangers(q[b], k[b], v[b], bit_sets(sets), window, scale)
        while True:
            with part("set_b"):
                piece = next(pieces, None)
            if piece is None:
                break
            start, stop, merged, total = piece
            with part("merge"):
                for rows in place[:, start:stop]:  # the lowest group first: there a token reads at least itself
                    merged, total = merge(merged, total, far.index_select(1, rows), far_lse.index_select(1, rows))
                out[b, :, start:stop], lse[b, :, start:stop] = merged, total
    return out, lse


def _by_group(q: Tensor, k: Tensor, v: Tensor, sets: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Set A of one text: far [H, N + 1, D] and far_lse [H, N + 1] of its N memberships, sorted by group and time, and
    place [most memberships of a token, T], where each token's rows are; the last row is empty and stands for none."""
    size = q.shape[-1]
    with part("sort"):
        group, tokens = sets.T.nonzero(as_tuple=True)
        turn = sets.cumsum(1)[tokens, group] - 1  # the membership is its token's first, second, ...
        place = torch.full((max(1, int(sets.sum(1).max())), len(sets)), len(tokens))
        place[turn, tokens] = torch.arange(len(tokens))
        several = len(place) > 1
        push = F.pad(sets.to(q.dtype), (0, -sets.shape[1] % EXTRA)) * (PUSH / scale**0.5)  # [T, K and zeros]
        far, far_lse = q.new_empty(q.shape[0], len(tokens) + 1, size), torch.empty(q.shape[0], len(tokens) + 1)
        far[:, -1], far_lse[:, -1] = 0.0, float("-inf")
        # layouts whose rows are gathered without copying all of it: by head, or by token
        q, k, v = (x if x.transpose(0, 1).is_contiguous() else x.contiguous() for x in (q, k, v))
    ends = sets.sum(0).cumsum(0).tolist()
    for first, last in _spans(ends):
        base = ends[first - 1] if first else 0
        with part("sort"):
            gathered = [_rows(x, tokens[base : ends[last]]) for x in (q, k, v)]
        for group in range(first, last + 1):
            start, stop = ends[group - 1] if group else 0, ends[group]
            if start == stop:
                continue
            piece = [x[:, start - base : stop - base] for x in gathered]
            if several and group:
                with part("sort"):
                    lower = push[:, : -(-group // EXTRA) * EXTRA].index_select(0, tokens[start:stop])  # [n, E]
                    lower[:, group:] = 0.0
                    signs = zip(piece, (1.0, -1.0, 0.0), strict=True)
                    piece = [torch.cat([x, (lower * sign).expand(len(x), -1, -1)], -1) for x, sign in signs]
            with part("set_a"):
                outputs, sums = (x[0] for x in flash(*(x[None] for x in piece), 0.0, True, scale=scale))
                far[:, start:stop] = outputs[..., :size]
                far_lse[:, start:stop] = sums.masked_fill_(sums < -(PUSH**2) / 2, float("-inf")) if several else sums
    return far, far_lse, place


def _spans(ends: list[int]) -> list[tuple[int, int]]:
    """(first, last) of runs of groups that are gathered together: one large group, or small ones up to SPAN tokens."""
    spans, base = [], 0
    for group, end in enumerate(ends):
        if spans and end - base <= SPAN:
            spans[-1] = spans[-1][0], group
        else:
            base = ends[group - 1] if group else 0
            spans.append((group, group))
    return spans


def masked(q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, scale: float) -> tuple[Tensor, Tensor]:
    """Every causal pair computed, what is not kept masked, in blocks of queries: where sparse cannot win."""
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for b, sets in enumerate(bit_sets(members)):
        for start in range(0, q.shape[2], MASKED_ROWS):
            stop = min(start + MASKED_ROWS, q.shape[2])
            piece = q[b : b + 1, :, start:stop], k[b : b + 1, :, :stop], v[b : b + 1, :, :stop]
            bias = _bias(sets, start, stop, window, q.dtype).expand(1, q.shape[1], -1, -1)
            outputs = flash(*piece, 0.0, False, attn_mask=bias, scale=scale)
            out[b, :, start:stop], lse[b, :, start:stop] = (x[0] for x in outputs)
            del bias  # before the next one is made
    return out, lse


def causal(q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, scale: float) -> tuple[Tensor, Tensor]:
    """Every causal pair is kept: plain dense attention."""
    return flash(q, k, v, 0.0, True, scale=scale)


def _bias(sets: Tensor, start: int, stop: int, window: int, kind: torch.dtype) -> Tensor:
    """[n, stop]: 0 where the queries start..stop read, NEVER where they do not."""
    read = (sets[start:stop, None] & sets[:stop]).bool()
    near = max(0, start - window + 1)  # only from here on does the distance matter
    distance = torch.arange(start, stop)[:, None] - torch.arange(near, stop)
    read[:, near:].logical_or_(distance < window).logical_and_(distance >= 0)
    return never(read.logical_not_(), kind)


def _rows(x: Tensor, rows: Tensor) -> Tensor:
    """x[:, rows]."""
    if x.is_contiguous():
        return x.index_select(1, rows)
    return x.transpose(0, 1).index_select(0, rows).transpose(0, 1)
