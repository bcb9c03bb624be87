"""Whether what a model wrote is right: HELMET's substring match, and for a ranking its NDCG@10 (Yen et al. 2025)."""

import re
import string
from math import log2

import numpy as np

from .pieces import Item, Pieces

LINE_END = "\n"
# Tokens that may be written beyond those of the answer.
MORE = 8
# Tokens for each passage of a ranking, in those of its mark.
LISTED = 3
# Places of a ranking that count.
PLACES = 10


def budget(item: Item, limit: int) -> int:
    """Tokens that may be written after an item's prompt: those of its answer and a few more, of a ranking enough to
    list all candidates, and never beyond the `limit` that is read at once."""
    answer = item.candidates.shape[1]
    listed = LISTED * len(item.candidates) if item.relevance else 1
    return min(answer * listed + MORE, limit - len(item.ids))


def graded(pieces: Pieces, item: Item, written: np.ndarray) -> float:
    """Score from 0 to 1 of token ids that were written, up to the end of their line: of a ranking the NDCG@10 of the
    marks in the order in which they first stand there; else 1 where the right answer stands there in whole words, both
    without capitals, punctuation and articles, and 0 where it does not."""
    text = pieces.tokenizer.decode(written).partition(LINE_END)[0]
    if item.relevance is not None:
        return ndcg(order(text, [pieces.show(row) for row in item.candidates]), item.relevance)
    return float(any(stands(answer, text) for answer in (pieces.show(item.answer), *item.accepted)))


def plain(text: str) -> str:
    """A text in small letters, without punctuation and articles, spaces squeezed (SQuAD, Rajpurkar et al. 2016)."""
    bare = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def stands(answer: str, text: str) -> bool:
    """Whether an answer stands in a text in whole words."""
    return bool(plain(answer)) and f" {plain(answer)} " in f" {plain(text)} "


def order(text: str, marks: list[str]) -> list[int]:
    """Places of the marks that stand in a text, in the order of their first mention."""
    words = re.findall(r"\w+", text)
    return sorted(
        (place for place, mark in enumerate(marks) if mark in words), key=lambda place: words.index(marks[place])
    )


def ndcg(ranked: list[int], relevance: tuple[int, ...]) -> float:
    """Normalised discounted cumulative gain of the first ten places (Jarvelin and Kekalainen 2002): each relevance by
    log2(place + 1), over that of the best order; 0 where nothing is ranked."""

    def gain(relevances: list[int]) -> float:
        return sum(value / log2(place + 2) for place, value in enumerate(relevances[:PLACES]))

    return gain([relevance[place] for place in ranked]) / gain(sorted(relevance, reverse=True))
