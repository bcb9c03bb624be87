"""The tasks: each makes one question of an exact length from a seed (the families of Focal Attention's long-context
evaluation, section 3.5.2 and appendices C and D, in a form that a small model can be asked)."""

import csv
from pathlib import Path

import numpy as np

from ..errors import BadSetting
from .families import citations, long_questions, reranking
from .pieces import Item, Pieces
from .prompts import LINE, Ask, Task, blocks_of, enough, hidden, others, room

# Tokens of a passage, and of its end that the question quotes.
PASSAGE, QUOTE = 40, 12
# Times as often as any other word comes the most frequent one.
OFTEN = 2
# Other words for each candidate.
RARER = 2
# Words that belong to a label, and how many of them an example shows.
POOL, SHOWN = 4, 2


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


MAKE = (
    uuid_needle,
    several_needles,
    json_pairs,
    passages,
    frequent_words,
    labels,
    reranking,
    long_questions,
    citations,
)
with open(Path(__file__).with_name("tasks.csv"), encoding="utf-8", newline="") as _file:
    TASKS = {
        row["name"]: Task(row["title"], row["about"], row["axis"] or None, row["family"], make)
        for row, make in zip(csv.DictReader(_file), MAKE, strict=True)
    }
