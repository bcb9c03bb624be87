"""Rows, sentences and shown prompts of the long-context probes, from which of its items a method answered rightly."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.metrics.intervals import Interval
from analysis.metrics.proportions import share, share_difference
from analysis.probes.pieces import Cut, Pieces
from analysis.probes.tasks import TASKS, Ask
from analysis.studies.ready.candidates import Candidate

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


def cell_rows(cells: Sequence[Cell], methods: Sequence[Candidate]) -> list[dict]:
    """One row per method and cell."""
    return [row for cell in cells for row in _rows([cell], methods, {"length": cell.ask.length} | _place(cell.ask))]


def by_length(cells: Sequence[Cell], methods: Sequence[Candidate]) -> list[dict]:
    """One row per task, method and length, over all depths or numbers of examples."""
    keys = dict.fromkeys((cell.probe, cell.ask.length) for cell in cells)
    return [
        row
        for probe, length in keys
        for row in _rows(_of(cells, probe, lambda ask, n=length: ask.length == n), methods, {"length": length})
    ]


def summary(cells: Sequence[Cell], methods: Sequence[Candidate]) -> list[dict]:
    """One row per task and method, over all its cells."""
    return [row for probe in _probes(cells) for row in _rows(_of(cells, probe), methods, {})]


def _of(cells: Sequence[Cell], probe: str, wanted: Callable[[Ask], bool] = lambda ask: True) -> list[Cell]:
    return [cell for cell in cells if cell.probe == probe and wanted(cell.ask)]


def _probes(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(cell.probe for cell in cells))


def _place(ask: Ask) -> dict:
    return {"depth": ask.depth, "examples": ask.examples}


def _rows(cells: Sequence[Cell], methods: Sequence[Candidate], where: dict) -> list[dict]:
    right, plain, margin = (np.concatenate([getattr(cell, name) for cell in cells], 1) for name in PARTS)
    cuts = [one for cell in cells for one in cell.items]
    rows = []
    for at, method in enumerate(methods):
        found, apart = share(right[at]), share_difference(right[at], right[0]) if at else Interval(None, None, None, 0)
        rows.append(
            {
                **{"probe": cells[0].probe, "method": method.label, "name": method.name},
                **where,
                **{"score": found.mean, "low": found.low, "high": found.high},
                **{"chance": 1 / cells[0].ask.choices, "n": len(cuts), "plain": float(plain[at].mean())},
                **{"margin": float(margin[at].mean()), "truncated": sum(one.dropped > 0 for one in cuts)},
                "lost": sum(one.lost for one in cuts),
                **{"difference": apart.mean, "difference_low": apart.low, "difference_high": apart.high},
            }
        )
    return rows


def truncated(cells: Sequence[Cell]) -> dict:
    """`prompts` that were cut, `of` all, and `lost`: those whose evidence was cut off."""
    cuts = [one for cell in cells for one in cell.items]
    return {"prompts": sum(one.dropped > 0 for one in cuts), "of": len(cuts), "lost": sum(one.lost for one in cuts)}


def sentences(cells: Sequence[Cell], methods: Sequence[Candidate], model: str) -> tuple[list[str], dict[str, bool]]:
    """What the probes say, one sentence per task and method, and for each task whether dense is above chance."""
    rows, told, able = summary(cells, methods), [], {}
    for probe in _probes(cells):
        dense, *others = [row for row in rows if row["probe"] == probe]
        able[probe] = dense["low"] > dense["chance"]
        told.append(_of_dense(dense, model, able[probe]))
        told += [_of_other(row) for row in others if able[probe]]
        near = reached(cells, probe)
        if able[probe] and near is not None:
            told.append(near)
    return told, able


def _of_dense(row: dict, model: str, able: bool) -> str:
    title, found = TASKS[row["probe"]].title, f"{row['score']:.0%} right{_interval(row)}, chance {row['chance']:.0%}"
    if able:
        return f"{title}: dense attention gets {found}."
    return (
        f"{title}: this model cannot do the task. Dense attention is at chance ({found}), so what another method "
        f"scores says nothing about reading less."
    )


def _of_other(row: dict) -> str:
    low, high = row["difference_low"], row["difference_high"]
    verdict = "loses" if high < 0 else "gains" if low > 0 else "is not shown to differ"
    return (
        f"{row['method']} {verdict}: {row['score']:.0%}, {100 * row['difference']:+.0f} points against dense on the "
        f"same questions (95 % interval {100 * low:+.0f} to {100 * high:+.0f}, n = {row['n']:,})."
    )


def reached(cells: Sequence[Cell], probe: str) -> str | None:
    """Where dense is shown to be above chance: the longest length, and which depths, or None where it always is."""
    mine = _of(cells, probe)
    sure = [cell for cell in mine if (share(cell.right[0]).low or 0) > 1 / cell.ask.choices]
    if len(sure) == len(mine):
        return None
    if not sure:
        return "No single cell is shown to be above chance; all of them together are."
    longest = max(cell.ask.length for cell in sure)
    return f"Cells that are above chance by themselves: {len(sure)} of {len(mine)}, the longest at {longest:,} tokens."


def _interval(row: dict) -> str:
    return f" (95 % interval {row['low']:.0%} to {row['high']:.0%}, n = {row['n']:,})"


def shown(pieces: Pieces, cells: Sequence[Cell]) -> list[dict]:
    """One prompt of every task, the first of its middle cell, in parts: `probe length before evidence after question
    answer others`; a task without one place shows its beginning and end."""
    rows = []
    for probe in _probes(cells):
        mine = _of(cells, probe)
        cell = mine[len(mine) // 2]
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
        others = [pieces.show(row) for at, row in enumerate(item.candidates) if at != item.right]
        rows.append(
            {"probe": probe, "length": cell.ask.length, "at": first if gold else None}
            | {name: pieces.show(part) for name, part in texts.items()}
            | {"others": " · ".join(others)}
        )
    return rows
