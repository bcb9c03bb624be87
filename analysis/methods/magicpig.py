"""MagicPIG: far keys are sampled by locality-sensitive hashing, and weighted by how likely they were to be found."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..declaration import field
from ..errors import NotFitted
from ..fitted import Fitted, check_shapes
from ..kernels.collisions import collide, hash_codes
from ..seam.calls import Block, CosSin
from ..seam.layers import shape_of
from ..statistics.states import attention_states
from .base import Method

# Added to a probability before its logarithm, as in the original code.
SLACK = 1e-4
# Tables that a key must share with the query.
NEEDED = {"paper": 2, "hub": 1}
# Logarithm of a chance that is lost beside one, and slow to compute when it is much smaller.
NEVER = -50.0
# Of a block, before which the mean of the keys is taken.
QUERIES = 128


@dataclass
class MagicPIG(Method):
    """The first `n_sink` and the last `window` tokens are always read. A key in between is read when its hash equals
    the query's in at least two of `tables` tables of `bits` bits each. The less likely it was to be found, the more it
    counts, so that the sums over what is read are right on average over the seeds.

    Each bit says on which side of a random plane a vector lies, so similar directions fall into the same bucket. Keys
    are hashed after their mean is subtracted, which changes no softmax but spreads them. The mean is that of a
    *calibration* text, because the mean of the text itself would let the future in; with *blocks* it is that of the
    keys before each block of 128 queries, for which they are hashed anew. The two sums of the softmax are
    unbiased; their ratio is not, and its error falls with the number of tables. Layers 0, `dense_every`, ... read
    everything. *hub* is a variant from public code: one shared table is enough, queries are centred too, and keys keep
    their length in one more dimension. It estimates dense attention and is not exact. The reads shown leave out its
    hash tables (bits times tables for each key).
    """

    title = "MagicPIG"
    paper = "Chen et al., 2024 (MagicPIG), sections 3 and 4"
    needs = "calibration"
    budgeted = "tables"
    budget_start = 32
    masked_scores = 6.4

    fitted: Fitted | None = None
    bits: int = field(10, "bits of a hash: with more bits fewer keys collide", low=1, high=15)
    tables: int = field(150, "hash tables: more tables find more keys and make the estimate steadier", low=2, high=600)
    n_sink: int = field(4, "first tokens of the text that are always read", low=0, high=64)
    window: int = field(64, "tokens that are always read, the token itself included", low=1, high=1 << 20)
    dense_every: int = field(16, "layer 0 and each n-th layer after it read everything; 0: none does", low=0, high=128)
    variant: str = field(
        "paper", "two shared tables and centred keys, or one and the hub's hash", options=tuple(NEEDED)
    )
    centre: str = field("calibration", "the mean that keys are hashed without", options=("calibration", "blocks"))
    seed: int = field(0, "seed of the random planes; average over several", low=0, high=99)

    def fit(self, model: Any, windows: Tensor) -> "MagicPIG":
        """Means of queries [L, H, D] and keys [L, G, D], and the largest norm of a centred key [L, G]."""
        states_of = [attention_states(model, window.cpu().numpy()) for window in windows]
        means: dict[str, list[Tensor]] = {"query": [], "key": [], "norm": []}
        for layer in range(model.num_layers):
            for name in ("query", "key"):
                means[name].append(torch.cat([getattr(states[layer], name) for states in states_of], 1).mean(1))
            away = [(states[layer].key - means["key"][-1][:, None]).norm(dim=-1) for states in states_of]
            means["norm"].append(torch.cat(away, 1).amax(1))
        self.fitted = Fitted("magicpig", {name: torch.stack(rows) for name, rows in means.items()})
        return self

    def check(self, lm: Any) -> None:
        means, (layers, heads, parts, dim) = self._means, shape_of(lm)
        parts = 1 if means["key"].shape[1:2] == (1,) else parts  # one mean for all heads
        check_shapes(means, {"query": (layers, heads, dim), "key": (layers, parts, dim), "norm": (layers, parts)})
        means.to(lm.device)
        draw = torch.Generator().manual_seed(self.seed)
        rows = dim + (self.variant == "hub")
        self._planes = torch.randn(rows, self.tables, self.bits, generator=draw).to(lm.device)

    @property
    def _means(self) -> Fitted:
        if self.fitted is None:
            raise NotFitted("MagicPIG has no key means yet: calibrate it with `fit-method magicpig` on some text.")
        return self.fitted

    def reads_all(self, layer: int) -> bool:
        """Whether a layer is left dense."""
        return self.dense_every > 0 and layer % self.dense_every == 0

    def encode_tokens(
        self, layer: int, query: Tensor, key: Tensor, past: int, module: Any, tables: CosSin
    ) -> Tensor | None:
        """int16 [B, T, H + G, L + 2 D']: hash codes of queries and keys, and the bits of the vectors they are of; with
        blocks, whose keys are hashed later, [B, T, H + G, 2 D] the bits of the vectors as they come."""
        if self.reads_all(layer):
            return None
        query, key = query.detach().float(), key.detach().float()
        if self.centre == "blocks":
            return torch.cat([query, key], 1).transpose(1, 2).contiguous().view(torch.int16)
        vectors = torch.cat(self._turned(layer, query, key, self._mean_of(layer, "key", key)[:, None]), 1)
        vectors = vectors.transpose(1, 2).contiguous()
        return torch.cat([hash_codes(vectors, self._planes.to(key.device)), vectors.view(torch.int16)], -1)

    def _mean_of(self, layer: int, name: str, like: Tensor) -> Tensor:
        """What was calibrated of a layer, where `like` lies."""
        return self._means[name][layer].to(like.device)

    def _turned(self, layer: int, query: Tensor, key: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
        """What is hashed of queries [B, H, n, D] and keys [B, G, T, D], whose mean [..., G, 1, D] is taken off."""
        key = key - mean
        if self.variant == "paper":
            return query, key
        query = torch.nn.functional.pad(query - self._mean_of(layer, "query", query)[:, None], (0, 1))
        key = key / self._mean_of(layer, "norm", key)[:, None, None]
        length = key.norm(dim=-1, keepdim=True).clamp(min=1)
        # a key beyond the calibrated ones
        key = key / length
        return query, torch.cat([key, (1 - key.square().sum(-1, keepdim=True)).clamp(min=0).sqrt()], -1)

    def _compared(self, block: Block) -> tuple[Tensor, Tensor]:
        """Cosines of the vectors as they are hashed, and which keys are found, both [B, H, n, Tk]. With blocks, block
        by block of queries: keys lose the mean of those before it, and the calibrated one where none lie before."""
        heads = block.scores.shape[1]
        start = 0 if self.centre == "blocks" else self.tables
        of_queries, of_keys = block.remembered()
        query, key = _vectors(of_queries, start)[:, :heads], _vectors(of_keys, start)[:, heads:]
        if self.centre != "blocks":
            codes = [rows[..., : self.tables].transpose(1, 2) for rows in (of_queries, of_keys)]
            return self._pairs(query, key, codes[0][:, :heads], codes[1][:, heads:])
        texts = []
        for queries, keys, first in zip(query.split(1), key.split(1), block.first.tolist(), strict=True):
            begins = (block.rows - first).clamp(min=0) // QUERIES * QUERIES + first
            pieces = []
            for begin in begins.unique().tolist():
                earlier = (block.columns >= first) & (block.columns < begin)
                mean = self._mean_of(block.layer, "key", keys)[:, None]
                mean = keys[:, :, earlier].mean(2, keepdim=True) if earlier.any() else mean
                both = self._turned(block.layer, queries[:, :, begins == begin], keys, mean)
                planes = self._planes.to(keys.device)
                pieces.append(self._pairs(*both, *(hash_codes(x.contiguous(), planes) for x in both)))
            texts.append([torch.cat(piece, 2) for piece in zip(*pieces, strict=True)])
        cosine, collided = (torch.cat(text) for text in zip(*texts, strict=True))
        return cosine, collided

    def _pairs(self, query: Tensor, key: Tensor, of_query: Tensor, of_key: Tensor) -> tuple[Tensor, Tensor]:
        """The same of queries [B, H, n, D'] and keys [B, G, Tk, D'] with their codes."""
        query, key = (torch.nn.functional.normalize(x, dim=-1) for x in (query, key))
        # as in `Performer.scores`
        grouped = query.unflatten(1, (key.shape[1], -1))
        cosine = (grouped.flatten(2, 3) @ key.mT).unflatten(2, grouped.shape[2:4]).flatten(1, 2)
        return cosine, collide(of_query, of_key, NEEDED[self.variant])

    def chance(self, cosine: Tensor) -> Tensor:
        """How likely a key is to be found, of its cosine with the query. Powers are taken by logarithms: twice as fast,
        and exact also where hardly a table finds it."""
        p = (-cosine).clamp_(-1, 1).acos_().div_(torch.pi).log_().mul_(self.bits).exp_()  # that one table finds it
        tables = self.tables - NEEDED[self.variant] + 1
        # minus the chance that one of so many does
        probability = (-p).log1p_().mul_(tables).clamp_(min=NEVER).expm1_()
        if self.variant == "paper":
            p.mul_(tables)
            probability.addcmul_(probability, p).add_(p)
        return probability.neg_()

    def scores(self, block: Block) -> Tensor:
        if self.reads_all(block.layer):
            return block.scores
        cosine, _ = block.once("compared", lambda: self._compared(block))
        odds = self.chance(cosine).add_(SLACK).log_()
        return block.scores - odds.masked_fill_(block.near(self.window, self.n_sink), 0.0)

    def mask(self, block: Block) -> Tensor | None:
        if self.reads_all(block.layer):
            return None
        _, collided = block.once("compared", lambda: self._compared(block))
        return collided | block.near(self.window, self.n_sink)


def _vectors(rows: Tensor, start: int) -> Tensor:
    """The vectors [B, H + G, n, D'] that were filed, from column `start` on."""
    return rows[..., start:].contiguous().view(torch.float32).transpose(1, 2)
