"""How a question of an exact length is put together: what is asked for, and where things stand in the prompt."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ..errors import BadSetting
from .pieces import Item, Pieces

LINE = "\n"
Parts = list[np.ndarray]  # token ids int64 [n] each


@dataclass(frozen=True)
class Ask:
    """What is asked for: `length` tokens with the answer, the answer's place `depth` (0 the beginning, 1 right before
    the question), `choices` candidates, and `examples` where a task has them."""

    length: int
    choices: int
    depth: float | None = None
    examples: int | None = None

    @property
    def fraction(self) -> float:
        """The depth, of a task that has one."""
        assert self.depth is not None, "this task hides something at a depth"
        return self.depth

    @property
    def shown(self) -> int:
        """The number of examples, of a task that has them."""
        assert self.examples is not None, "this task shows examples"
        return self.examples


@dataclass(frozen=True)
class Task:
    """A task: `make(pieces, ask, random)` gives an Item; `axis` is what its map has beside the length: `depth`,
    `examples` or nothing; `family`: the task family of HELMET that it belongs to (Focal Attention, section 3.5.2)."""

    title: str
    about: str
    axis: str | None
    family: str
    make: Callable[[Pieces, Ask, np.random.Generator], Item]


def room(pieces: Pieces, ask: Ask, question: list[np.ndarray], answer: int) -> int:
    """Tokens that are left for the text before the question."""
    return ask.length - len(pieces.begin) - sum(map(len, question)) - answer


def enough(name: str, ask: Ask, have: int, need: int, size: int, parts: str) -> None:
    """Refuse a length that holds fewer of the parts than a question needs. Errors: BadSetting."""
    if have < need:
        lacking = f"{ask.length:,} tokens hold {max(have, 0):,} {parts} and {need:,} are needed"
        raise BadSetting(f"{lacking} ({name}, {size:,} tokens each): choose a greater length.")


def hidden(
    pieces: Pieces,
    ask: Ask,
    random: np.random.Generator,
    needles: list[Parts],
    target: int,
    question: Parts,
    candidates: tuple[Parts, int],
    earlier: Sequence[tuple[int, int]] = (),
) -> Item:
    """Needles in the text, number `target` at the asked depth and the others anywhere; the third last part of each is
    its value. `candidates`: answers, and which of them is right. `earlier`: pairs of needles of which the first stands
    before the second. Errors: BadSetting where they do not fit."""
    values, right = candidates
    left = room(pieces, ask, question, len(values[0]))
    needle_tokens = sum(map(len, chain(*needles)))
    hay = pieces.hay(max(0, left - needle_tokens), random)
    enough("needles", ask, left, needle_tokens + 1, 1, "tokens of text")
    places = random.integers(0, len(hay) + 1, len(needles))
    places[target] = round(ask.fraction * len(hay))
    for before, after in earlier:
        places[before] = random.integers(places[after] + 1)
    order = sorted(range(len(needles)), key=lambda i: (places[i], (i == target) * (ask.fraction > 0.5)))
    parts, used, gold = [pieces.begin], 0, None
    for i in order:
        parts.append(hay[used : places[i]])
        used = places[i]
        if i == target:
            start = sum(map(len, parts)) + sum(map(len, needles[i][:-3]))
            gold = (start, start + len(needles[i][-3]))
        parts += needles[i]
    ids = np.concatenate([*parts, hay[used:]])
    return Item(np.concatenate([ids, *question]), np.stack(values), right, gold, len(ids))


def blocks_of(
    pieces: Pieces,
    ask: Ask,
    random: np.random.Generator,
    blocks: list[Parts],
    evidence: tuple[int, int],
    question: Parts,
    candidates: tuple[Parts, int],
    padding: np.ndarray | None = None,
) -> Item:
    """Blocks in a row, in front of them what is left of the length (tokens of the text, or of `padding`). `evidence`:
    (block, part of it) where the answer stands."""
    block, part = evidence
    values, right = candidates
    front_tokens = room(pieces, ask, question, len(values[0])) - sum(map(len, chain(*blocks)))
    front = pieces.hay(front_tokens, random) if padding is None else np.resize(padding, front_tokens)
    start = sum(map(len, [pieces.begin, front, *chain(*blocks[:block]), *blocks[block][:part]]))
    ids = np.concatenate([pieces.begin, front, *chain(*blocks)])
    gold = (start, start + len(blocks[block][part]))
    return Item(np.concatenate([ids, *question]), np.stack(values), right, gold, len(ids))


def others(values: Parts, target: int, choices: int, random: np.random.Generator) -> tuple[Parts, int]:
    """(`choices` of the values in random order, the place of value `target` among them)."""
    drawn = [i for i in random.permutation(len(values)).tolist() if i != target][: choices - 1]
    right = int(random.integers(choices))
    drawn.insert(right, target)
    return [values[i] for i in drawn], right
