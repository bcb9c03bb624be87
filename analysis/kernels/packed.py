"""Grouped attention by kernels of torch: a call over packed groups and one over windows, merged by logsumexp.

Focus, appendix D, without its assumptions: groups may be unequal or empty, a token may be in none or in several. The
group call packs the members of every group of every text, sorted; a token in several groups comes several times. Both
calls keep to their pairs by extra head dimensions instead of masks, PUSH in queries and -PUSH in keys: in the group
call for lower groups, so that a pair belongs to its lowest shared group, in the window call for all groups, so that
the window reads strangers only. A pushed pair scores -PUSH^2 and weighs nothing.

q [B, H, T, D], k and v [B, G, T, D], members bool [B, T, K] -> (out [B, H, T, D], lse [B, H, T] float32).
"""

import importlib
import inspect
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import gpu
from .dense import dense_with_lse, flash, never
from .merge import merge
from .parts import part
from .pool import accelerated, on_host
from .reference import kept

# exp(-PUSH^2) is 0 as long as the scores of a row differ by less than PUSH^2 / 2
PUSH = 100.0
# Of a head, in a packed call on CUDA.
MOST_DIMENSIONS = 256
# Queries at once under a mask: from here on the CPU's kernel takes its widest tile.
DENSE_ROWS = 768
# Of the mask of one call over windows.
BAND_VALUES = 4 << 20
# Queries of one such call on the CPU: its tensors stay in the cache.
BAND_TOKENS = 1024
# A packed call, see below.
Call = Callable[..., tuple[Tensor, Tensor]]


class Sizes(NamedTuple):
    """Sizes of the groups, text by text, and the most groups that a token is in: what the host must know of memberships
    to pack them."""

    groups: Sequence[int]
    most: int

    @classmethod
    def of(cls, members: Tensor) -> "Sizes":
        """Of bool [B, T, K]; asks the device."""
        *groups, most = on_host(torch.cat([members.sum(1).flatten(), members.sum(-1).amax()[None]]), "sizes of groups")
        return cls(groups, most)


def grouped(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    members: Tensor,
    window: int,
    scale: float,
    flash_attn: bool = False,
    sizes: Sizes | None = None,
) -> tuple[Tensor, Tensor]:
    """Any number of groups per token. `flash_attn`: by that package in the place of torch's kernel. `sizes`: of these
    members, where they are known."""
    call = of_flash_attn if flash_attn else of_torch if accelerated(q) else of_cpu
    sizes = sizes or Sizes.of(members)
    if accelerated(q) and gpu.has_triton():
        return _beside_strangers(call, q, k, v, members, window, scale, sizes)
    length = q.shape[2]
    far = _memberships(call, q, k, v, members, scale, sizes)
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    with part("set_b"):
        texts = torch.full((len(members),), length, device=q.device)
        of_token = members.flatten(0, 1).to(q.dtype)
        out, lse = _without_shared(call, q, k, v, of_token, texts, length, scale, window)
        kind, out = out.dtype, out.float()
    with part("merge"):
        out, lse = _added(out, lse, far)
    out = out.to(kind).unflatten(0, (-1, length)).transpose(1, 2)
    return out, lse.unflatten(1, (-1, length)).transpose(0, 1)


class _Far(NamedTuple):
    """Attention inside the groups: a row for every membership, out [N, H, D], lse [H, N], and whose `tokens` [N] it is;
    `turn` [N] counts the memberships of a token, of which none has more than `rounds`."""

    out: Tensor
    lse: Tensor
    tokens: Tensor
    turn: Tensor
    rounds: int


def _memberships(call: Call, q: Tensor, k: Tensor, v: Tensor, members: Tensor, scale: float, sizes: Sizes) -> _Far:
    """One packed call over all groups of all texts, where a pair belongs to its lowest shared group."""
    with part("sort"):
        q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))  # [B T, heads, D]
        by_group = members.transpose(1, 2)  # [B, K, T]
        if accelerated(q):
            # as many as the host knows there are: `nonzero` would have it wait
            some = by_group.flatten().byte().argsort(descending=True, stable=True)[: sum(sizes.groups)]
            place, group = some % by_group.shape[2], some // by_group.shape[2] % by_group.shape[1]
            text = some // by_group[0].numel()
        else:
            text, group, place = by_group.nonzero(as_tuple=True)
        tokens = text * members.shape[1] + place
        # the membership is its token's first, second, ...
        turn = members.cumsum(-1)[text, place, group] - 1
        lower = None
        if sizes.most > 1:
            of_token = members.flatten(0, 1).to(q.dtype)  # [B T, K]
            lower = of_token[tokens] * (torch.arange(members.shape[-1], device=q.device) < group[:, None])
    with part("set_a"):
        texts = members.sum(1).flatten()
        out, lse = _without_shared(call, q[tokens], k[tokens], v[tokens], lower, texts, max(sizes.groups), scale)
    return _Far(out, lse, tokens, turn, sizes.most)


