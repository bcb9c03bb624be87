"""What leaving pairs out does to one layer, measured on dense attention as it runs (Focus, appendix A).

Nothing of size T x T is stored: queries are taken in blocks. Shapes: H heads, n queries of a block, T tokens, D numbers
of a head, K groups.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from analysis.groups.controls import shuffled
from analysis.groups.router import FocusRouter
from analysis.kernels.reference import kept
from analysis.methods.focus import Focus
from analysis.models import Model
from analysis.seam.attention import apply
from analysis.seam.calls import Attended, Call
from analysis.statistics import forward

BLOCK = 128  # queries at once
# What is measured of every way to prune.
NAMES = ("entropy", "candidates", "mass", "norm", "change")


def block_sums(probabilities: Tensor, values: Tensor, keep: Tensor) -> Tensor:
    """What pruning does to n queries, summed over them, float64 [5] in the order of `NAMES`.

    probabilities [H, n, t] of dense attention, values [H, t, D], keep bool [n, t], True = read. Mean over heads of the
    entropy of what is left, renormalised (nats), keys left, mean over heads of the probability pruned; and of all heads
    together |sum of the pruned p v| / |sum of all p v| and |output left, renormalised - output| / |output|.
    """
    read = probabilities * keep  # [H, n, t]
    left = read.sum(-1)  # [H, n]
    floor = left.clamp_min(1e-30)
    entropy = torch.special.entr(read).sum(-1) / floor + floor.log()
    out, part = probabilities @ values, read @ values  # [H, n, D]
    norms = _norm(out).clamp_min(1e-12)
    change = _norm(part / floor[..., None] - out) / norms
    parts = (entropy.mean(0), keep.sum(-1), (1 - left).clamp_min(0).mean(0), _norm(out - part) / norms, change)
    return torch.stack([p.double().sum() for p in parts])


def _norm(vectors: Tensor) -> Tensor:
    return vectors.square().sum((0, 2)).sqrt()  # [H, n, D] -> [n], of all heads together


@dataclass
class Looked(Focus):
    """Reads everything, and notes of every layer what three ways to prune would leave: the router's groups, groups of
    the same sizes by chance (`chance`, a seed per layer), and a window alone (`wide`, tokens per layer).

    `sums` [L][4, 5]: first nothing pruned, then the three, in the order of `NAMES`, means over the queries.
    """

    chance: list[int] = field(default_factory=list)
    wide: list[int] = field(default_factory=list)
    sums: list[Tensor] = field(default_factory=list)

    takes_sinks = False

    def attend(self, call: Call) -> Attended:
        assert call.of_tokens is not None, "the groups of all tokens"
        members = call.of_tokens[0]  # [T, K]
        ways = [(members, self.window), (shuffled(members, self.chance[call.layer]), self.window)]
        ways.append((torch.zeros_like(members), self.wide[call.layer]))
        shared = call.query.shape[1] // call.key.shape[1]
        q = call.query[0].float()
        k, v = (x[0].float().repeat_interleave(shared, 0) for x in (call.key, call.value))  # [H, T, D]
        out, total = torch.empty_like(q), torch.zeros(1 + len(ways), len(NAMES), dtype=torch.float64)
        for rows in torch.arange(len(members), device=q.device).split(BLOCK):
            stop = int(rows[-1]) + 1
            places = torch.arange(stop, device=q.device)
            visible = places <= rows[:, None]  # [n, stop]
            scores = (q[:, rows] @ k[:, :stop].transpose(1, 2) * call.scaling).masked_fill(~visible, float("-inf"))
            probabilities = torch.softmax(scores, -1)
            out[:, rows] = probabilities @ v[:, :stop]
            total[0] += block_sums(probabilities, v[:, :stop], visible).cpu()
            for way, (groups, window) in enumerate(ways, 1):
                keep = kept(groups[None], rows, stop, window)[0] | (places < self.n_sink)
                total[way] += block_sums(probabilities, v[:, :stop], visible & keep).cpu()
        self.sums.append(total / len(members))
        return Attended(out[None].to(call.query.dtype), "dense, looked at", "What is pruned is measured, not left out.")


def look(
    model: Model, router: FocusRouter, ids: np.ndarray, window: int, n_sink: int, wide: list[int], chance: list[int]
) -> np.ndarray:
    """What `Looked` notes of one window of token ids [T]: float64 [L, 4, 5], empty where no layer came by."""
    method = Looked.build(router, window=window, n_sink=n_sink, wide=wide, chance=chance)
    with apply(model, method, kernels=True):
        forward(model, ids)
    return torch.stack(method.sums).numpy() if method.sums else np.zeros((0, 1 + 3, len(NAMES)))
