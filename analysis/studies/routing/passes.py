"""Reading prompts for bucket routing: un-rotated queries and keys, and attention mass per bucket, streamed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ...errors import BadModel
from ...methods.base import Method
from ...models import Model
from ...routers.rotation import unrotate
from ...seam.attention import Block, apply
from ...statistics import forward

# Tokens of the text that tells which layers rotate.
PROBE = 12
CLOSE = 1e-3  # relative
Take = Callable[[int, Tensor, Tensor], None]


@dataclass
class Tap(Method):
    """Dense attention that hands over each layer's queries [H, T, D] and keys [G, T, D], un-rotated, in float32."""

    dense: ClassVar[bool] = True
    # Random buckets are drawn block by block: other blocks, other draws.
    block_bytes: ClassVar[int | None] = 8 << 20

    take: Take | None = None
    rotated: list[bool] | None = None

    def encode_tokens(self, layer: int, query: Tensor, key: Tensor, past: int, module: Any, tables: Any) -> None:
        assert self.take is not None and self.rotated is not None
        tables = tables if self.rotated[layer] else None
        self.take(layer, *(unrotate(x[:1].float(), module, tables)[0] for x in (query, key)))


@torch.no_grad()
def read_prompt(
    model: Model, ids: np.ndarray, rotated: list[bool], take: Take, watch: Callable[[Block, Tensor], None] | None = None
) -> None:
    """One pass over a prompt [T]: `take(layer, queries [H, T, D], keys [G, T, D])` before each layer's attention, then
    `watch(block, probabilities)` for its blocks of queries."""
    with apply(model, Tap(take=take, rotated=rotated), watch=watch):
        forward(model, ids)


@torch.no_grad()
def rotated_layers(model: Model) -> list[bool]:
    """Which layers rotate queries and keys by their place; the others (all of GPT-2's) are taken as they are.

    Told from a text of one token: what enters a layer is then the same everywhere, and so must be the keys once their
    rotation is undone. Errors: BadModel for a layer whose rotation cannot be undone.
    """
    if model.lm.get_input_embeddings() is None:
        raise BadModel(f"{model.name} has no token embeddings, so its rotation cannot be checked.")
    entered: dict[int, Tensor] = {}
    spreads_of: dict[int, list[float]] = {}

    class Probe(Tap):
        def token_features(self, layer: int, hidden: Tensor, real: Tensor | None) -> None:
            entered[layer] = hidden[0].float()

        def encode_tokens(self, layer: int, query: Tensor, key: Tensor, past: int, module: Any, tables: Any) -> None:
            undone = [] if tables is None else [unrotate(key.float(), module, tables)]
            spreads_of[layer] = [_spread(rows[0].float()) for rows in (key, *undone)]

    with apply(model, Probe()):
        forward(model, np.full(PROBE, int(model.lm.config.get_text_config().vocab_size) // 2))
    rotates = []
    for layer, (as_it_is, *undone) in sorted(spreads_of.items()):
        # Absolute positions entered here: there is nothing to compare.
        compared = _spread(entered[layer]) <= CLOSE
        if compared and min(as_it_is, *undone) > 30 * CLOSE:
            raise BadModel(
                f"The rotation of layer {layer} of {model.name} cannot be undone: its keys still depend on their place "
                "in the text, so no buckets can be made of them; choose another model."
            )
        rotates.append(bool(undone) and (not compared or undone[0] <= as_it_is))
    return rotates


def _spread(rows: Tensor) -> float:
    """Largest difference between rows [..., T, D] by their size: 0 where all are equal."""
    return float((rows - rows[..., :1, :]).abs().max() / rows.abs().max().clamp(min=1e-9))
