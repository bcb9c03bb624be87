"""The six tasks: each makes one question of an exact length from a seed (the tasks of Focal Attention's long-context
evaluation, section 4.3 and appendix D, in a form that a small model can be asked); and where things stand in it."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from ..errors import BadSetting
from .pieces import Item, Pieces

LINE = "\n"
# Tokens of a passage, and of its end that the question quotes.
PASSAGE, QUOTE = 40, 12
# Times as often as any other word comes the most frequent one.
OFTEN = 2
# Other words for each candidate.
RARER = 2
# Words that belong to a label, and how many of them an example shows.
POOL, SHOWN = 4, 2

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
    `examples` or nothing."""

    title: str
    about: str
    axis: str | None
    make: Callable[[Pieces, Ask, np.random.Generator], Item]


def uuid_needle(pieces: Pieces, ask: Ask, random: np.random.Generator) -> Item:
    """One identifier stands in the text; the candidates are others that do not."""
    values = pieces.values("uuid", ask.choices, random)
    named = pieces.ids("The code of the lamp is")
    right = int(random.integers(ask.choices))
    needle = [pieces.ids(LINE), named, values[right], pieces.ids("."), pieces.ids(LINE)]
    return hidden(pieces, ask, random, [needle], 0, [pieces.ids(LINE), named], (values, right))


def several_needles(pieces: Pieces, ask: Ask, random: np.random.Generator) -> Item:
    """Several codes stand in the text, each of another name; one is asked for, the candidates are all of them."""
    # In one draw, so that no code is another's name.
    drawn = pieces.values("word", 2 * ask.choices, random)
    names, values = drawn[: ask.choices], drawn[ask.choices :]
    right = int(random.integers(ask.choices))
    code, says = pieces.ids("The code of"), pieces.ids(" is")
    needles = [
        [pieces.ids(LINE), code, name, says, value, pieces.ids("."), pieces.ids(LINE)]
        for name, value in zip(names, values, strict=True)
    ]
    question = [pieces.ids(LINE), code, names[right], says]
    return hidden(pieces, ask, random, needles, right, question, (values, right))


