"""What prompts are made of, as token ids of a model's own tokenizer: a text to hide things in, and made-up values."""

import re
import uuid
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import BadModel, BadSetting, BadText

# Of a text that things are hidden in: more would only cost time.
MOST_CHARACTERS = 400_000
# Words of the vocabulary for each that is wanted; with fewer, words are made up.
FEWEST = 4
# Values drawn for each that is wanted, until enough have one number of tokens.
DRAWS = 200
# Tokens of a text that things can be hidden in.
LEAST_FILLER = 32
# Stands where a candidate has no further token.
NOTHING = -1
# How byte-level and SentencePiece vocabularies write the space before a word.
SPACES = ("Ġ", "▁")
CONSONANTS, VOWELS = tuple("bdfgklmnprstvz"), tuple("aeiou")


@dataclass(frozen=True)
class Item:
    """One question: a prompt, the answers to choose from, and where in the prompt the right one stands.

    `ids` int64 [T] the prompt; `candidates` int64 [n, a], all different and of up to a tokens; `right` the
    place of the true one; `gold` (first, past the last) token of it in the prompt, None where it has no single place;
    `question` the first token of the question. Prompt and answer together have T + a tokens. `relevance` [n], of a
    ranking: how relevant each candidate is; `accepted`: other answers that are right where they are written. A
    candidate that is shorter than the longest is filled up with NOTHING.
    """

    ids: np.ndarray
    candidates: np.ndarray
    right: int
    gold: tuple[int, int] | None
    question: int
    relevance: tuple[int, ...] | None = None
    accepted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert len({tuple(row) for row in self.candidates.tolist()}) == len(self.candidates), "candidates must differ"

    @property
    def answer(self) -> np.ndarray:
        """The true answer's tokens, int64 [a]."""
        answer = self.candidates[self.right]
        return answer[answer != NOTHING]


@dataclass(frozen=True)
class Cut:
    """An item whose prompt was cut to a limit: `dropped` tokens, and whether the answer's evidence was among them."""

    item: Item
    dropped: int
    lost: bool


def cut(item: Item, limit: int, begin: int) -> Cut:
    """`item` with at most `limit` tokens, answer included: the oldest after the first `begin` tokens are dropped.

    The oldest go because a reader of a text that is too long loses its beginning, and the question stands last.
    """
    drop = max(0, len(item.ids) + item.candidates.shape[1] - limit)
    if drop == 0:
        return Cut(item, 0, False)
    if drop > item.question - begin:
        raise BadSetting(
            f"The question and its answer alone need more than the {limit:,} tokens that are read at once: choose a "
            "model that reads more."
        )
    ids = np.concatenate([item.ids[:begin], item.ids[begin + drop :]])
    lost = item.gold is not None and item.gold[0] < begin + drop
    gold = None if item.gold is None or lost else (item.gold[0] - drop, item.gold[1] - drop)
    return Cut(replace(item, ids=ids, gold=gold, question=item.question - drop), drop, lost)


class Pieces:
    """Token ids of short pieces, of a text to hide them in, and of made-up values, for one tokenizer and text.

    Pieces are tokenised one by one and joined as ids, so that every position is known and a value has the same tokens
    wherever it stands. `begin`: the special token that begins a text, if there is one. Errors: BadText for a text of
    fewer than 32 tokens.
    """

    def __init__(self, tokenizer: Any, text: str) -> None:
        self.tokenizer, self.text = tokenizer, text[:MOST_CHARACTERS]
        self._known: dict[str, np.ndarray] = {}
        self.filler = self.ids(self.text)
        if len(self.filler) < LEAST_FILLER:
            raise BadText(
                f"The text has {len(self.filler)} tokens, and to hide something in it takes at least {LEAST_FILLER}: "
                "give a longer text."
            )
        begin, first = tokenizer.bos_token_id, tokenizer("a")["input_ids"][:1]
        self.begin = np.array([begin] if begin is not None and first == [begin] else [], dtype=np.int64)

    def ids(self, piece: str) -> np.ndarray:
        """Token ids of a piece of text, int64 [n], without special tokens."""
        if piece not in self._known:
            coded = self.tokenizer(piece, add_special_tokens=False, verbose=False)["input_ids"]
            self._known[piece] = np.array(coded, dtype=np.int64)
        return self._known[piece]

    def hay(self, tokens: int, random: np.random.Generator) -> np.ndarray:
        """`tokens` tokens of the text from a random place on, int64 [tokens]; a text that ends begins again."""
        return np.resize(np.roll(self.filler, -int(random.integers(len(self.filler)))), tokens)

    @cached_property
    def words(self) -> list[np.ndarray]:
        """Lower-case words of the vocabulary that are one token with the space before them and not in the text."""
        plain = re.compile(r"[a-z]{4,12}")
        words = {}
        for token in self.tokenizer.get_vocab():
            # With the mark of the space before it.
            word = token[1:] if token[:1] in SPACES else ""
            if plain.fullmatch(word) and word not in self.text and len(self.ids(f" {word}")) == 1:
                words[word] = self.ids(f" {word}")
        return [words[word] for word in sorted(words)]

    def values(self, kind: str, count: int, random: np.random.Generator) -> list[np.ndarray]:
        """`count` different values, each with a space before it, all with the same number of tokens, none of them in
        the text. `uuid`: random identifiers; `word`: words of the vocabulary, or made-up ones where it has too few.
        Errors: BadModel where the tokenizer cannot tell so many apart."""
        if kind == "word" and len(self.words) >= FEWEST * count:
            return [self.words[i] for i in random.permutation(len(self.words))[:count]]
        pools: dict[int, dict[tuple, np.ndarray]] = {}
        for _ in range(DRAWS * count + 1000):
            if kind == "uuid":
                word = str(uuid.UUID(bytes=random.bytes(16), version=4))
            else:
                word = "".join(str(random.choice(part)) for _ in range(3) for part in (CONSONANTS, VOWELS))
            if word in self.text:
                continue
            coded = self.tokenizer(f" {word}", add_special_tokens=False, verbose=False)["input_ids"]
            pool = pools.setdefault(len(coded), {})
            pool[tuple(coded)] = np.array(coded, dtype=np.int64)
            if len(pool) == count:
                return list(pool.values())
        raise BadModel(
            f"This model's tokenizer does not tell {count:,} made-up words apart, so nothing can be asked with them: "
            "choose another model."
        )

    def show(self, ids: np.ndarray) -> str:
        """The text of some tokens, spaces squeezed."""
        return re.sub(r"\s+", " ", self.tokenizer.decode(ids[ids != NOTHING])).strip()
