"""Questions of an exact length from texts that people wrote: labelled examples, questions with passages, rankings, and
questions over one long text. Each function makes an Item of one of the records that `probes.sets` reads."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from ..errors import BadSetting
from .pieces import NOTHING, Item, Pieces
from .prompts import LINE, Ask, Parts, Task, blocks_of, enough, room
from .sets import SETS, Documents, Labelled, LongText, Passage, Ranked, WithPassages, read_set
from .written import stands

SOURCE = " from source"
# Tokens that a passage has at least, so that no more are looked at than a prompt holds.
SHORTEST = 8


def labelled(pieces: Pieces, ask: Ask, random: np.random.Generator, texts: Documents[Labelled]) -> Item:
    """As many labelled examples as fit, every label as often as the others, then a text whose label is asked for.
    Made-up words stand for the labels, to be learned from the examples alone (HELMET has numbers for them)."""
    asked = texts.asked[int(random.integers(len(texts.asked)))]
    by_label: dict[str, list[str]] = {}
    for example in texts.examples:
        if example.text != asked.text:
            by_label.setdefault(example.label, []).append(example.text)
    names = sorted(by_label)
    if asked.label not in by_label or len(names) < ask.choices:
        raise BadSetting(
            f"{texts.title} has examples of {len(names):,} labels, and {ask.choices:,} with that of every question are "
            "needed: ask for fewer candidates, or give more examples."
        )
    wrong = [name for name in random.permutation(names).tolist() if name != asked.label]
    # The candidates' labels first: with few examples the others have none.
    order = [asked.label, *wrong]
    marks = dict(zip(order, pieces.values("word", len(order), random), strict=True))
    line, says = pieces.ids(LINE), pieces.ids(LINE + "label:")
    question = [line, pieces.ids(asked.text), says]
    left = room(pieces, ask, question, len(marks[asked.label]))
    rounds = [random.permutation(by_label[name]).tolist() for name in order]
    every = (
        [line, pieces.ids(listed[number]), says, marks[name], line]
        for number in range(max(map(len, rounds)))
        for name, listed in zip(order, rounds, strict=True)
        if number < len(listed)
    )
    blocks = _fitting(every, left)
    enough(texts.title, ask, len(blocks), ask.choices, sum(map(len, blocks[0])), "examples")
    mixed = [blocks[place] for place in random.permutation(len(blocks))]
    candidates = _shuffled([marks[name] for name in order[: ask.choices]], random)
    return replace(blocks_of(pieces, ask, random, mixed, (0, 3), question, candidates), gold=None)


def with_passages(pieces: Pieces, ask: Ask, random: np.random.Generator, texts: Documents[WithPassages]) -> Item:
    """One passage that holds the answer at the asked depth among passages that do not, those of the same question
    first; the candidates are answers of other questions."""
    return _with_passages(pieces, ask, random, texts, cited=False)


def cited(pieces: Pieces, ask: Ask, random: np.random.Generator, texts: Documents[WithPassages]) -> Item:
    """As `with_passages`, every passage with a mark, and the answer with the mark of its passage is asked for. Of the
    wrong candidates a third has the right answer with another mark, a third another answer with the right mark."""
    return _with_passages(pieces, ask, random, texts, cited=True)


def _with_passages(
    pieces: Pieces, ask: Ask, random: np.random.Generator, texts: Documents[WithPassages], cited: bool
) -> Item:
    asked = texts.asked[int(random.integers(len(texts.asked)))]
    wrong = _other_answers(asked.answers, texts.asked, ask.choices - 1, random, texts.title)
    gold = next(passage for passage in asked.passages if asked.holds(passage))
    line, source = pieces.ids(LINE), pieces.ids(SOURCE)
    # The first passage holds the answer.
    passages = [gold, *islice(_distractors(asked, texts.asked, random), ask.length // SHORTEST)]
    marks = pieces.values("word", len(passages), random) if cited else [line[:0]] * len(passages)
    answers = [pieces.ids(f" {answer}") for answer in (asked.answers[0], *wrong)]
    if cited:
        enough(texts.title, ask, len(passages), ask.choices, SHORTEST, "passages")
        for number in range(1, ask.choices):
            answer = answers[0 if number % 3 == 1 else number]
            mark = marks[0 if number % 3 == 2 else number]
            answers[number] = np.concatenate([answer, source, mark])
        answers[0] = np.concatenate([answers[0], source, marks[0]])
    question = [line, pieces.ids(f"Question: {asked.question}"), line, pieces.ids("Answer:")]
    candidates = _shuffled(answers, random)
    blocks = (_block(pieces, passage, mark) for passage, mark in zip(passages, marks, strict=True))
    chosen = _fitting(blocks, room(pieces, ask, question, len(candidates[0][0])))
    size = len(pieces.ids(gold.text))
    enough(texts.title, ask, len(chosen), ask.choices if cited else 1, size, "passages")
    target = round(ask.fraction * (len(chosen) - 1))
    chosen = [*chosen[1 : target + 1], chosen[0], *chosen[target + 1 :]]
    item = blocks_of(pieces, ask, random, chosen, (target, 3), question, candidates)
    return item if cited else replace(item, accepted=asked.answers)


def ranked(pieces: Pieces, ask: Ask, random: np.random.Generator, texts: Documents[Ranked]) -> Item:
    """Marked passages of one query, the most relevant at the asked depth; its mark is asked for, and the candidates are
    marks of less relevant ones."""
    asked = texts.asked[int(random.integers(len(texts.asked)))]
    best, *less = sorted(asked.passages, key=lambda passage: -passage.relevance)
    less = [passage for passage in less if passage.relevance < best.relevance]
    if len(less) < ask.choices - 1:
        raise BadSetting(
            f"A query of {texts.title} has {len(less):,} passages less relevant than its best and {ask.choices - 1:,} "
            "are needed: ask for fewer candidates."
        )
    passages = [best, *less[: ask.length // SHORTEST]]
    marks, line = pieces.values("word", len(passages), random), pieces.ids(LINE)
    leads = pieces.ids("Passages, the most relevant first:")
    question = [line, pieces.ids(f"Query: {asked.query}"), line, leads]
    blocks = (_block(pieces, passage, mark) for passage, mark in zip(passages, marks, strict=True))
    chosen = _fitting(blocks, room(pieces, ask, question, len(marks[0])))
    enough(texts.title, ask, len(chosen), ask.choices, len(pieces.ids(best.text)), "passages")
    target = round(ask.fraction * (len(chosen) - 1))
    mixed = [chosen[1 + place] for place in random.permutation(len(chosen) - 1)]
    mixed.insert(target, chosen[0])
    order = random.permutation(ask.choices)
    candidates = ([marks[place] for place in order], int(np.flatnonzero(order == 0)[0]))
    relevance = tuple(passages[place].relevance for place in order)
    return replace(blocks_of(pieces, ask, random, mixed, (target, 1), question, candidates), relevance=relevance)


def long_text(pieces: Pieces, ask: Ask, random: np.random.Generator, texts: Documents[LongText]) -> Item:
    """One whole text and a question about it; the candidates are answers of other questions. Only texts that fit the
    length are asked about."""
    line = pieces.ids(LINE)
    sizes = []
    for number in random.permutation(len(texts.asked)):
        asked = texts.asked[number]
        wrong = _other_answers(asked.answers, texts.asked, ask.choices - 1, random, texts.title)
        candidates = _shuffled([pieces.ids(f" {answer}") for answer in (asked.answers[0], *wrong)], random)
        question = [line, pieces.ids(f"Question: {asked.question}"), line, pieces.ids("Answer:")]
        blocks = [[line, pieces.ids(asked.text), line]]
        left, size = room(pieces, ask, question, len(candidates[0][0])), sum(map(len, blocks[0]))
        if size <= left:
            item = blocks_of(pieces, ask, random, blocks, (0, 1), question, candidates)
            return replace(item, gold=None, accepted=asked.answers)
        sizes.append(size)
    raise BadSetting(
        f"{ask.length:,} tokens hold no text of {texts.title}, of which the shortest has {min(sizes):,}: choose a "
        "greater length."
    )


def _block(pieces: Pieces, passage: Passage, mark: np.ndarray) -> Parts:
    """A passage as it stands in a prompt: its mark is part 1, its text part 3."""
    line = pieces.ids(LINE)
    return [np.concatenate([line, pieces.ids("Passage")]), mark, pieces.ids(": "), pieces.ids(passage.text), line]


def _fitting(blocks: Iterable[Parts], left: int) -> list[Parts]:
    """The blocks that fit into `left` tokens, up to the first that does not."""
    chosen: list[Parts] = []
    for block in blocks:
        left -= sum(map(len, block))
        if left < 0:
            break
        chosen.append(block)
    return chosen


def _distractors(asked: WithPassages, every: Sequence[WithPassages], random: np.random.Generator) -> Iterator[Passage]:
    """Passages that do not hold the answer: the question's own in their order, then those of other questions."""
    yield from (passage for passage in asked.passages if not asked.holds(passage))
    for place in random.permutation(len(every)):
        if every[place] is not asked:
            yield from (passage for passage in every[place].passages if not asked.holds(passage))