def _added(out: Tensor, lse: Tensor, far: _Far) -> tuple[Tensor, Tensor]:
    """All memberships merged into out [B T, H, D] and lse [H, B T], which are overwritten."""
    if accelerated(out) and far.rounds > 1:
        # Without asking how many tokens have a second membership: one more, which weighs nothing, is that of all who
        # have none. A token in no group at all that read nothing either comes back NaN.
        nothing = len(far.tokens)
        slots = far.tokens.new_full((len(out), far.rounds), nothing)
        slots[far.tokens, far.turn] = torch.arange(nothing, device=out.device)
        far_out, far_lse = F.pad(far.out, (0, 0, 0, 0, 0, 1)), F.pad(far.lse, (0, 1), value=float("-inf"))
        for slot in slots.unbind(1):
            out, total = merge(out, lse.T, far_out.index_select(0, slot), far_lse.index_select(1, slot).T)
            lse = total.T
        return out, lse
    for index in range(far.rounds):
        chosen = slice(None) if far.rounds == 1 else (far.turn == index).nonzero()[:, 0]
        rows = far.tokens[chosen]
        out[rows], total = merge(out[rows], lse[:, rows].T, far.out[chosen], far.lse[:, chosen].T)
        lse[:, rows] = total.T
    return out, lse


def _beside_strangers(
    call: Call, q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, scale: float, sizes: Sizes
) -> tuple[Tensor, Tensor]:
    """On a GPU with Triton: the groups, padded side by side where that is cheap, then the window's strangers."""
    groups, longest = sizes.groups, max(sizes.groups)
    padded = len(groups) * gpu.padded_length(longest) ** 2 <= gpu.PADDING * sum(size**2 for size in groups)
    if padded and call is not of_flash_attn and sizes.most <= 1:
        far = gpu.side_by_side(q, k, v, members, longest, scale)
    else:
        packed, texts = _memberships(call, q, k, v, members, scale, sizes), members.any(-1)
        with part("merge"):
            out = q.new_zeros(texts.numel(), q.shape[1], q.shape[-1], dtype=torch.float32)
            lse = out.new_full((q.shape[1], texts.numel()), float("-inf"))
            out, lse = _added(out, lse, packed)
            slot = torch.arange(texts.numel(), device=q.device).view_as(texts).masked_fill(~texts, -1)
            far = out, lse, slot
    with part("set_b"):
        return gpu.strangers(q, k, v, members, window, scale, far)


