"""Rows, sentences and shown prompts of the long-context probes, from which of its items a method answered rightly."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.metrics.intervals import Interval
from analysis.metrics.proportions import share, share_difference
from analysis.probes.pieces import Cut, Pieces
from analysis.probes.tasks import TASKS, Ask
from analysis.studies.probes.turns import Way
from analysis.studies.stored.comparisons import edges

PARTS = ("right", "plain", "margin")
AROUND = 32  # tokens shown before and behind the evidence


@dataclass(frozen=True)
class Cell:
    """One cell of a map: what was asked, its items as they were read, and, [methods, items], whether the answer was
    right (by gain, by plain log-probability) and its margin in nats. Method 0 is dense."""

    probe: str
    ask: Ask
    items: list[Cut]
    right: np.ndarray
    plain: np.ndarray
    margin: np.ndarray


def rows_by(cells: Sequence[Cell], methods: Sequence[Way], *axes: str) -> list[dict]:
    """One row per task, method and value of `axes` (some of `length depth examples`), over all cells of these."""
    groups: dict[tuple, list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.probe, *(getattr(cell.ask, axis) for axis in axes)), []).append(cell)
    return [
        row for key, members in groups.items() for row in _rows(members, methods, dict(zip(axes, key[1:], strict=True)))
    ]


def _probes(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """The cells of each task."""
    by_probe: dict[str, list[Cell]] = {}
    for cell in cells:
        by_probe.setdefault(cell.probe, []).append(cell)
    return by_probe


def _rows(cells: Sequence[Cell], methods: Sequence[Way], where: dict) -> list[dict]:
    right, plain, margin = (np.concatenate([getattr(cell, name) for cell in cells], 1) for name in PARTS)
    cuts = [item for cell in cells for item in cell.items]
    rows = []
    for index, method in enumerate(methods):
        score, apart = (
            share(right[index]),
            share_difference(right[index], right[0]) if index else Interval(None, None, None, 0),
        )
        row = {"probe": cells[0].probe, "method": method.label, "name": method.name, **where}
        row |= {"score": score.mean, "low": score.low, "high": score.high, "chance": 1 / cells[0].ask.choices}
        row |= {"n": len(cuts), "plain": float(plain[index].mean()), "margin": float(margin[index].mean())}
        row |= {"truncated": sum(item.dropped > 0 for item in cuts), "lost": sum(item.lost for item in cuts)}
        rows.append(row | edges("difference", apart))
    return rows


def truncated(cells: Sequence[Cell]) -> dict:
    """`prompts` that were cut, `of` all, and `lost`: those whose evidence was cut off."""
    cuts = [item for cell in cells for item in cell.items]
    return {"prompts": sum(item.dropped > 0 for item in cuts), "of": len(cuts), "lost": sum(item.lost for item in cuts)}


def sentences(cells: Sequence[Cell], methods: Sequence[Way], model: str) -> tuple[list[str], dict[str, bool]]:
    """What the probes say, one sentence per task and method, and for each task whether dense is above chance."""
    rows, lines, able = rows_by(cells, methods), [], {}
    for probe, of_probe in _probes(cells).items():
        dense, *compared = [row for row in rows if row["probe"] == probe]
        able[probe] = dense["low"] > dense["chance"]
        lines.append(_of_dense(dense, model, able[probe]))
        lines += [_of_other(row) for row in compared if able[probe]]
        near = reached(of_probe)
        if able[probe] and near is not None:
            lines.append(near)
    return lines, able


def _of_dense(row: dict, model: str, able: bool) -> str:
    interval = f"95% interval {row['low']:.0%} to {row['high']:.0%}, n = {row['n']:,}"
    title, result = TASKS[row["probe"]].title, f"{row['score']:.0%} right ({interval}), chance {row['chance']:.0%}"
    if able:
        return f"{title}: dense attention gets {result}."
    return (
        f"{title}: this model cannot do the task. Dense attention is at chance ({result}), so what another method "
        f"scores says nothing about reading less."
    )


def _of_other(row: dict) -> str:
    low, high = row["difference_low"], row["difference_high"]
    verdict = "loses" if high < 0 else "gains" if low > 0 else "is not shown to differ"
    return (
        f"{row['method']} {verdict}: {row['score']:.0%}, {100 * row['difference']:+.0f} points against dense on the "
        f"same questions (95% interval {100 * low:+.0f} to {100 * high:+.0f}, n = {row['n']:,})."
    )


def reached(of_probe: Sequence[Cell]) -> str | None:
    """Where dense is shown to be above chance in the cells of a task: how many and the longest, or None."""
    sure = [cell for cell in of_probe if (share(cell.right[0]).low or 0) > 1 / cell.ask.choices]
    if len(sure) == len(of_probe):
        return None
    if not sure:
        return "No single cell is shown to be above chance; all of them together are."
    longest = max(cell.ask.length for cell in sure)
    return (
        f"Cells that are above chance by themselves: {len(sure)} of {len(of_probe)}, the longest at {longest:,} tokens."
    )


def shown(pieces: Pieces, cells: Sequence[Cell]) -> list[dict]:
    """One prompt of every task, the first of its middle cell, in parts: `probe length before evidence after question
    answer others`; a task without one place shows its beginning and end."""
    rows = []
    for probe, of_probe in _probes(cells).items():
        cell = of_probe[len(of_probe) // 2]
        item = cell.items[0].item
        ids, gold = item.ids, item.gold
        first, last = gold or (min(AROUND, item.question), max(item.question - AROUND, 0))
        texts = {
            "before": ids[max(0, first - AROUND) : first],
            "evidence": ids[first:last] if gold else ids[:0],
            "after": ids[last : min(last + AROUND, item.question)],
            "question": ids[item.question :],
            "answer": item.answer,
        }
        wrong_answers = [pieces.show(row) for index, row in enumerate(item.candidates) if index != item.right]
        rows.append(
            {"probe": probe, "length": cell.ask.length, "at": first if gold else None}
            | {name: pieces.show(part) for name, part in texts.items()}
            | {"others": " · ".join(wrong_answers)}
        )
    return rows
