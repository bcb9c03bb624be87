"""Rows, sentences and shown prompts of the long-context probes, from which of its items a method answered rightly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pandas import DataFrame

from ...answer import doc, frame, record
from ...claims import Claim, Comparison
from ...methods.base import Method
from ...metrics.intervals import Interval
from ...metrics.proportions import share, share_difference
from ...probes.pieces import Cut, Pieces
from ...probes.prompts import Ask
from ...probes.scoring import KNOWN
from ...probes.sets import SETS
from ...probes.tasks import TASKS
from ..ready.candidates import Candidate

# Tokens shown before and behind the evidence.
AROUND = 32
AXES = ("length", "depth", "examples")
# Name of a task or of a set of texts -> its title.
TITLES = {name: task.title for name, task in TASKS.items()} | {name: texts.title for name, texts in SETS.items()}


@dataclass(frozen=True)
class Way:
    """A method and the `turn` at which it sees the question (`probes.scoring.TURNS`)."""

    name: str
    label: str
    method: Method
    turn: str = KNOWN


def ways(methods: Sequence[Candidate], turns: Sequence[str]) -> list[Way]:
    """Each method, once for every turn where it decides at the end of a prompt."""
    listed: list[Way] = []
    for candidate in methods:
        if candidate.method.saves == "reads":
            listed.append(Way(candidate.name, candidate.label, candidate.method))
        else:
            listed += [Way(candidate.name, f"{candidate.label}, {turn}", candidate.method, turn) for turn in turns]
    return listed


@dataclass(frozen=True)
class Cell:
    """One cell of a map: what was asked, its items as they were read, and, [methods, items], whether the answer was
    right (by gain, by plain log-probability), its margin in nats, and where it was written too the score of that.
    Method 0 is dense."""

    probe: str
    ask: Ask
    items: list[Cut]
    right: np.ndarray
    plain: np.ndarray
    margin: np.ndarray
    written: np.ndarray | None = None

    @classmethod
    def of(cls, probe: str, ask: Ask, items: list[Cut], methods: int, write: bool) -> Self:
        """A cell whose questions have not been asked yet."""
        right, plain, margins, written = np.zeros((4, methods, len(items)))
        return cls(probe, ask, items, right, plain, margins, written if write else None)


@record
class ProbeRow:
    """What one method answers in one cell, or in several of one task."""

    probe: str = doc("name of the task")
    method: str = doc("label of the method")
    name: str = doc("its name")
    length: int | None = doc("tokens of the prompt with its answer")
    depth: float | None = doc("place of the evidence, 0 the beginning, 1 right before the question")
    examples: int | None = doc("examples in the prompt")
    score: float | None = doc("share of right answers, each candidate's log-probability against what it has alone")
    low: float | None = doc("its 95% Wilson interval")
    high: float | None
    chance: float = doc("share that guessing answers rightly")
    n: int = doc("questions")
    plain: float = doc("share of right answers without that correction")
    margin: float = doc("nats by which the right answer is likelier than the next, mean")
    truncated: int = doc("prompts whose beginning was cut off")
    lost: int = doc("those of them that lost their evidence")
    difference: float | None = doc("score minus that of dense on the same questions; None for dense itself")
    difference_low: float | None = doc("its 95% interval (Bonett and Price)")
    difference_high: float | None
    written: float | None = doc(
        "share of written answers that hold the right one, of a ranking its NDCG@10; None where none was written",
        default=None,
    )
    written_low: float | None = doc("its 95% Wilson interval", default=None)
    written_high: float | None = doc("", default=None)
    written_difference: float | None = doc("written minus that of dense on the same questions", default=None)
    written_difference_low: float | None = doc("its 95% interval (Bonett and Price)", default=None)
    written_difference_high: float | None = doc("", default=None)


@record
class Truncated:
    """How many prompts were longer than can be read at once."""

    prompts: int = doc("prompts that were cut")
    of: int = doc("all prompts")
    lost: int = doc("those whose evidence was cut off")


@record
class ShownPrompt:
    """The prompt of one task in parts; a task without one place shows its beginning and its end."""

    probe: str
    length: int
    at: int | None = doc("first token of the evidence")
    before: str
    evidence: str
    after: str
    question: str
    answer: str
    others: str = doc("the other candidates")


def rows_by(cells: Sequence[Cell], methods: Sequence[Way], *axes: str) -> list[ProbeRow]:
    """One row per task, method and value of `axes` (some of AXES), over all cells of these."""
    groups: dict[tuple, list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.probe, *(getattr(cell.ask, axis) for axis in axes)), []).append(cell)
    rows: list[ProbeRow] = []
    for (probe, *values), members in groups.items():
        place = dict.fromkeys(AXES) | dict(zip(axes, values, strict=True))
        right, plain, margins = (
            np.concatenate([getattr(cell, name) for cell in members], 1) for name in ("right", "plain", "margin")
        )  # [methods, items]
        cuts = truncated(members)
        for index, method in enumerate(methods):
            score = share(right[index])
            difference = share_difference(right[index], right[0]) if index else Interval(None, None, None, 0)
            rows.append(
                ProbeRow(
                    probe=probe,
                    method=method.label,
                    name=method.name,
                    **place,
                    score=score.mean,
                    low=score.low,
                    high=score.high,
                    chance=1 / members[0].ask.choices,
                    n=cuts.of,
                    plain=float(plain[index].mean()),
                    margin=float(margins[index].mean()),
                    truncated=cuts.prompts,
                    lost=cuts.lost,
                    difference=difference.mean,
                    difference_low=difference.low,
                    difference_high=difference.high,
                    **_written(members, index),
                )
            )
    return rows


def _written(cells: Sequence[Cell], method: int) -> dict[str, Any]:
    """What a method wrote in these cells, as fields of a row; nothing where it was not asked to."""
    scores = [cell.written for cell in cells if cell.written is not None]
    if not scores:
        return {}
    written = np.concatenate(scores, 1)  # [methods, items]
    estimates = {"written": share(written[method])}
    if method:
        estimates["written_difference"] = share_difference(written[method], written[0])
    fields: dict[str, Any] = {}
    for name, estimate in estimates.items():
        fields |= {name: estimate.mean, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return fields


def table_by(cells: Sequence[Cell], methods: Sequence[Way], *axes: str) -> DataFrame:
    """The same rows as a table without the axes over which they are pooled."""
    return frame(ProbeRow, rows_by(cells, methods, *axes)).drop(columns=[axis for axis in AXES if axis not in axes])


def truncated(cells: Sequence[Cell]) -> Truncated:
    """How many prompts of all cells were cut."""
    cuts = [item for cell in cells for item in cell.items]
    return Truncated(sum(item.dropped > 0 for item in cuts), len(cuts), sum(item.lost for item in cuts))


def _of_probe(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    by_probe: dict[str, list[Cell]] = {}
    for cell in cells:
        by_probe.setdefault(cell.probe, []).append(cell)
    return by_probe


def sentences(cells: Sequence[Cell], methods: Sequence[Way]) -> tuple[list[str], dict[str, bool]]:
    """What the probes say, one sentence per task and method, and for each task whether dense is above chance."""
    lines: list[str] = []
    able: dict[str, bool] = {}
    for probe, cells_of_task in _of_probe(cells).items():
        dense, *others = rows_by(cells_of_task, methods)
        able[probe] = (dense.low or 0) > dense.chance
        title = TITLES[probe]
        if dense.written is not None:
            ranking = cells_of_task[0].items[0].item.relevance is not None
            counted = "NDCG@10 {:.0%}" if ranking else "{:.0%} hold the right one"
            interval = f"95% interval {dense.written_low:.0%} to {dense.written_high:.0%}, n = {dense.n:,}"
            lines.append(f"{title}, answers that dense attention writes: {counted.format(dense.written)} ({interval}).")
            for row in others:
                columns = vars(row), "written_difference"
                against = Comparison.of(*columns, unit="points", versus="dense attention", units=row.n)
                label = f"{title}, answers that {row.method} writes, {counted.format(row.written)}"
                lines.append(Claim(against, label, "worse", "better").text() + ".")
        interval = f"95% interval {dense.low:.0%} to {dense.high:.0%}, n = {dense.n:,}"
        result = f"{dense.score:.0%} right ({interval}), chance {dense.chance:.0%}"
        if not able[probe]:
            lines.append(
                f"{title}: this model cannot do the task. Dense attention is at chance ({result}), so what another "
                "method scores says nothing about reading less."
            )
            continue
        lines.append(f"{title}: dense attention gets {result}.")
        for row in others:
            against = Comparison.of(vars(row), "difference", unit="points", versus="dense attention", units=row.n)
            lines.append(Claim(against, f"{row.method}, {row.score:.0%} right", "worse", "better").text() + ".")
        sure = [cell for cell in cells_of_task if (share(cell.right[0]).low or 0) > 1 / cell.ask.choices]
        if len(sure) < len(cells_of_task):
            longest = max((cell.ask.length for cell in sure), default=0)
            lines.append(
                f"Cells that are above chance by themselves: {len(sure)} of {len(cells_of_task)}"
                + (f", the longest at {longest:,} tokens." if sure else "; all of them together are.")
            )
    return lines, able


def shown(pieces: Pieces, cells: Sequence[Cell]) -> list[ShownPrompt]:
    """One prompt of every task, the first of its middle cell."""
    prompts = []
    for probe, cells_of_task in _of_probe(cells).items():
        cell = cells_of_task[len(cells_of_task) // 2]
        item = cell.items[0].item
        ids = item.ids
        first, last = item.gold or (min(AROUND, item.question), max(item.question - AROUND, 0))
        wrong = [pieces.show(row) for index, row in enumerate(item.candidates) if index != item.right]
        prompts.append(
            ShownPrompt(
                probe=probe,
                length=cell.ask.length,
                at=first if item.gold else None,
                before=pieces.show(ids[max(0, first - AROUND) : first]),
                evidence=pieces.show(ids[first:last] if item.gold else ids[:0]),
                after=pieces.show(ids[last : min(last + AROUND, item.question)]),
                question=pieces.show(ids[item.question :]),
                answer=pieces.show(item.answer),
                others=" · ".join(wrong),
            )
        )
    return prompts
