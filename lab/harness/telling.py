"""The conclusion of a study from its comparisons, worded alike in all of them: each claim, or how many there are."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from analysis.claims import Claim, Comparison, Verdict
from analysis.metrics.intervals import SEEDS
from analysis.studies.stored.comparisons import Row, holm_corrected, multiplicity_note, scope_of_claim
from analysis.studies.stored.panels import of_rows, panel, series


def concluded(
    lead: str,
    rows: Sequence[Row],
    controls: Mapping[str, str],
    subject: str,
    seeds: int = SEEDS,
    what: str = "router",
    unit: str = "nats",
    family: Sequence[Row] = (),
) -> str:
    """A claim for every row and every control, key of the comparison -> what it is compared with; beside one control
    the rows that are not significant stand together at the end. `subject` is filled in from a row; with fewer than 3
    `seeds` of `what` was trained, all is said of these alone. `family` are all rows that were corrected together, where
    these are some of them."""
    corrected, parts = _one_family(rows, controls), []
    undecided: list[tuple[str, Comparison]] = []
    for row in corrected:
        name, compared = subject.format_map(row), []
        for key, versus in controls.items():
            if row.get(key) is not None:
                compared.append(Comparison.of(row, key, unit=unit, versus=versus))
        if len(controls) == 1 < len(corrected) and [each.verdict for each in compared] == [Verdict.NOT_SIGNIFICANT]:
            undecided.append((name, compared[0]))
        else:
            parts.append(f"{name}: {', '.join(Claim(each, '', 'lower', 'higher').text() for each in compared)}")
    if undecided:
        named = "; ".join(f"{name} ({comparison.evidence})" for name, comparison in undecided)
        parts.append(f"{undecided[0][1].relation()}: {named}")
    note = multiplicity_note(family or corrected, *controls)
    return f"{lead}{'; '.join(parts)}.{note}{scope_of_claim(seeds, what)}"


def counted(rows: Sequence[Row], what: str, controls: Mapping[str, str], unit: str = "nats") -> str:
    """How many rows, which are called `what`, are significantly lower and higher than each control, and what the sample
    could detect in the others."""
    corrected, parts = _one_family(rows, controls), []
    for key, versus in controls.items():
        compared = [Comparison.of(row, key, unit=unit) for row in corrected if row.get(key) is not None]
        signs = [comparison.direction for comparison in compared]
        part = f"{signs.count(-1)} lower and {signs.count(1)} higher than {versus}"
        undecided = [
            comparison
            for comparison in compared
            if not comparison.direction and comparison.minimum_detectable is not None
        ]
        if undecided:
            part += f" ({max(undecided, key=lambda comparison: comparison.minimum_detectable or 0.0).detectable})"
        parts.append(part)
    return f"Of {len(corrected)} {what}, {'; '.join(parts)}.{multiplicity_note(corrected, *controls)}"


def portion(done: int, grid: int, what: str, hours: float) -> str:
    """Of a grid that is stored in part: how much of it there is, and how long the rest takes, at so many hours of one
    processor for each. Nothing of a whole one."""
    if done >= grid:
        return ""
    hours_left = hours * (grid - done)
    return (
        f" Of the {grid} {what} {done} are measured; the others would take one processor about {hours_left:.1f} hours."
    )


def _one_family(rows: Sequence[Row], controls: Mapping[str, str]) -> list[Row]:
    """The rows, corrected by Holm for all their comparisons; those that were corrected in a larger family stay."""
    corrected = any(f"{key}_holm" in row for row in rows for key in controls)
    return list(rows) if corrected else holm_corrected(rows, *controls)


def distinct(rows: Iterable[Row], key: str) -> list[Any]:
    """The values of a column, each once, in their order."""
    return list(dict.fromkeys(row[key] for row in rows))


def lines_of(
    title: str, rows: Sequence[Row], line: str, x: str, label: str, y_label: str, key: str, share: bool = False
) -> dict[str, Any]:
    """A panel of a key of the rows over column `x`, with a line for every value of column `line`; a point that a line
    has no row for is left out."""
    points = distinct(rows, x)
    table = {(row[line], row[x]): row for row in rows}
    lines = []
    for name in distinct(rows, line):
        lines.append(of_rows(name, [table.get((name, point), {}) for point in points], key))
    return panel(title, x, label, points, y_label, lines, share=share)


def training_panel(
    title: str, points: Sequence[Row], line: str, names: Mapping[Any, str], label: str = "steps"
) -> dict[str, Any]:
    """A panel of training losses by step, with a line for each value of column `line`, the mean of its trainings:
    `names` says what each is called."""
    steps: dict[int, list[float]] = {}
    lines = []
    for value, name in names.items():
        steps = {}
        for point in points:
            if point[line] == value:
                steps.setdefault(point["step"], []).append(point["loss"])
        lines.append(series(name, [float(np.mean(losses)) for losses in steps.values()]))
    return panel(title, "step", label, list(steps), "nats per token", lines)
