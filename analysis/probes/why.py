"""Why a head reads a key: its score as a sum over who wrote the query's stream times who wrote the key's."""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from ..errors import BadModel, BadSetting
from ..kernels.scoring import Scoring, softmax
from ..routers.frequencies import Frequencies, frequencies
from ..statistics.inputs import batch, check_head, check_room
from .writers import Stream

if TYPE_CHECKING:
    from ..models import Model

# Of the logit, and of one where that is smaller: what its parts may lack.
CLOSE = 1e-4


@dataclass(frozen=True)
class Why:
    """One score, taken apart. `logit` is the scaled product of query and key, before a soft cap and before what
    `capped` is after it; `attention` the share of the query's attention that the key gets.

    `queries` and `keys` float64 [W, D]: what each of `writers` gives to the two as they meet. `frequencies`: of rotary
    positions, or None where there are none or their pairs are not known.
    """

    layer: int
    head: int
    query: int
    key: int
    writers: list[str]
    queries: np.ndarray
    keys: np.ndarray
    factor: float
    logit: float
    capped: float
    attention: float
    frequencies: Frequencies | None

    @cached_property
    def scores(self) -> np.ndarray:
        """float64 [W, W]: what each writer of the query's stream and each of the key's give together."""
        return self.factor * self.queries @ self.keys.T

    @cached_property
    def parts(self) -> pd.DataFrame:
        """query_writer, key_writer and score of every pair; the scores add up to the logit."""
        return pd.DataFrame(
            {
                "query_writer": np.repeat(self.writers, len(self.writers)),
                "key_writer": np.tile(self.writers, len(self.writers)),
                "score": self.scores.ravel(),
            }
        )

    def by_frequency(self, query_writer: str | None = None, key_writer: str | None = None) -> pd.DataFrame:
        """The score, or that of one writer on either side, by rotary frequency, the quickest first: `wavelength` in
        tokens (missing for sizes that are not rotated), `score`, the `most` that it would be at the best distance, and
        the nearest such `distance`. Empty without rotary positions."""
        products, rates = self._products(query_writer, key_writer)
        rates = np.where(rates > 0, rates, np.nan)
        length = 2 * np.pi / rates
        best = (self.query - self.key + np.angle(products) / rates) % length
        columns = {"wavelength": length, "score": products.real, "most": np.abs(products), "distance": best}
        return pd.DataFrame(columns)

    def at_distances(self, distances: np.ndarray) -> np.ndarray:
        """The logit of the same query and key at other distances in tokens, the content of both as it is [n]; empty
        without rotary positions."""
        products, rates = self._products(None, None)
        moved = np.asarray(distances) - (self.query - self.key)
        logits = (products * np.exp(-1j * rates * moved[:, None])).real.sum(-1)
        return logits if len(products) else logits[:0]

    def _products(self, query_writer: str | None, key_writer: str | None) -> tuple[np.ndarray, np.ndarray]:
        """conj(query) times key, complex128 [D/2], of which the real parts add up to the score, and how fast each
        turns."""
        if self.frequencies is None:
            return np.zeros(0, complex), np.zeros(0)
        sides = self._side(self.queries, query_writer), self._side(self.keys, key_writer)
        query, key = (self.frequencies.pairs(torch.from_numpy(side)).numpy() for side in sides)
        return self.factor * query.conj() * key, self.frequencies.rates.numpy()

    def _side(self, vectors: np.ndarray, writer: str | None) -> np.ndarray:
        return vectors.sum(0) if writer is None else vectors[self.writers.index(writer)]


def why(model: "Model", token_ids: Any, layer: int, head: int, query: int, key: int) -> Why:
    """Why a head gives a key its score: token_ids [T] of one text, `layer` the model's own number, `query` and `key`
    places in the text.

    Writers are `embedding`, `position` where positions are learned, `L2.H3` for every head below, `L2.mlp` for every
    feed-forward block (`L2.linear` and the like for layers of other kinds), `bias` for the biases of norms and
    projections, and in half precision `rounding`. All norms keep the scale that they had in this text (Elhage et al.
    2021); then the parts add up to the logit to 1e-4 times max(1, |logit|). Errors: BadSetting for a head or places
    that there are not, BadText, TooLarge, BadModel for a model whose scores are no such sum.
    """
    ids = batch(model, token_ids)[0]
    check_room(model, ids)
    place = check_head(model, layer, head)
    if len(ids) > 1:
        raise BadSetting(f"One text at a time is looked at, and {len(ids)} were given.")
    if not 0 <= key <= query < ids.shape[1]:
        raise BadSetting(
            f"A query of this text is 0 to {ids.shape[1] - 1:,} and reads keys up to itself, and query {query:,} with "
            f"key {key:,} was asked for."
        )
    return explained_by(Stream(model.lm, ids[0], place, [query, key]), layer, head, query, key)


@torch.no_grad()
def explained_by(stream: Stream, layer: int, head: int, query: int, key: int) -> Why:
    """The score of a pair from its stream, whose places are the two. Errors: BadModel."""
    written = stream.written(head)
    queries, keys = written.queries[:, 0].numpy(), written.keys[:, 1].numpy()
    logit = written.factor * float(written.model_queries[0] @ written.model_keys[1])
    summed = written.factor * float(queries.sum(0) @ keys.sum(0))
    if abs(summed - logit) > CLOSE * max(1.0, abs(logit)):
        raise BadModel(
            f"The parts of this score add up to {summed:.5g} and it is {logit:.5g}: this model computes in too few "
            "digits for so large parts, so load it in float32."
        )
    scoring, attention = _attention(stream, head, query, key)
    prompt, rotation = stream.prompt, None
    # No rotary positions, or their pairs are not known, as in MLA.
    with suppress(BadModel):
        rotation = frequencies(stream.lm, prompt.module, prompt.tables, prompt.query.shape[-1])
    return Why(
        layer=layer,
        head=head,
        query=query,
        key=key,
        writers=written.writers,
        queries=queries,
        keys=keys,
        factor=written.factor,
        logit=logit,
        capped=float(scoring.capped(torch.tensor(logit, dtype=torch.float64))),
        attention=attention,
        frequencies=rotation,
    )


def _attention(stream: Stream, head: int, query: int, key: int) -> tuple[Scoring, float]:
    """How the layer scores, and what of the query's attention the key gets."""
    prompt = stream.prompt
    group = head * prompt.key.shape[1] // prompt.query.shape[1]
    rows = prompt.query[:, head : head + 1, query : query + 1].float()
    scores = prompt.scoring.scores(rows, prompt.key[:, group : group + 1].float())
    length, visible = scores.shape[-1], prompt.visible
    seen = torch.arange(length, device=scores.device) <= query
    sinks = None
    if visible is not None:
        sinks = None if visible.sinks is None else visible.sinks[head : head + 1]
        if visible.mask is not None:
            mask = visible.mask
            seen = mask[:, min(head, mask.shape[1] - 1), query][:, None, None]
    shares = softmax(scores.masked_fill(~seen, float("-inf")), sinks)
    return prompt.scoring, float(shares[0, 0, 0, key])
