"""What leaving pairs out does to one layer: measured on dense attention as it runs, and by leaving them out for real.

Focus, appendix A. Nothing of size T x T is kept: queries are taken in blocks. Shapes: H heads, n queries of a block, T
tokens, D numbers of a head, K groups.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from analysis.corpus import text_hash
from analysis.errors import BadSetting
from analysis.files import read_json, write_json
from analysis.groups.controls import shuffled
from analysis.groups.router import FocusRouter
from analysis.kernels.reference import kept
from analysis.models import Model
from analysis.seam.attention import apply
from analysis.seam.calls import Attended, Call
from analysis.statistics import forward
from analysis.studies.stored.measured import Arm, Bench, Noted, router_hash, seeds

BLOCK = 128  # queries at once
NAMES = ("entropy", "candidates", "mass", "norm", "change")  # what is measured of every way to prune


def block_sums(probabilities: Tensor, values: Tensor, keep: Tensor) -> Tensor:
    """What pruning does to n queries, summed over them, float64 [5] in the order of `NAMES`.

    probabilities [H, n, t] of dense attention, values [H, t, D], keep bool [n, t], True = read. Mean over heads of the
    entropy of what is left, renormalised (nats), keys left, mean over heads of the probability pruned; and of all heads
    together |sum of the pruned p v| / |sum of all p v| and |output left, renormalised - output| / |output|.
    """
    read = probabilities * keep  # [H, n, t]
    left = read.sum(-1)  # [H, n]
    entropy = torch.special.entr(read).sum(-1) / left.clamp_min(1e-30) + left.clamp_min(1e-30).log()
    out, part = probabilities @ values, read @ values  # [H, n, D]
    norms = _norm(out).clamp_min(1e-12)
    parts = (
        *(entropy.mean(0), keep.sum(-1), (1 - left).clamp_min(0).mean(0)),
        *(_norm(out - part) / norms, _norm(part / left.clamp_min(1e-30)[..., None] - out) / norms),
    )
    return torch.stack([p.double().sum() for p in parts])


def _norm(vectors: Tensor) -> Tensor:
    """[H, n, D] -> [n]: of all heads together."""
    return vectors.square().sum((0, 2)).sqrt()


@dataclass
class Looked(Noted):
    """Reads everything, and notes of every layer what three ways to prune would leave: the router's groups, groups of
    the same sizes by chance (`chance`, a seed per layer), and a window alone (`wide`, tokens per layer).

    `sums` [L][4, 5]: first nothing pruned, then the three, in the order of `NAMES`, means over the queries.
    """

    chance: list[int] = field(default_factory=list)
    wide: list[int] = field(default_factory=list)
    sums: list[Tensor] = field(default_factory=list)

    def attend(self, call: Call) -> Attended:
        members = call.of_tokens[0]  # [T, K]
        length, nobody = len(members), torch.zeros_like(members)
        ways = ((members, self.window), (shuffled(members, self.chance[call.layer]), self.window))
        ways += ((nobody, self.wide[call.layer]),)
        repeat = call.query.shape[1] // call.key.shape[1]
        q = call.query[0].float()
        k, v = (x[0].float().repeat_interleave(repeat, 0) for x in (call.key, call.value))  # [H, T, D]
        out, total = torch.empty_like(q), torch.zeros(1 + len(ways), len(NAMES), dtype=torch.float64)
        for start in range(0, length, BLOCK):
            rows = torch.arange(start, min(start + BLOCK, length), device=q.device)
            stop = int(rows[-1]) + 1
            visible = torch.arange(stop, device=q.device) <= rows[:, None]  # [n, stop]
            scores = (q[:, rows] @ k[:, :stop].transpose(1, 2) * call.scaling).masked_fill(~visible, float("-inf"))
            probabilities = torch.softmax(scores, -1)
            out[:, rows] = probabilities @ v[:, :stop]
            keeps = [visible] + [
                visible & (kept(who[None], rows, stop, window)[0] | (torch.arange(stop, device=q.device) < self.n_sink))
                for who, window in ways
            ]
            for way, keep in enumerate(keeps):
                total[way] += block_sums(probabilities, v[:, :stop], keep).cpu()
        self.sums.append(total / length)
        return Attended(out[None].to(call.query.dtype), "dense, looked at", "What is pruned is measured, not left out.")


def look(
    model: Model, router: FocusRouter, ids: np.ndarray, window: int, n_sink: int, wide: list[int], chance: list[int]
) -> np.ndarray:
    """What `Looked` notes of one window of token ids [T]: float64 [L, 4, 5], empty where no layer came by."""
    method = Looked.build(router, window=window, n_sink=n_sink, wide=wide, chance=chance)
    with apply(model, method, kernels=True):
        forward(model, ids)
    return torch.stack(method.sums).numpy() if method.sums else np.zeros((0, 1 + 3, len(NAMES)))


@dataclass(frozen=True)
class LayerArm(Arm):
    """An arm that prunes in one `layer` alone (None: in all)."""

    layer: int | None = None


@dataclass
class OneLayer(Noted):
    """Focus in layer `only` (None: in all), dense in the others."""

    only: int | None = None

    def token_features(self, layer: int, hidden: Tensor, real: Tensor | None) -> Tensor:
        if self.only not in (None, layer):
            length = hidden.shape[1]
            self.pairs.append(length * (length + 1) // 2)
            self.counts.append(np.zeros(self.router.K if self.given is None else self.given[layer].shape[1], int))
            return torch.ones(1, length, 1, dtype=torch.bool, device=hidden.device)
        return super().token_features(layer, hidden, real)

    def attend(self, call: Call) -> Attended:
        if self.only in (None, call.layer):
            return super().attend(call)
        grouped = call.query.shape[1] != call.key.shape[1]
        out = F.scaled_dot_product_attention(
            call.query, call.key, call.value, is_causal=True, scale=call.scaling, enable_gqa=grouped
        )
        return Attended(out, "torch dense", "Only another layer is pruned.")


@dataclass
class LayerBench(Bench):
    """A bench whose arms may be of one layer."""

    def method(self, arm: Arm, index: int) -> Noted:
        """As that of any bench, or in one layer."""
        if not isinstance(arm, LayerArm):
            return super().method(arm, index)
        layers = self.model.num_layers
        dealt = None if arm.chance is None else seeds(arm.chance, index, layers)
        given_groups = {"given": arm.given(index, self.ids.shape[1], layers), "only": arm.layer, "dealt": dealt}
        return OneLayer.build(arm.router or self.stand_in, **arm.settings, n_sink=self.n_sink, **given_groups)

    def looks(self, window: int, wide: list[int], seed: int) -> np.ndarray:
        """What `look` says of every window, [n, L, 4, 5]; kept in `work` as it goes. Errors: BadSetting."""
        lm, n_sink = self.model, self.n_sink
        decides = [lm.revision, str(lm.dtype), self.text, router_hash(self.stand_in), window, n_sink, wide, seed]
        part = self.work and self.work / f"pruned-{text_hash(repr(decides))}.json"
        windows_seen = (part and read_json(part) or {}).get("windows", [])
        for index in range(len(windows_seen), len(self.ids)):
            self.tell("what is pruned", index)
            chance = seeds(seed, index, lm.num_layers)
            one = look(lm, self.stand_in, self.ids[index], window, n_sink, wide, chance)
            if not len(one):
                raise BadSetting(
                    f"{lm.name} has sliding windows or soft-capped scores, and this study reads attention where there "
                    "is neither: choose another model."
                )
            windows_seen.append(one.tolist())
            if part and self.due(index):
                write_json(part, {"windows": windows_seen})
        return np.array(windows_seen)
