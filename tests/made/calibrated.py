"""What the studies of CSA are tried on: tiny models that read 64 tokens, and texts that differ."""

import random

from analysis.corpus import text_hash
from analysis.studies.context import Context

WORDS = "the cat sat on a mat and saw dogs run far from home while rain fell softly over old green hills".split()


def text(seed: int, words: int = 400) -> str:
    """A text of `words` words in a random order of its own."""
    return " ".join(random.Random(seed).choices(WORDS, k=words)) + "."


def keys(context: Context, *seeds: int, words: int = 400) -> list[str]:
    """Hashes of texts, kept in the context."""
    return [context.add_text(f"text {seed}", text(seed, words)) for seed in seeds]


def key(seed: int, words: int = 400) -> str:
    """The hash of a text."""
    return text_hash(text(seed, words))
