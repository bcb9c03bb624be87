"""Recall documents: generated texts whose tokens can be told only from what stood far before in the same text.

A document is a pure function of (seed, row number), so a run that was stopped reads the same ones again, and no two
rows share a name or a value. Short documents are dense (every other line is an answer): facts thinly strewn through
other text teach a small model nothing before it can look back at all. Longer ones have more text between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from lab.far.words import Words

SHORT = 300  # tokens of a document in which kinds with more answers come more often
Cut = list[tuple[int, int]]  # (first, past the last) token


@dataclass(frozen=True)
class Asked:
    """One look-up: the answer's `value`, and the tokens (of the document) where it was told and where it is asked."""

    key: str
    value: str
    told: int
    at: int


@dataclass(frozen=True)
class Document:
    """`ids` int64 [n]; `answer` bool [n], True for tokens that the text before them tells; what was `asked`."""

    kind: str
    ids: np.ndarray
    answer: np.ndarray
    asked: tuple[Asked, ...]


@dataclass
class Source:
    """What documents are made of: a `tokenizers.Tokenizer`, and the training tokens of every domain {name: uint16[T]}
    with an end-of-text token (id 0) before each document. `code` names the domain of source code."""

    tokenizer: object
    tokens: dict[str, np.ndarray]
    code: str = "python"
    words: Words = field(init=False)

    def __post_init__(self) -> None:
        self.words = Words(self.tokenizer)
        self.vocabulary = self.tokenizer.get_vocab_size()
        self._begins = {name: np.flatnonzero(np.append(ids, 0) == 0) for name, ids in self.tokens.items()}

    def passage(self, domain: str, rng: np.random.Generator) -> Callable[[int], np.ndarray]:
        """Text of one natural document from a random place on: a function that gives its next n tokens."""
        ids, begins = self.tokens[domain], self._begins[domain]
        place = int(rng.integers(len(ids)))
        n = int(np.searchsorted(begins, place, "right"))
        first, last = (int(begins[n - 1]) + 1, int(begins[n])) if 0 < n < len(begins) else (0, int(begins[0]))
        text, at = ids[first:last].astype(np.int64), max(0, place - first)

        def more(count: int) -> np.ndarray:
            nonlocal at
            taken = text[(at + np.arange(count)) % len(text)]
            at = (at + count) % len(text)
            return taken

        return more


class Writer:
    """A document that is being written, `length` tokens at most; `thin` ones have natural text between their lines."""

    def __init__(self, source: Source, length: int, rng: np.random.Generator, domain: str, thin: bool) -> None:
        self.source, self.length, self.rng, self.thin = source, length, rng, thin
        self.words, self.more = source.words, source.passage(domain, rng)
        self.taken: set[str] = set()
        self.asked: list[Asked] = []
        self._parts: list[np.ndarray] = []
        self._answers: Cut = []
        self._told: dict[str, int] = {}
        self.written = 0

    @property
    def full(self) -> bool:
        """Whether no token is left to be written."""
        return self.written >= self.length

    def add(self, ids: np.ndarray, answer: bool = False) -> None:
        """Tokens as they are."""
        if answer:
            self._answers.append((self.written, self.written + len(ids)))
        self._parts.append(ids)
        self.written += len(ids)

    def say(self, text: str, answer: bool = False) -> None:
        """A piece of text."""
        if text:
            self.add(np.array(self.source.tokenizer.encode(text).ids, np.int64), answer)

    def line(self, template: str, key: str, value: str, ask: bool) -> None:
        """A line that tells or asks for the value of a key, `{value}` (and maybe `{key}`) in its template."""
        before, after = template.replace("{key}", key).split("{value}")
        space = " " if before.endswith(" ") else ""
        self.say(before.removesuffix(" "))
        if not ask:
            self.tell(key)
        elif not self.full:
            self.asked.append(Asked(key, value, self._told[key], self.written))
        self.say(space + value, answer=ask)
        self.say(after)

    def tell(self, key: str) -> None:
        """The value of a key stands here."""
        self._told[key] = self.written

    def rest(self) -> None:
        """Natural text, where the document has any between its lines."""
        if self.thin:
            self.add(self.more(spread(self.rng, 8, max(9, self.length // 6))))

    def document(self, kind: str) -> Document:
        """What was written, cut to its length."""
        answer = np.zeros(self.written, bool)
        for first, last in self._answers:
            answer[first:last] = True
        return Document(kind, np.concatenate(self._parts)[: self.length], answer[: self.length], tuple(self.asked))


def spread(rng: np.random.Generator, low: int, high: int) -> int:
    """A whole number from low to high, its logarithm even."""
    return int(np.exp(rng.uniform(np.log(low), np.log(high + 1))))


def lookups(writer: Writer, tell: str, asks: list[str], keys: str, values: str) -> None:
    """Tell values of keys and ask for them again until the document is full: first a list and then look-ups in another
    order, or told and asked in turn, old ones as likely as new ones by the logarithm of their age."""
    rng, pairs = writer.rng, []
    listed = rng.random() < 0.5
    end = writer.length * rng.uniform(0.25, 0.6)
    limit = spread(rng, 2, 12) if writer.thin else 10_000
    while not writer.full:
        telling = writer.written < end if listed else rng.random() < 0.4
        if not pairs or telling and len(pairs) < limit:
            key, value = (writer.words.fresh(style, rng, writer.taken) for style in (keys, values))
            pairs.append((key, value))
            writer.line(tell, key, value, ask=False)
        else:
            back = rng.integers(len(pairs)) if listed else spread(rng, 1, len(pairs)) - 1
            writer.line(asks[rng.integers(len(asks))], *pairs[-1 - min(back, len(pairs) - 1)], ask=True)
        writer.rest()


def thinness(length: int) -> float:
    """Share of documents with natural text between their lines: none to 256 tokens, 0.6 at 2,048."""
    return float(np.clip(0.2 * np.log2(max(1, length) / 256), 0.0, 0.6))