def _other_answers(
    right: Sequence[str], every: Sequence[WithPassages | LongText], count: int, random: np.random.Generator, title: str
) -> list[str]:
    """Answers of other questions, none of which is one of the right ones or holds one. Errors: BadSetting."""
    wrong: list[str] = []
    for place in random.permutation(len(every)):
        answer = every[place].answers[0]
        if not any(stands(one, answer) or stands(answer, one) for one in (*right, *wrong)):
            wrong.append(answer)
        if len(wrong) == count:
            return wrong
    raise BadSetting(
        f"{title} has {len(wrong) + 1:,} different answers and {count + 1:,} candidates were asked for: ask for "
        "fewer, or give more questions."
    )


def _shuffled(answers: Parts, random: np.random.Generator) -> tuple[Parts, int]:
    """(candidates in random order, int64 [n, longest], the shorter ones filled up with NOTHING; the first one's
    place)."""
    rows = np.full((len(answers), max(map(len, answers))), NOTHING, np.int64)
    order = random.permutation(len(answers))
    for row, place in zip(rows, order, strict=True):
        row[: len(answers[place])] = answers[place]
    return list(rows), int(np.flatnonzero(order == 0)[0])


# Kind of a set's records -> what makes a question of them.
MAKE: dict[str, Callable[..., Item]] = {
    "labelled": labelled,
    "with_passages": with_passages,
    "cited": cited,
    "ranked": ranked,
    "long_text": long_text,
}


def task(name: str, folder: Path | None = None) -> Task:
    """The set `name` as a task; its files are read now. Errors: BadSetting."""
    about, texts = SETS[name], read_set(name, folder)
    make = partial(MAKE[about.kind], texts=texts)
    return Task(about.title, f"Texts of {about.title}, from local files.", about.axis, about.family, make)
