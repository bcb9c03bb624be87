"""Recall documents: generated texts whose tokens can be told only from what stood far before in the same text.

A document is a pure function of (seed, row number), so a run that was stopped reads the same ones again, and no two
rows share a name or a value. Short documents are dense (every other line is an answer): facts thinly strewn through
other text teach a small model nothing before it can look back at all. Longer ones have more text between.
"""

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

# Tokens of a document in which kinds with more answers come more often.
SHORT = 300
CONSONANTS, VOWELS = tuple("bcdfghjklmnprstvwz"), tuple("aeiou")
CAPITALS, DIGITS = "ABCDEFGHJKLMNPRSTUVWXYZ", "0123456789abcdef"
STYLES = ("word", "made", "number", "hex", "uuid", "name", "words")  # of values
KEYS = ("word", "made", "name", "code", "thing")


@dataclass(frozen=True)
class Document:
    """`ids` int64 [n]; `answer` bool [n], True for tokens that the text before them tells."""

    kind: str
    ids: np.ndarray
    answer: np.ndarray


class Words:
    """Names and values that are drawn anew for every document, so that none can be learned by heart: from the words of
    a tokenizer's own vocabulary, `plain`, the lower-case ones of one token with the space before them, from syllables
    and from digits."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        words = (re.fullmatch(r"Ġ([a-z]{3,12})", token) for token in tokenizer.get_vocab())
        self.plain = sorted(word[1] for word in words if word)

    def draw(self, style: str, rng: np.random.Generator) -> str:
        """One value: `word` of the vocabulary, `words` two of them, `made` two to four syllables, `name` first and last
        name of syllables, `number` of one to six digits, `hex` of four to eight, `uuid`, `code` letters and digits,
        `thing` the article and a word."""
        if style == "word":
            return self.plain[rng.integers(len(self.plain))]
        if style == "words":
            return f"{self.draw('word', rng)} {self.draw('word', rng)}"
        if style == "thing":
            return f"the {self.draw('word', rng)}"
        if style == "made":
            return syllables(rng)
        if style == "name":
            return f"{syllables(rng).capitalize()} {syllables(rng).capitalize()}"
        if style == "number":
            return str(rng.integers(10 ** rng.integers(1, 7)))
        if style == "hex":
            return "".join(DIGITS[i] for i in rng.integers(16, size=rng.integers(4, 9)))
        if style == "uuid":
            return str(uuid.UUID(bytes=rng.bytes(16), version=4))
        assert style == "code", style
        return "".join(CAPITALS[i] for i in rng.integers(23, size=2)) + f"-{rng.integers(10, 10_000)}"

    def fresh(self, style: str, rng: np.random.Generator, used: set[str]) -> str:
        """One that is not in `used` yet, which it is added to."""
        while (drawn := self.draw(style, rng)) in used:
            pass
        used.add(drawn)
        return drawn


def syllables(rng: np.random.Generator) -> str:
    """A made-up word of two to four syllables, half of the time with a consonant at its end."""
    pairs = rng.integers((len(CONSONANTS), len(VOWELS)), size=(rng.integers(2, 5), 2))
    end = CONSONANTS[rng.integers(len(CONSONANTS))] if rng.random() < 0.5 else ""
    return "".join(CONSONANTS[a] + VOWELS[b] for a, b in pairs) + end


@dataclass
class Source:
    """What documents are made of: a tokenizer, and the training tokens of every domain {name: uint16[T]} with an
    end-of-text token (id 0) before each document. `code` names the domain of source code."""

    tokenizer: Tokenizer
    tokens: dict[str, np.ndarray]
    code: str = "python"

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
        text, place_in = ids[first:last].astype(np.int64), max(0, place - first)

        def more(count: int) -> np.ndarray:
            nonlocal place_in
            passage = text[(place_in + np.arange(count)) % len(text)]
            place_in = (place_in + count) % len(text)
            return passage

        return more


class Writer:
    """A document that is being written, `length` tokens at most; `thin` ones have natural text between their lines."""

    def __init__(self, source: Source, length: int, rng: np.random.Generator, domain: str, thin: bool) -> None:
        self.source, self.length, self.rng, self.thin = source, length, rng, thin
        self.words, self.more = source.words, source.passage(domain, rng)
        self.used: set[str] = set()
        self.written = 0
        self._parts: list[np.ndarray] = []
        self._answers: list[np.ndarray] = []

    @property
    def full(self) -> bool:
        """Whether no token is left to be written."""
        return self.written >= self.length

    def fresh(self, style: str) -> str:
        """A name or value that this document does not have yet."""
        return self.words.fresh(style, self.rng, self.used)

    def add(self, ids: np.ndarray, answer: bool = False) -> None:
        """Tokens as they are."""
        self._parts.append(ids)
        self._answers.append(np.full(len(ids), answer))
        self.written += len(ids)

    def say(self, text: str, answer: bool = False) -> None:
        """A piece of text."""
        if text:
            self.add(np.array(self.source.tokenizer.encode(text).ids, np.int64), answer)

    def line(self, template: str, key: str, value: str, ask: bool) -> None:
        """A line that tells or asks for the value of a key, `{value}` (and maybe `{key}`) in its template."""
        before, after = template.replace("{key}", key).split("{value}")
        # The space belongs to the value's first token.
        self.say(before.removesuffix(" "))
        self.say(" " * before.endswith(" ") + value, answer=ask)
        self.say(after)

    def rest(self) -> None:
        """Natural text, where the document has any between its lines."""
        if self.thin:
            self.add(self.more(spread(self.rng, 8, max(9, self.length // 6))))

    def document(self, kind: str) -> Document:
        """The text so far, cut to its length."""
        ids, answer = np.concatenate(self._parts), np.concatenate(self._answers)
        return Document(kind, ids[: self.length], answer[: self.length])


def spread(rng: np.random.Generator, low: int, high: int) -> int:
    """A whole number from low to high, its logarithm even."""
    return int(np.exp(rng.uniform(np.log(low), np.log(high + 1))))


def lookups(writer: Writer, tell: str, asks: list[str], keys: str, values: str) -> None:
    """Tell values of keys and ask for them again until the document is full: first a list and then look-ups in another
    order, or told and asked in turn, old ones as likely as new ones by the logarithm of their age."""
    rng = writer.rng
    pairs: list[tuple[str, str]] = []
    listed = rng.random() < 0.5
    end = writer.length * rng.uniform(0.25, 0.6)
    limit = spread(rng, 2, 12) if writer.thin else 10_000
    while not writer.full:
        telling = writer.written < end if listed else rng.random() < 0.4
        if not pairs or telling and len(pairs) < limit:
            pairs.append((writer.fresh(keys), writer.fresh(values)))
            writer.line(tell, *pairs[-1], ask=False)
        else:
            back = rng.integers(len(pairs)) if listed else spread(rng, 1, len(pairs)) - 1
            writer.line(asks[rng.integers(len(asks))], *pairs[-1 - min(back, len(pairs) - 1)], ask=True)
        writer.rest()


def thinness(length: int) -> float:
    """Share of documents with natural text between their lines: none to 256 tokens, 0.6 at 2,048."""
    return float(np.clip(0.2 * np.log2(max(1, length) / 256), 0.0, 0.6))
