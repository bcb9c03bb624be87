"""How a study says what is drawn of it: columns of its rows, and panels of small multiples, as plain data."""

import csv
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from analysis.metrics.intervals import DOCUMENTS, LEVEL, SEEDS, Interval, holm, over_seeds, p_of, smallest_effect
from analysis.papers import find

BEFORE = (
    "Measured before documents were the units: its intervals are rough, percentile bootstraps over runs of windows or "
    "of tokens that are narrower than 95% asks for. What is said holds in these texts, until it is measured again."
)


def column(name: str, label: str, unit: str = "") -> dict:
    """A column of the rows: its key, what a reader calls it, its unit."""
    return {"name": name, "label": label, "unit": unit}


def columns(study: str) -> list[dict]:
    """The columns of a study's rows."""
    return _of("columns.csv", study)


def presented(study: str, sentence: str, panels: list[dict] | None, *notes: str) -> dict:
    """What is shown of a study: its `sentence columns panels notes`, its own notes before these."""
    said = [*(row["note"] for row in _of("notes.csv", study)), *notes]
    found = {"sentence": sentence, "columns": columns(study), "panels": panels, "notes": said or None}
    return {name: value for name, value in found.items() if value is not None}


@cache
def _of(file: str, study: str) -> list[dict]:
    """The rows of a study in a table beside this file."""
    with open(Path(__file__).with_name(file), encoding="utf-8", newline="") as lines:
        return [row for row in csv.DictReader(lines) if row.pop("study") == study]


def series(
    name: str, y: Sequence, low: Sequence | None = None, high: Sequence | None = None, paper: bool = False
) -> dict:
    """One line of a panel, as long as its x values; `low` and `high` its 95% interval, `paper` for printed numbers."""
    return {"name": name, "y": list(y), "low": low and list(low), "high": high and list(high), "paper": paper}


def of_rows(name: str, rows: Sequence[dict], key: str) -> dict:
    """The series of a key of the rows, with its interval where they have `KEY_low` and `KEY_high`."""
    low, high = ([row.get(f"{key}_{edge}") for row in rows] for edge in ("low", "high"))
    known = any(edge is not None for edge in (*low, *high))
    return series(name, [row.get(key) for row in rows], low if known else None, high if known else None)


def panel(
    title: str, x: str, x_label: str, x_values: Sequence, y_label: str, lines: Sequence[dict], share: bool = False
) -> dict:
    """One small chart: the lines over `x_values`, the values of column `x`; `share`: they are read as per cent. Errors:
    an assert for unequal lengths."""
    assert all(len(line["y"]) == len(x_values) for line in lines), title
    return {
        **{"title": title, "x": x, "x_label": x_label, "x_values": list(x_values), "y_label": y_label},
        "series": list(lines),
    } | ({"share": True} if share else {})


def chart(
    title: str, rows: Sequence[dict], x: str, x_label: str, y_label: str, keys: dict[str, str], more: Sequence = ()
) -> dict:
    """A panel over column `x` of the rows: a line for each name -> key of a row, and `more` lines."""
    lines = [of_rows(name, rows, key) for name, key in keys.items()]
    return panel(title, x, x_label, [row[x] for row in rows], y_label, [*lines, *more])


def paper_lines(lines: dict[str, Sequence]) -> list[dict]:
    """The series name -> values that a paper prints, without those of which it prints nothing."""
    return [series(name, y, paper=True) for name, y in lines.items() if any(value is not None for value in y)]


def printed(table: str, row: str, name: str) -> float | None:
    """A number that the Focus paper prints, or None where it prints none."""
    cells = find("focus", table, row, name)
    return cells[0].value if cells and isinstance(cells[0].value, float) else None


def difference(key: str, losses: np.ndarray, control: np.ndarray, documents: np.ndarray) -> dict:
    """`KEY KEY_low KEY_high KEY_p KEY_points`: mean of losses [n] minus those of a control on the same windows, nats
    per token, with its 95% interval over the `documents` [n] that the windows are of. Fewer than five documents give
    no interval: `KEY_points` are then those of each (else None).

    Losses [seeds, n] are of what was trained that often, the control of the same seeds [seeds, n] or of none [n]: from
    three seeds on they enter the interval too. `KEY_lowest` and `KEY_highest` are the seeds' own means.
    """
    apart = np.atleast_2d(losses - control)  # [seeds, n]
    found, points = over_seeds(apart, documents)
    row = compared(key, found) | {f"{key}_points": points.tolist() if found.low is None else None}
    return row | (lowest_highest(key, apart.mean(1)) if np.ndim(losses) == 2 else {})


def lowest_highest(key: str, values: Sequence[float]) -> dict:
    """`KEY_lowest KEY_highest` of the seeds' values."""
    return {f"{key}_lowest": float(min(values)), f"{key}_highest": float(max(values))}


def edges(key: str, found: Interval) -> dict:
    """`KEY KEY_low KEY_high` of an interval."""
    return {key: found.mean, f"{key}_low": found.low, f"{key}_high": found.high}