def json_pairs(pieces: Pieces, ask: Ask, random: np.random.Generator) -> Item:
    """A list of JSON pairs of random keys and values fills the text; the value of one key is asked for."""
    opening, middle, ending = (pieces.ids(part) for part in (' {"', '": "', '"},'))
    key, value = (pieces.values("uuid", 1, random)[0] for _ in range(2))
    around = len(opening) + len(middle) + len(ending)
    question = [pieces.ids(LINE), opening, key, middle]

    def fits(size: int) -> int:
        return room(pieces, ask, question, size) // (around + 2 * size)

    values = pieces.values("uuid", 2 * max(fits(min(len(key), len(value))), ask.choices), random)
    size = len(values[0])
    question[2] = values[0]
    count = min(fits(size), len(values) // 2)
    enough("json", ask, count, ask.choices, around + 2 * size, "pairs")
    target = round(ask.fraction * (count - 1))
    keys, hidden_values = values[:count], values[count : 2 * count]
    # The first key drawn is the one that is asked for.
    keys[0], keys[target] = keys[target], keys[0]
    blocks = [[opening, keys[i], middle, hidden_values[i], ending] for i in range(count)]
    candidates = others(hidden_values, target, ask.choices, random)
    return blocks_of(pieces, ask, random, blocks, (target, 3), question, candidates)


def passages(pieces: Pieces, ask: Ask, random: np.random.Generator) -> Item:
    """Passages of one text, each with a mark behind it; the end of one is quoted, and its mark asked for."""
    passage_total = len(pieces.filler) // PASSAGE
    if passage_total < 2:
        raise BadSetting(
            f"The text gives {passage_total} passages of {PASSAGE} tokens and one has to be told from another: "
            "give more."
        )
    first = int(random.integers(len(pieces.filler) - passage_total * PASSAGE + 1))
    pool = pieces.filler[first : first + passage_total * PASSAGE].reshape(passage_total, PASSAGE)
    pool = pool[random.permutation(passage_total)]
    mark = pieces.ids(" Mark:")
    question = [pieces.ids(LINE), pool[0][-QUOTE:], mark]

    def fits(size: int) -> int:
        return room(pieces, ask, question, size) // (2 * len(pieces.ids(LINE)) + PASSAGE + len(mark) + size)

    marks = pieces.values("word", max(fits(1), ask.choices), random)
    count = fits(len(marks[0]))
    enough("passages", ask, count, ask.choices, PASSAGE + len(mark) + len(marks[0]) + 2, "passages")
    target, line = round(ask.fraction * (count - 1)), pieces.ids(LINE)
    # A short text gives its other passages again.
    other_passages = pool[1 + np.arange(count) % (passage_total - 1)]
    blocks = [[line, pool[0] if i == target else other_passages[i], mark, marks[i], line] for i in range(count)]
    chosen = others(marks[:count], target, ask.choices, random)
    return blocks_of(pieces, ask, random, blocks, (target, 3), question, chosen, padding=other_passages[0])


def frequent_words(pieces: Pieces, ask: Ask, random: np.random.Generator) -> Item:
    """Made-up words in random order, one of them twice as often as any other: which one?"""
    words = pieces.values("word", RARER * ask.choices, random)
    question = [pieces.ids(LINE), pieces.ids("The word that comes most often is")]
    size = len(words[0])
    times = room(pieces, ask, question, size) // size // (len(words) - 1 + OFTEN)
    enough("frequent words", ask, times, 1, size * (len(words) - 1 + OFTEN), "times every word")
    right = int(random.integers(ask.choices))
    counts = [times * (OFTEN if i == right else 1) for i in range(len(words))]
    listed = random.permutation(np.repeat(np.arange(len(words)), counts))
    blocks = [[words[i]] for i in listed]
    item = blocks_of(pieces, ask, random, blocks, (0, 0), question, (words[: ask.choices], right))
    return Item(item.ids, item.candidates, item.right, None, item.question)


def labels(pieces: Pieces, ask: Ask, random: np.random.Generator) -> Item:
    """Examples of labelled words spread over the text; then words of one label, whose name is asked for."""
    if ask.shown < ask.choices:
        raise BadSetting(f"{ask.shown} examples cannot show {ask.choices} labels: ask for at least as many of them.")
    # In one draw, so that no label is also a word.
    drawn = pieces.values("word", (1 + POOL) * ask.choices, random)
    named, words = drawn[: ask.choices], drawn[ask.choices :]
    arrow, line = pieces.ids(" ="), pieces.ids(LINE)

    def sampled(label: int) -> list[np.ndarray]:
        return [words[POOL * label + i] for i in random.permutation(POOL)[:SHOWN]]

    order = random.permutation(np.arange(ask.shown) % ask.choices)
    blocks = [[line, *sampled(label), arrow, named[label], line] for label in order]
    right = int(random.integers(ask.choices))
    question = [line, *sampled(right), arrow]
    size = sum(map(len, blocks[0]))
    left = room(pieces, ask, question, len(named[0]))
    enough("labels", ask, left // size, ask.shown, size, "examples")
    hay = pieces.hay(left - size * ask.shown, random)
    places = [round((i + 0.5) / ask.shown * len(hay)) for i in range(ask.shown)]
    parts, position = [pieces.begin], 0
    for place, block in zip(places, blocks, strict=True):
        parts += [hay[position:place], *block]
        position = place
    ids = np.concatenate([*parts, hay[position:]])
    return Item(np.concatenate([ids, *question]), np.stack(named), right, None, len(ids))


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
) -> Item:
    """Needles in the text, number `target` at the asked depth and the others anywhere; the third last part of each is
    its value. `candidates`: answers, and which of them is right. Errors: BadSetting where they do not fit."""
    values, right = candidates
    left = room(pieces, ask, question, len(values[0]))
    needle_tokens = sum(map(len, chain(*needles)))
    hay = pieces.hay(max(0, left - needle_tokens), random)
    enough("needles", ask, left, needle_tokens + 1, 1, "tokens of text")
    places = random.integers(0, len(hay) + 1, len(needles))
    places[target] = round(ask.fraction * len(hay))
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


MAKE = (uuid_needle, several_needles, json_pairs, passages, frequent_words, labels)
with open(Path(__file__).with_name("tasks.csv"), encoding="utf-8", newline="") as _file:
    TASKS = {
        row["name"]: Task(row["title"], row["about"], row["axis"] or None, make)
        for row, make in zip(csv.DictReader(_file), MAKE, strict=True)
    }
