"""Putting attention over disjoint sets of keys together by logsumexp, such as the first tokens of a text, which every
token reads beside its group and its window; and the subtraction that does not hold.

Focus, appendix D: the output over a union of disjoint sets is the mean of the parts' outputs, weighted by
exp(lse - lse of all). Parts that overlap need their overlap subtracted, and that is what no flash kernel computes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadSetting
from . import reference

LONGEST = 4096  # tokens of a comparison
# Queries at once that read the sinks.
ROWS = 4096


def merge(out: Tensor, lse: Tensor, other_out: Tensor, more_lse: Tensor) -> tuple[Tensor, Tensor]:
    """Two parts over disjoint keys: out and other_out [..., D], lse and more_lse [...] -> merged, in lse's type.

    A part without keys has lse -inf and weighs nothing; two empty ones are not allowed. `out` may be overwritten.
    """
    weight = torch.sigmoid(more_lse - lse)[..., None]  # exp(more_lse) / (exp(lse) + exp(more_lse))
    return out.to(weight).lerp_(other_out.to(weight), weight), torch.logaddexp(lse, more_lse)


def read_sinks(
    out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, n_sink: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Merge the sinks into what `grouped_attention` found, exactly: those outside the window and of other groups.

    out [B, H, T, D] and lse [B, H, T] of the same q, k, v and members; `n_sink` first tokens. Returns both, anew.
    """
    out, lse = out.clone(), lse.clone()
    # before, every sink lies in the window
    for start in range(window, q.shape[2], ROWS):
        rows = slice(start, min(start + ROWS, q.shape[2]))
        queries, keys, values = (x.to(lse.dtype) for x in (q[:, :, rows], k[:, :, :n_sink], v[:, :, :n_sink]))
        sinks, sums = _masked(queries, keys, values, _unread(members, rows, window, n_sink), scale)
        merged, total = merge(out[:, :, rows], lse[:, :, rows], sinks, sums)
        out[:, :, rows], lse[:, :, rows] = merged.to(out.dtype), total
    return out, lse


def with_sink_logits(out: Tensor, lse: Tensor, sink_logits: Tensor) -> tuple[Tensor, Tensor]:
    """Attention beside learned sinks [H] or [B, H], each a logit in every softmax of its head that belongs to no token:
    a part of its own, without a value. out [B, H, n, D], lse [B, H, n] -> both anew, in their types."""
    sinks = sink_logits.to(lse)[..., None]
    share = torch.sigmoid(lse - sinks)[..., None]  # exp(lse) / (exp(lse) + exp(sink))
    return (out * share).to(out), torch.logaddexp(lse, sinks)


def sink_pairs(members: Tensor, window: int, n_sink: int) -> int:
    """How many pairs sinks add to those of the groups and the window; members bool [B, T, K]."""
    length = members.shape[1]
    starts = range(window, length, ROWS) if n_sink else ()
    return sum(int(_unread(members, slice(start, min(start + ROWS, length)), window, n_sink).sum()) for start in starts)


def _unread(members: Tensor, rows: slice, window: int, n_sink: int) -> Tensor:
    """bool [B, n, s]: sinks that the queries `rows` read neither by the window nor by a group."""
    queries = torch.arange(rows.start, rows.stop, device=members.device)
    far = queries[:, None] - torch.arange(min(n_sink, members.shape[1]), device=members.device) >= window
    groups = members.float()
    return far & (groups[:, rows] @ groups[:, :n_sink].transpose(1, 2) < 0.5)


def _masked(q: Tensor, k: Tensor, v: Tensor, read: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attention over the pairs `read` [B, n, m], scores in float32 or better; empty rows are zeros with lse -inf."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * scale
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(~read[:, None], float("-inf"))
    return torch.softmax(scores, -1).nan_to_num(0.0).to(v.dtype) @ v, torch.logsumexp(scores, -1)


def merges(q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, scale: float | None = None) -> dict:
    """Why the sets must be disjoint: three merges against the definition in float64. Holds T x T: short texts only.

    Inputs as `grouped_attention`, one group per token, at most LONGEST tokens. All of them start from attention inside
    the group. `disjoint` adds the strangers in the window (Focus, equations 4 and 5). `subtraction` adds the whole
    window and takes away what was counted twice as flash kernels can compute it, a window over the tokens sorted by
    group; but the last `window` tokens of a group are not the group's tokens among the last `window`. `exact overlap`
    takes away the true overlap, which needs a mask: then subtracting holds too, at a multiple of the rounding error.
    The paper gives a cosine of 0.79 for subtraction. Returns name -> {cosine: mean over rows, lowest: of a row, error:
    largest difference}. Errors: BadSetting.
    """
    length = q.shape[2]
    if length > LONGEST:
        raise BadSetting(f"The merges are compared on at most {LONGEST:,} tokens, and these are {length:,}.")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    members = members.expand(q.shape[0], *members.shape[-2:])
    truth = reference.attention(q.double(), k.double(), v.double(), members, window, scale)[0]
    rows = torch.arange(length, device=q.device)
    near = reference.kept(torch.zeros_like(members), rows, length, window)
    shared = reference.kept(members, rows, length, 0)
    turn = (members.cumsum(1) * members).sum(-1)  # [B, T] the token's place in its group
    sorted_window = shared & (turn[:, :, None] - turn[:, None] < window)

    def part(read: Tensor) -> tuple[Tensor, Tensor]:
        return _masked(q, k, v, read, scale)

    group, local = part(shared), part(near)
    strangers = part(near & ~shared)
    merged = {
        "disjoint": merge(group[0].clone(), group[1], *strangers)[0],
        "subtraction": _subtracted(group, local, part(sorted_window)),
        "exact overlap": _subtracted(group, local, part(near & shared)),
    }
    return {name: _compared(out.double(), truth) for name, out in merged.items()}


def _subtracted(group: tuple, local: tuple, overlap: tuple) -> Tensor:
    """exp(a) + exp(b) - exp(c), in float32 and with the largest logsumexp taken out. A row of which nothing is left, as
    where a sharp head's one key is taken away that was never counted twice, has no answer: zeros."""
    top = torch.stack([group[1], local[1], overlap[1]]).amax(0)
    a, b, c = (torch.exp(part[1] - top)[..., None] for part in (group, local, overlap))
    left = a + b - c
    numerator = a * group[0].float() + b * local[0].float() - c * overlap[0].float()
    return torch.where(left == 0, 0.0, numerator / left)


def _compared(out: Tensor, truth: Tensor) -> dict:
    cosine = F.cosine_similarity(out, truth, dim=-1)
    return {"cosine": float(cosine.mean()), "lowest": float(cosine.min()), "error": float((out - truth).abs().max())}
