"""Where things stand in a prompt: needles in a text at a depth, blocks in a row, and whether they fit its length."""

from dataclasses import dataclass

import numpy as np

from analysis.errors import BadSetting
from analysis.probes.pieces import Item, Pieces

Parts = list[np.ndarray]  # token ids int64 [n] each


@dataclass(frozen=True)
class Ask:
    """What is asked for: `length` tokens with the answer, the answer's place `depth` (0 the beginning, 1 right before
    the question), `choices` candidates, and `examples` where a task has them."""

    length: int
    choices: int
    depth: float | None = None
    examples: int | None = None


def room(pieces: Pieces, ask: Ask, question: list[np.ndarray], answer: int) -> int:
    """Tokens that are left for the text before the question."""
    return ask.length - len(pieces.begin) - sum(map(len, question)) - answer


def enough(name: str, ask: Ask, have: int, need: int, each: int, what: str) -> None:
    """Refuse a length that holds fewer of the parts than a question needs. Errors: BadSetting."""
    if have < need:
        lacking = f"{ask.length:,} tokens hold {max(have, 0):,} {what} and {need:,} are needed"
        raise BadSetting(f"{lacking} ({name}, {each:,} tokens each): choose a greater length.")


def hidden(
    pieces: Pieces,
    ask: Ask,
    random: np.random.Generator,
    needles: list[Parts],
    at: int,
    question: Parts,
    candidates: tuple[Parts, int],
) -> Item:
    """Needles in the text, number `at` at the asked depth and the others anywhere; the third last part of each is its
    value. `candidates`: answers, and which of them is right. Errors: BadSetting where they do not fit."""
    values, right = candidates
    left = room(pieces, ask, question, len(values[0]))
    hay = pieces.hay(max(0, left - sum(len(part) for needle in needles for part in needle)), random)
    enough("needles", ask, left, sum(len(part) for needle in needles for part in needle) + 1, 1, "tokens of text")
    places = random.integers(0, len(hay) + 1, len(needles))
    places[at] = round(ask.depth * len(hay))
    order = sorted(range(len(needles)), key=lambda i: (places[i], (i == at) * (ask.depth > 0.5)))
    parts, used, gold = [pieces.begin], 0, None
    for i in order:
        parts.append(hay[used : places[i]])
        used = places[i]
        if i == at:
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
    at, part = evidence
    values, right = candidates
    body = sum(len(piece) for block in blocks for piece in block)
    rest = room(pieces, ask, question, len(values[0])) - body
    front = pieces.hay(rest, random) if padding is None else np.resize(padding, rest)
    before = [pieces.begin, front, *(piece for block in blocks[:at] for piece in block), *blocks[at][:part]]
    start = sum(map(len, before))
    ids = np.concatenate([pieces.begin, front, *(piece for block in blocks for piece in block)])
    gold = (start, start + len(blocks[at][part]))
    return Item(np.concatenate([ids, *question]), np.stack(values), right, gold, len(ids))


def others(values: Parts, at: int, choices: int, random: np.random.Generator) -> tuple[Parts, int]:
    """(`choices` of the values in random order, the place of value `at` among them)."""
    drawn = [i for i in random.permutation(len(values)).tolist() if i != at][: choices - 1]
    right = int(random.integers(choices))
    drawn.insert(right, at)
    return [values[i] for i in drawn], right
