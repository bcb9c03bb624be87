"""Names and values that are drawn anew for every document, so that none of them can be learned by heart."""

import re
import uuid

import numpy as np
from tokenizers import Tokenizer

CONSONANTS, VOWELS = tuple("bcdfghjklmnprstvwz"), tuple("aeiou")
STYLES = ("word", "made", "number", "hex", "uuid", "name", "words")
KEYS = ("word", "made", "name", "code", "thing")


class Words:
    """Draws from the words of a tokenizer's own vocabulary, from syllables and from digits.

    `plain` are the vocabulary's lower-case words of one token with the space before them, `tokenizer` a
    `tokenizers.Tokenizer`.
    """

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
            return "".join("0123456789abcdef"[i] for i in rng.integers(16, size=rng.integers(4, 9)))
        if style == "uuid":
            return str(uuid.UUID(bytes=rng.bytes(16), version=4))
        assert style == "code", style
        return "".join("ABCDEFGHJKLMNPRSTUVWXYZ"[i] for i in rng.integers(23, size=2)) + f"-{rng.integers(10, 10_000)}"

    def fresh(self, style: str, rng: np.random.Generator, used: set[str]) -> str:
        """One that is not in `taken` yet, which it is added to."""
        while (drawn := self.draw(style, rng)) in used:
            pass
        used.add(drawn)
        return drawn


def syllables(rng: np.random.Generator) -> str:
    """A made-up word of two to four syllables, half of the time with a consonant at its end."""
    pairs = rng.integers((len(CONSONANTS), len(VOWELS)), size=(rng.integers(2, 5), 2))
    end = CONSONANTS[rng.integers(len(CONSONANTS))] if rng.random() < 0.5 else ""
    return "".join(CONSONANTS[a] + VOWELS[b] for a, b in pairs) + end