def compared(key: str, found: Interval) -> dict:
    """`KEY KEY_low KEY_high KEY_p` of a comparison: its interval, and the p-value that goes with it."""
    return edges(key, found) | {f"{key}_p": p_of(found)}


def in_family(rows: Sequence[dict], *keys: str) -> list[dict]:
    """The rows with `KEY_holm` beside each `KEY_p`: the p-value after Holm's correction for all comparisons `keys` of
    all these rows, but those of an arm with itself. Rows that were stored without p-values stay as they are."""
    places = [
        (at, key)
        for at, row in enumerate(rows)
        for key in keys
        if row.get(f"{key}_p") is not None and not with_itself(row, key)
    ]
    corrected = holm([rows[at][f"{key}_p"] for at, key in places]) if places else []
    found = [dict(row) for row in rows]
    for (at, key), p in zip(places, corrected, strict=True):
        found[at][f"{key}_holm"] = float(p)
    return found


def with_itself(row: dict, key: str) -> bool:
    """Whether a comparison is of an arm with itself: 0, with an interval of no width."""
    return row.get(key, 0) == row.get(f"{key}_low") == row.get(f"{key}_high") == 0


def signed(value: float, form: str = "+.4f") -> str:
    """A difference as printed; what is printed as 0 has no sign."""
    said = f"{value:{form}}"
    return said if re.search("[1-9]", said) else said.lstrip("+-")


def nats(found: Interval | dict, key: str = "") -> str:
    """A difference in words, from an `Interval` or from what `difference` gave."""
    points, row = [], found
    if isinstance(found, dict):
        points = found.get(f"{key}_points") or []
        found = Interval(found[key], found[f"{key}_low"], found[f"{key}_high"], 0)
    if found.low is None:
        each = f"in these {len(points)} texts {', '.join(map(signed, points))}"
        return f"{signed(found.mean)} nats per token, {each if points else 'no interval'}"
    said = f"{signed(found.mean)} nats per token, 95% interval {signed(found.low)} to {signed(found.high)}"
    unseen = not decided(row, key) if isinstance(row, dict) else found.low <= 0 <= found.high
    return f"{said}; {smallest_effect(found):.4f} could have been seen" if unseen else said


def decided(found: dict, key: str) -> int:
    """What a comparison says of its sign: -1, 1, or 0 where its interval holds 0, it does not hold after Holm's
    correction for its family (`in_family`), or there is none."""
    low, high = found[f"{key}_low"], found[f"{key}_high"]
    unsure = low is None or low <= 0 <= high or found.get(f"{key}_holm", 0) >= 1 - LEVEL
    return 0 if unsure else 1 if low > 0 else -1


def seen(rows: Sequence[dict], key: str) -> float | None:
    """The smallest effect that could have been seen in each of these comparisons; None where one has no interval."""
    found = [smallest_effect(Interval(row[key], row[f"{key}_low"], row[f"{key}_high"], 0)) for row in rows]
    return None if None in found else max(found, default=None)


def judged(found: dict, key: str, words: dict[int, str], none: str = "not judged") -> str:
    """The word for the sign of a `difference`, from -1, 0, 1 -> word; `none` where there is no interval to judge by."""
    return none if found[f"{key}_low"] is None else words[decided(found, key)]


def of_whom(seeds: int, what: str = "router") -> str:
    """The sentence that says of whom all is said where every trained arm has so many seeds: with fewer than 3, of what
    was trained here and not of the method. It begins with a space; nothing with 3 or more."""
    if seeds >= SEEDS:
        return ""
    trained = "one training" if seeds == 1 else f"{seeds} trainings"
    whom = f"this {what}" if seeds == 1 else f"these {what}s"
    return f" All of it is said of {whom}, {trained} of every arm, and not of the method."


def of_comparisons(rows: Sequence[dict], *keys: str) -> str:
    """The sentence that says how many of these comparisons are judged beside each other, and whether each is corrected
    for the others (`in_family`). It begins with a space; nothing where there are fewer than two. An arm against itself
    is none."""
    every = [(row, key) for row in rows for key in keys if row.get(f"{key}_low") is not None]
    known = [(row, key) for row, key in every if not with_itself(row, key)]
    if len(known) < 2:
        return ""
    family = all(f"{key}_holm" in row for row, key in known)
    how = "judged after Holm's correction for all of them" if family else "judged by its own interval"
    return f" Of {len(known)} comparisons, each is {how}."


def as_sure(sentence: str, protocol: dict) -> str:
    """A sentence with its intervals named as what they are in a study that was stored before documents were the
    units."""
    return sentence if "units" in protocol else sentence.replace("95% interval", "rough interval")


def how_sure(protocol: dict) -> str:
    """What the intervals of a study rest on, from its protocol."""
    units = protocol.get("units")
    if units is None:
        return BEFORE
    if units < DOCUMENTS:
        few = f"The windows are of {units} documents, too few for an interval"
        return f"{few}: what is said holds in these {units} texts."
    seeds = protocol.get("seeds", 1)
    both = f" and over {seeds} trainings of every arm" if seeds >= SEEDS else ""
    return f"Intervals are 95%, studentised, over {units} documents{both}; their windows are averaged first."
