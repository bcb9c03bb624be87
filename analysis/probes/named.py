"""Texts on which heads show what they are called after: random tokens, part of them twice, and needles in a story."""

from typing import Any, NamedTuple

import numpy as np

from ..corpus import sample_texts
from .pieces import Pieces
from .tasks import TASKS, Ask

# Tokens of a text, or as many as the model reads.
LENGTH = 256
# First tokens of a second copy, which nothing can tell.
SETTLED = 4
# The last of so many parts of a text is near.
NEAR = 8
# Displaced variants of every span: the null.
DRAWS = 20


class Made(NamedTuple):
    """Texts `ids` int64 [B, T]; `spans` of a name for each query, int64 [1 + DRAWS, B, T, 2]: what a head of that name
    reads, then displaced; `needs` and `rest` bool [B, T]: tokens that such heads help to predict, and those they do
    not; `fresh`: the first queries of all texts that see nothing twice."""

    ids: np.ndarray
    spans: dict[str, np.ndarray]
    needs: np.ndarray
    rest: np.ndarray
    fresh: int


def repeats(texts: int, length: int, vocabulary: int, random: np.random.Generator) -> Made:
    """Random tokens that end with a stretch and its copy, each text with a distance of its own: a head that reads a
    fixed number of tokens back finds no copy in another text.

    Displaced: another distance of the same range; for `sink` another key, for `local` a stretch as long elsewhere.
    """
    shortest, longest = length // 4, length // 2
    ids = np.stack([random.choice(vocabulary - 1, length, replace=vocabulary <= length) + 1 for _ in range(texts)])
    periods = random.integers(shortest, longest + 1, texts)
    for row, period in zip(ids, periods, strict=True):
        row[-period:] = row[-2 * period : -period]
    query, near = np.arange(length), length // NEAR
    copy = (query >= length - periods[:, None])[None]  # [1, B, T]
    displaced = random.integers(shortest, longest + 1, (DRAWS, texts))
    # Two tokens off the true one at least.
    displaced += (np.abs(displaced - periods) < 2) * 3
    back = np.concatenate([periods[None], displaced])[..., None]  # [R, B, 1]
    steps = np.concatenate([[1], random.integers(2, shortest, DRAWS)])[:, None, None]
    keys = np.concatenate([[0], random.integers(1, shortest, DRAWS)])[:, None, None]
    shifts = np.concatenate([[0], random.integers(near, longest, DRAWS)])[:, None, None]
    everywhere = np.broadcast_to(query, (1, texts, length))
    spans = {
        "previous token": _spans(everywhere - steps, 1, everywhere >= steps),
        "duplicate token": _spans(everywhere - back, 1, copy & (everywhere >= back)),
        "induction": _spans(everywhere - back + 1, 1, copy & (everywhere >= back)),
        "sink": _spans(everywhere * 0 + keys, 1, everywhere > keys),
        "local": _spans(everywhere - near + 1 - shifts, near, everywhere >= near + shifts),
    }
    settled = query >= length - periods[:, None] + SETTLED
    return Made(ids, spans, settled, ~copy[0], int(length - periods.max()))


def needles(tokenizer: Any, texts: int, length: int, random: np.random.Generator) -> Made:
    """Identifiers hidden in the bundled story at all depths and asked for, the answer behind the question.

    A query that predicts a token of the answer asks for that token in the needle; displaced, for one as far into
    another stretch of the story. Errors: BadSetting where `length` tokens hold no such question.
    """
    pieces = Pieces(tokenizer, sample_texts()["story"][1])
    depths = np.linspace(0, 1, texts)
    items = [TASKS["uuid_needle"].make(pieces, Ask(length, 2, float(depth)), random) for depth in depths]
    ids = np.stack([np.concatenate([item.ids, item.answer]) for item in items])
    spans = np.zeros((1 + DRAWS, texts, ids.shape[1], 2), np.int64)
    needs = np.zeros(ids.shape, bool)
    for text, item in enumerate(items):
        size, first = len(item.answer), len(item.ids)
        needs[text, first:] = True
        assert item.gold is not None, "a needle has one place"
        places = [item.gold[0], *random.integers(len(pieces.begin), item.question - size, DRAWS)]
        for draw, place in enumerate(places):
            keys = place + np.arange(size)
            spans[draw, text, first - 1 : -1] = np.stack([keys, keys + 1], -1)
    return Made(ids, {"retrieval": spans}, needs, ~needs, ids.shape[1])


def _spans(first: np.ndarray, size: int, queried: np.ndarray) -> np.ndarray:
    """int64 [R, B, T, 2]: `size` keys from `first` on where a query is `asked`, else none."""
    first, queried = np.broadcast_arrays(first, queried)
    return np.stack([first, first + size], -1) * queried[..., None]
