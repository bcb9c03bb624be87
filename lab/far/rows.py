"""What the model that reads far is trained on: rows of one document each, natural ones and recall documents.

Everything is a pure function of the recipe and the shards: row r of a phase is the same whoever asks for it, so a run
that was stopped goes on with the very next row.
"""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np

from analysis.errors import BadText
from lab.far.kinds import document
from lab.far.recall import Source
from lab.far.recipe import FarRecipe


def document_rows(ids: np.ndarray, length: int, rng: np.random.Generator) -> np.ndarray:
    """First tokens of rows of `length` + 1 tokens that each lie within one document, shuffled: int64 [n].

    ids [T] with an end-of-text token (0) before each document. Rows follow one another from a random place of what is
    left over on, so another epoch cuts elsewhere; a document that is shorter than a row is left out.
    """
    begins = np.flatnonzero(np.append(ids, 0) == 0)
    starts = []
    for first, last in zip(begins[:-1], begins[1:], strict=True):
        count = (last - first - 1) // length
        if count:
            starts.append(first + rng.integers(last - first - count * length) + length * np.arange(count))
    if not starts:
        raise BadText(f"No document has the {length + 1:,} tokens of a row.")
    return rng.permutation(np.concatenate(starts))


class Rows:
    """The rows of every step: `recipe` a `FarRecipe`, `source` the training tokens, `shares` of the natural domains."""

    def __init__(self, recipe: FarRecipe, source: Source, shares: dict[str, float]) -> None:
        self.recipe, self.source, self.shares = recipe, source, shares
        self._epoch = lru_cache(maxsize=2 * len(shares))(self._cut)

    def _cut(self, domain: str, length: int, epoch: int) -> np.ndarray:
        rng = np.random.default_rng([self.recipe.seed, zlib.crc32(domain.encode()), length, epoch])
        return document_rows(self.source.tokens[domain], length, rng)

    @lru_cache(maxsize=2)  # noqa: B019 (one object per run)
    def _plan(self, phase: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Of every row of a phase: domain, whether it is a recall document, whether it repeats, number among the
        natural rows of its domain; each [rows]. What a longer run would read first, a shorter one reads as well."""
        first, end, length, size = self.recipe.phases()[phase]
        count, per_step = end - first, size // length
        drawn = [np.random.default_rng([self.recipe.seed, phase, n]).random(count * per_step) for n in range(2)]
        domain = np.searchsorted(np.cumsum(list(self.shares.values()))[:-1], drawn[0], "right")
        shares = np.array([self.recipe.shares(step) for step in range(first, end)]).repeat(per_step, 0).cumsum(1)
        recall, repeats = drawn[1] < shares[:, 0], (drawn[1] >= shares[:, 0]) & (drawn[1] < shares[:, 1])
        number = np.zeros(count * per_step, np.int64)
        for n in range(len(self.shares)):
            natural = (domain == n) & ~recall & ~repeats
            number[natural] = np.arange(natural.sum())
        return domain, recall, repeats, number

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """ids int64 [B, T + 1]; answer bool [B, T + 1], tokens that the row told before; of each row [B], whether it is
        a recall document and whether it is random tokens that come again."""
        phase = self.recipe.phase(step)
        first, _, length, size = self.recipe.phases()[phase]
        domain, recall, repeats, number = self._plan(phase)
        ids, answer, per_step = [], [], size // length
        rows_here = slice((step - first) * per_step, (step - first + 1) * per_step)
        for row in range(rows_here.start, rows_here.stop):
            if recall[row] or repeats[row]:
                kind = "repeats" if repeats[row] else None
                number_of = row + 1_000_000 * phase
                row_text = document(self.source, self.recipe.seed, number_of, length + 1, kind, dict(self.recipe.kinds))
                ids.append(row_text.ids), answer.append(row_text.answer)
            else:
                ids.append(self.natural(list(self.shares)[domain[row]], length, int(number[row])))
                answer.append(np.zeros(length + 1, bool))
        return np.stack(ids), np.stack(answer), recall[rows_here], repeats[rows_here]

    def natural(self, domain: str, length: int, number: int) -> np.ndarray:
        """Natural row `number` of a domain, int64 [length + 1]: every row of an epoch once before the next epoch."""
        epoch = 0
        while number >= len(starts := self._epoch(domain, length, epoch)):
            number, epoch = number - len(starts), epoch + 1
        at = starts[number]
        return self.source.tokens[domain][at : at + length + 1].astype(np.int64)