def dense(
    q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """Every causal pair computed: all of them kept, or else masked in blocks of queries, where sparse cannot win."""
    if causal:
        return dense_with_lse(q, k, v, None, True, scale)
    out, lse, length = torch.empty_like(q), torch.empty(q.shape[:3], device=q.device), q.shape[2]
    # The longest rows first: what they free has room for the others.
    for start in reversed(range(0, length, DENSE_ROWS)):
        stop = min(start + DENSE_ROWS, length)
        skip = kept(members, torch.arange(start, stop, device=q.device), stop, window)[:, None].logical_not_()
        piece = q[:, :, start:stop], k[:, :, :stop], v[:, :, :stop]
        out[:, :, start:stop], lse[:, :, start:stop] = dense_with_lse(*piece, never(skip, q), False, scale)
    return out, lse


def _without_shared(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    extra: Tensor | None,
    sizes: Tensor,
    longest: int,
    scale: float,
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    """One packed call over texts of these `sizes`, none over `longest`; pairs whose `extra` [N, E] overlap weigh
    nothing. lse [H, N], -inf where nothing is left."""
    dimensions = q.shape[-1]
    if extra is not None:
        push = extra * (PUSH / scale**0.5)
        # behind every head's dimensions, padded to a multiple of 8
        signs = (q, push), (k, -push), (v, push * 0)
        wide = (torch.cat([x, sign[:, None].expand(-1, x.shape[1], -1)], -1) for x, sign in signs)
        q, k, v = (F.pad(x, (0, -x.shape[-1] % 8)) for x in wide)
    starts = F.pad(sizes.cumsum(0), (1, 0)).int()
    out, lse = call(q, k, v, starts, longest, scale, window)
    return out[..., :dimensions], lse.float().masked_fill(lse < -(PUSH**2) / 2, float("-inf"))


# Three packed calls, causal inside each text and over the last `window` keys where that is given: q [N, H, D], k and v
# [N, G, D], starts int32 [texts + 1], the borders of the texts -> (out [N, H, D], lse [H, N]).


def of_torch(
    q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, scale: float, window: int | None = None
) -> tuple[Tensor, Tensor]:
    """By `varlen_attn`, on CUDA."""
    from torch.nn.attention import varlen

    tokens, heads = q.shape[:2]
    # a logsumexp of this shape would not say which is which: one more text of one token
    if tokens == heads:
        q, k, v = (F.pad(x, (0, 0, 0, 0, 0, 1)) for x in (q, k, v))
        starts = F.pad(starts, (0, 1), value=tokens + 1)
    options: dict[str, Any] = {}
    if k.shape[1] != heads and "enable_gqa" in inspect.signature(varlen.varlen_attn).parameters:
        options["enable_gqa"] = True
    elif k.shape[1] != heads:
        k, v = (x.repeat_interleave(heads // k.shape[1], 1) for x in (k, v))
    band, aux = (-1 if window is None else window - 1, 0), varlen.AuxRequest(lse=True)
    out, lse = varlen.varlen_attn(
        q, k, v, starts, starts, longest, longest, return_aux=aux, scale=scale, window_size=band, **options
    )
    # the documentation and the code of torch 2.13 disagree about the shape
    if lse.shape != (heads, len(q)):
        assert lse.shape == (len(q), heads), f"logsumexp of shape {tuple(lse.shape)} for {len(q)} tokens"
        lse = lse.T
    return out[:tokens], lse[:, :tokens]


def of_flash_attn(
    q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, scale: float, window: int | None = None
) -> tuple[Tensor, Tensor]:
    """By the package flash-attn, on CUDA."""
    run = importlib.import_module("flash_attn").flash_attn_varlen_func
    band = (-1 if window is None else window - 1, 0)
    # Its third answer, the attention itself, is empty without dropout.
    out, lse, _ = run(
        *(q, k, v, starts, starts, longest, longest),
        softmax_scale=scale,
        causal=True,
        window_size=band,
        return_attn_probs=True,
    )
    return out, lse


def of_cpu(
    q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, scale: float, window: int | None = None
) -> tuple[Tensor, Tensor]:
    """Text by text, by the CPU's flash kernel."""
    out, lse = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0])
    for start, stop in pairwise(starts.tolist()):
        text = slice(start, stop)
        if window is not None and window < stop - start:
            _band(q[text], k[text], v[text], window, scale, out[text], lse[:, text])
        elif start < stop:
            by_head, sums = flash(*(x[text].transpose(0, 1)[None] for x in (q, k, v)), 0.0, True, scale=scale)
            out[text], lse[:, text] = by_head[0].transpose(0, 1), sums[0]
    return out, lse


def _band(q: Tensor, k: Tensor, v: Tensor, window: int, scale: float, out: Tensor, lse: Tensor) -> None:
    """One text over the last `window` keys of each query, into out [N, H, D] and lse [H, N].

    Queries go in blocks of a few rows, and the keys of a block lie in one stretch of rows + window - 1 tokens that ends
    with it. The stretches of all blocks overlap in one view, so many blocks are one call under one mask.
    """
    # Products of halves cost more to begin.
    length, rows = len(q), 32 if q.dtype == torch.float32 else 64
    if window >= 2048:
        rows = 256
    # Tokens of a stretch before the block's first query.
    before = -(-(rows + window - 1) // 16) * 16 - rows
    keys = before + rows
    distance = torch.arange(rows)[:, None] + before - torch.arange(keys)
    outside = (distance < 0) | (distance >= window)
    together = max(1, min(BAND_TOKENS // rows, BAND_VALUES // (rows * keys))) * rows
    k, v = (F.pad(x, (0, 0, 0, 0, before, -length % rows)) for x in (k, v))
    for start in range(0, length, together):
        stop = min(start + together, length)
        queries = F.pad(q[start:stop], (0, 0, 0, 0, 0, -(stop - start) % rows)).unflatten(0, (-1, rows))
        blocks = len(queries)
        places = torch.arange(blocks)[:, None] * rows + torch.arange(start - before, start + rows)
        skip = outside
        if start < before:
            skip = outside | (places < 0)[:, None]
        bias = never(skip, q).view(-1, 1, rows, keys).expand(blocks, q.shape[1], -1, -1)
        stretch = slice(start, start + before + blocks * rows)
        near = (x[stretch].unfold(0, keys, rows).mT for x in (k, v))  # [blocks, G, keys, D]
        found, sums = flash(queries.transpose(1, 2), *near, 0.0, False, attn_mask=bias, scale=scale)
        out[start:stop] = found.transpose(1, 2).flatten(0, 1)[: stop - start]
        lse[:, start:stop] = sums.transpose(0, 1).flatten(1)[:, : stop - start]
