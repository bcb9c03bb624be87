"""Queries and keys of a text, kept: from them any row of any head is computed again, at any temperature, without the
model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import BadModel
from ..kernels.native import measured
from ..kernels.pool import accelerated, each
from ..seam.attention import Block, apply
from ..seam.calls import MASKED, Attended, Call, CosSin
from ..seam.hooks import Hooks
from .inputs import forward

if TYPE_CHECKING:
    from ..models import Model

# Scores of one head at once: they stay in the second cache of a core.
BLOCK_BYTES = 1 << 20
# Of a score: kept queries and keys must give the scores that the model computes.
CLOSE = 1e-2


@dataclass
class States:
    """One layer of one text: `query` [H, T, D] and `key` [G, T, D] as they meet, float32; `scaling` of their product,
    `softcap` of the scaled score or None, `window` of a sliding layer (the token itself included) or None. `visible`
    bool [1 or H, T, T] where the model lets its queries read other keys, such as those that its own indexer chose."""

    query: Tensor
    key: Tensor
    scaling: float
    softcap: float | None
    window: int | None = None
    visible: Tensor | None = None

    @property
    def length(self) -> int:
        """Tokens."""
        return self.query.shape[1]

    def scores(self, head: int, start: int, stop: int, t: float = 1.0) -> Tensor:
        """Scores of the queries start..stop of a head over the first `stop` keys, [n, stop], at temperature `t`, which
        acts before the soft cap; -inf where a key is not visible."""
        scores = self._raw(head, start, stop, t)
        if self.visible is not None:
            visible = self.visible[min(head, len(self.visible) - 1), start:stop, :stop]
            return scores.masked_fill_(~visible.to(scores.device), float("-inf"))
        back = torch.arange(start, stop, device=scores.device)[:, None] - torch.arange(stop, device=scores.device)
        hidden = back < 0 if self.window is None else (back < 0) | (back >= self.window)
        return scores.masked_fill_(hidden, float("-inf"))

    def _raw(self, head: int, start: int, stop: int, t: float = 1.0) -> Tensor:
        """The scores, those of the future among them."""
        query = self.query[head, start:stop] * (self.scaling / t)
        scores = query @ self.key[head * len(self.key) // len(self.query), :stop].T
        if self.softcap is not None:
            scores = torch.tanh(scores / self.softcap) * self.softcap
        return scores

    def sharpness(self, t: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """(entropy in nats, largest probability) of every query of every head at temperature `t`, float64 [H, T]."""
        heads, length = self.query.shape[:2]
        # A compiled row ends with its query.
        scored = self._raw if self.window is None and self.visible is None else self.scores
        entropy, largest = np.empty((2, heads, length))
        size = max(1, BLOCK_BYTES // 4 // length)

        def one(head: int) -> None:
            for start in range(0, length, size):
                rows = slice(start, min(start + size, length))
                if accelerated(self.query):
                    p = self.scores(head, rows.start, rows.stop, t).softmax(-1)
                    entropy[head, rows] = torch.special.entr(p).sum(-1).cpu()
                    largest[head, rows] = p.amax(-1).cpu()
                else:
                    scores = scored(head, rows.start, rows.stop, t).numpy()
                    measured.sharpness(scores, start, entropy[head, rows], largest[head, rows])

        each(one, range(heads))
        return entropy, largest


class _Keeper(Hooks):
    """Stands for a method in `apply`: keeps queries and keys, and lets the seam compute as always."""

    def __init__(self, layers: list[int]) -> None:
        self.kept: dict[int, States | None] = dict.fromkeys(layers)
        # What the queries of a layer may read, block by block, in the order of the queries.
        self.visible: list[Tensor] = []

    def encode_tokens(
        self, layer: int, query: Tensor, key: Tensor, past: int, module: nn.Module, tables: CosSin
    ) -> None:
        """Keep them, with how the layer scales and caps their product."""
        if layer in self.kept:
            scaling = getattr(module, "scaling", None) or query.shape[-1] ** -0.5
            softcap = getattr(module, "attn_logit_softcapping", None)
            self.kept[layer] = States(query[0].float(), key[0].float(), float(scaling), softcap)

    def attend(self, call: Call) -> Attended:
        """By the seam's reference, in which scores can be seen."""
        return Attended(None, MASKED, "Queries and keys are being kept.")

    def scores(self, block: Block) -> Tensor:
        """What the model computes, held against what the kept queries and keys give."""
        states = self.kept.get(block.layer)
        if states is None:
            return block.scores
        start, stop = block.first_row, block.first_row + len(block.rows)
        self.visible.append(block.visible[0].expand(-1, stop - start, -1)[..., :stop])
        if stop == states.length:
            back = torch.arange(stop)[:, None] - torch.arange(stop)
            window = int(self.visible[-1][0, -1].sum())
            alike = (back >= 0) & (back < window)  # [T, T]
            visible = torch.cat([F.pad(part.cpu(), (0, stop - part.shape[-1])) for part in self.visible], 1)
            if not bool((visible == alike).all()):
                states.visible = visible
            elif window < stop:
                states.window = window
            self.visible = []
        last = block.scores[0, :, -1, :stop].float()
        recomputed = torch.cat([states._raw(head, stop - 1, stop) for head in range(len(last))])  # [H, stop]
        if not torch.allclose(recomputed, last, rtol=CLOSE, atol=CLOSE):
            raise BadModel(
                f"Layer {block.layer} of this model changes its scores in a way that is not known here, so they cannot "
                "be computed at another temperature: choose another model."
            )
        return block.scores


@torch.no_grad()
def attention_states(model: "Model", ids: np.ndarray, layers: list[int] | None = None) -> dict[int, States]:
    """Queries and keys of some layers (all unless given) for one window of tokens [T], from one forward pass."""
    keeper = _Keeper(list(range(model.num_layers)) if layers is None else layers)
    with apply(model, keeper, kernels=True):
        forward(model, ids)
    return {layer: states for layer, states in keeper.kept.items() if states is not None}


def state_bytes(model: "Model", tokens: int, layers: int | None = None) -> int:
    """Bytes that `attention_states` keeps of a text."""
    return 4 * tokens * (layers or model.num_layers) * model.head_dim * (model.num_heads + model.num_kv_heads)
