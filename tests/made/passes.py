"""Passes of a tiny model with a method, and one layer as a method sees it, without a model."""

import torch
from torch import Tensor

from analysis.kernels.scoring import Scoring
from analysis.methods.base import Method
from analysis.seam.attention import Block, apply
from tests.made.tiny import token_ids


def logits(lm, ids: Tensor, method: Method | None = None, kernels: bool = False, **inputs) -> Tensor:
    """Logits of a text with a method, by default of dense attention through the seam."""
    with torch.no_grad(), apply(lm, method or Method(), kernels=kernels):
        return lm(ids, use_cache=False, **inputs).logits


def watched(lm, method: Method, ids: Tensor) -> list[tuple[Block, Tensor]]:
    """(block, probabilities) of every layer of a pass."""
    pairs: list[tuple[Block, Tensor]] = []
    with torch.no_grad(), apply(lm, method, watch=lambda *pair: pairs.append(pair)):
        lm(ids, use_cache=False)
    return pairs


def changed_end(ids: Tensor, start: int = 30) -> Tensor:
    """The text with other tokens from `start` on."""
    changed = ids.clone()
    changed[:, start:] = token_ids(len(ids), ids.shape[1], seed=9)[:, start:]
    return changed


def block(scores, layer: int = 0, first_row: int = 0, first: int = 0, rows: Tensor | None = None) -> Block:
    """Scores [H, n, Tk] or [n, Tk] of one text whose queries begin at place `first_row`; `rows`: a token memory."""
    scores = torch.as_tensor(scores, dtype=torch.float32)
    scores = scores.reshape(1, *(1,) * (3 - scores.dim()), *scores.shape)
    places, columns = torch.arange(scores.shape[2]) + first_row, torch.arange(scores.shape[3])
    visible = (columns <= places[:, None])[None, None]
    return Block(layer, scores, visible, places, columns, torch.tensor([first]), rows, rows, scoring=Scoring(1.0))


def stacked_block(query: Tensor, key: Tensor) -> Block:
    """A text of queries [H, T, D] and keys [G, T, D] with a factor of 1, both in the token memory."""
    scores = query @ key.repeat_interleave(len(query) // len(key), 0).mT
    return block(scores, rows=torch.cat([query, key]).transpose(0, 1)[None])


def read_keys(method: Method, block: Block) -> Tensor:
    """bool [H, n, Tk]: what a method reads of a block, causality applied as the seam does."""
    return (method.mask(block) & block.visible).expand_as(block.scores)[0]


def normal_states(heads: int, kv_heads: int, length: int, dim: int = 8, seed: int = 0, size: float = 1.0):
    """Normal queries [H, T, D], keys and values [G, T, D]."""
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(n, length, dim, generator=draw) * size for n in (heads, kv_heads, kv_heads)]


class Seen(Method):
    """Dense attention that keeps what its hooks are given: `prompts` and `tokens` by layer."""

    dense = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.prompts, self.tokens = {}, {}

    def prefill(self, prompt) -> None:
        self.prompts[prompt.layer] = prompt

    def encode_tokens(self, layer, query, key, past, module, tables) -> None:
        self.tokens[layer] = query, key, module, tables


def seen(lm, ids: Tensor) -> Seen:
    """What a method is given of a text."""
    method = Seen()
    logits(lm, ids, method)
    return method
