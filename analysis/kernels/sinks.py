"""The first tokens of a text, read by every token: a third set of keys beside the group and the window."""

import torch
from torch import Tensor

from analysis.kernels.merge import merge

ROWS = 4096  # queries at once


def read_sinks(
    out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, n_sink: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Merge the sinks into what `grouped_attention` found, exactly: those outside the window and of other groups.

    out [B, H, T, D] and lse [B, H, T] of the same q, k, v and members; `n_sink` first tokens. Returns both, anew.
    """
    length, repeat = q.shape[2], q.shape[1] // k.shape[1]
    out, lse = out.clone(), lse.clone()
    keys, values = (x[:, :, :n_sink].to(lse).repeat_interleave(repeat, 1) for x in (k, v))  # [B, H, s, D]
    for start in range(window, length, ROWS):  # before, every sink lies in the window
        rows = slice(start, min(start + ROWS, length))
        scores = q[:, :, rows].to(lse) @ keys.transpose(2, 3) * scale  # [B, H, n, s]
        scores = scores.masked_fill(~_unread(members, rows, window, n_sink)[:, None], float("-inf"))
        some = torch.softmax(scores, -1).nan_to_num(0.0) @ values
        merged, sums = merge(out[:, :, rows], lse[:, :, rows], some, torch.logsumexp(scores, -1))
        out[:, :, rows], lse[:, :, rows] = merged.to(out.dtype), sums
    return out, lse


def sink_pairs(members: Tensor, window: int, n_sink: int) -> int:
    """How many pairs sinks add to those of the groups and the window; members bool [B, T, K]."""
    length = members.shape[1]
    starts = range(window, length, ROWS)
    return sum(
        int(_unread(members, slice(at, min(at + ROWS, length)), window, n_sink).sum()) for at in starts if n_sink
    )


def _unread(members: Tensor, rows: slice, window: int, n_sink: int) -> Tensor:
    """bool [B, n, s]: sinks that the queries `rows` read neither by the window nor by a group."""
    at = torch.arange(rows.start, rows.stop, device=members.device)
    far = at[:, None] - torch.arange(min(n_sink, members.shape[1]), device=members.device) >= window
    groups = members.float()
    return far & (groups[:, rows] @ groups[:, :n_sink].transpose(1, 2) < 0.5)
