"""What is said of routing curves at a budget: rows with intervals over documents, gap closure, the paper beside."""

import csv
from pathlib import Path
from typing import Any

import numpy as np

from analysis.metrics.intervals import DOCUMENTS, jackknife_edges, state
from analysis.metrics.routing import budgets, gap_closure
from analysis.papers import find
from analysis.studies.routing.cells import Cell
from analysis.studies.routing.score import Curves

LOW, HIGH = "kmeans", "mlp"  # a gap closure of 0 and of 1
with open(Path(__file__).with_name("routers.csv"), encoding="utf-8", newline="") as _file:
    _ROUTERS = list(csv.DictReader(_file))
NAMES = {row["kind"]: row["name"] for row in _ROUTERS}
PAPER_ROWS = {word: row["kind"] for row in _ROUTERS for word in row["printed"].split("; ") if word}


def at_budget(values: np.ndarray, points: list[int], visited: float) -> np.ndarray:
    """Curves [..., p] at any number of buckets between 1 and C, on straight lines between the kept budgets -> [...]."""
    right = min(max(int(np.searchsorted(points, visited)), 1), len(points) - 1)
    low, high = points[right - 1], points[right]
    share = min(max((visited - low) / (high - low), 0.0), 1.0)
    return values[..., right - 1] * (1 - share) + values[..., right] * share


def without_each(values: np.ndarray) -> np.ndarray:
    """values [documents, N], NaN where a document says nothing -> the means of all the others [documents, N]."""
    defined, filled = np.isfinite(values), np.where(np.isfinite(values), values, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (filled.sum(0) - filled) / (defined.sum(0) - defined)


def edges(estimate: float, without: np.ndarray, key: str, fewest: int) -> dict:
    """`KEY_low KEY_high` of a number, from what it is without each document [documents]; None with fewer than
    `fewest`."""
    low, high = jackknife_edges([estimate], without[:, None], fewest)[0]
    return {f"{key}_low": _number(low), f"{key}_high": _number(high)}


def mean_rows(curves: Curves, cell: Cell, visited: float, fewest: int = DOCUMENTS) -> list[dict]:
    """One row per router, the mean over all heads: `router l share recall recall_low recall_high selectivity
    selectivity_low selectivity_high`, intervals over documents; with fewer than `fewest` there are none, and
    `recall_points selectivity_points` are those of each document (else None)."""
    rows = []
    for kind, recall in curves.recall[cell].items():
        row = {"router": kind, "l": visited, "share": visited / curves.buckets}
        for key, measured in (("recall", recall), ("selectivity", curves.selectivity[cell][kind])):
            values = at_budget(measured, curves.points, visited)  # [documents, N]
            mean = _mean(_mean(values, 0), 0)
            row |= {key: _number(mean)} | edges(mean, _mean(without_each(values), 1), key, fewest)
            few = [_number(value) for value in _mean(values, 1)] if len(values) < fewest else None
            row[f"{key}_points"] = few
        rows.append(row)
    return rows


def head_rows(curves: Curves, cell: Cell, visited: float, fewest: int = DOCUMENTS) -> list[dict]:
    """One row per head and router: `layer head router l recall selectivity recall_low recall_high`."""
    rows = []
    for kind, recall_curves in curves.recall[cell].items():
        values = at_budget(recall_curves, curves.points, visited)
        recall = _mean(values, 0)
        ends = jackknife_edges(recall, without_each(values), fewest)
        selectivity = _mean(at_budget(curves.selectivity[cell][kind], curves.points, visited), 0)
        for index, (layer, head) in enumerate(curves.heads):
            row = {"layer": layer, "head": head, "router": kind, "l": visited, "recall": _number(recall[index])}
            low, high = (_number(edge) for edge in ends[index])
            rows.append(row | {"selectivity": _number(selectivity[index]), "recall_low": low, "recall_high": high})
    return sorted(rows, key=lambda row: (row["layer"], row["head"]))


def closure_rows(curves: Curves, cell: Cell, visited: float, fewest: int = DOCUMENTS) -> list[dict]:
    """Gap closure of each router between symmetric k-means (0) and the learned one (1), both ways of averaging, with
    intervals over documents: `router l mean_of_ratios _low _high ratio_of_means _low _high heads`."""
    recall = {kind: at_budget(values, curves.points, visited) for kind, values in curves.recall[cell].items()}
    if not {LOW, HIGH} <= set(recall):
        return []
    means = {kind: _mean(values, 0) for kind, values in recall.items()}
    without = {kind: without_each(values) for kind, values in recall.items()}
    rows = []
    for kind in recall:
        closure = gap_closure(means[kind], means[LOW], means[HIGH])
        gap, way = without[HIGH] - without[LOW], without[kind] - without[LOW]  # [documents, N]
        with np.errstate(invalid="ignore", divide="ignore"):
            without_document = {"ratio_of_means": _mean(way, 1) / _mean(gap, 1)}
            without_document["mean_of_ratios"] = _mean(np.where(np.abs(gap) >= 1e-3, way / gap, np.nan), 1)
        row = {"router": kind, "l": visited}
        for key in ("mean_of_ratios", "ratio_of_means"):
            estimate = np.nan if closure[key] is None else closure[key]
            row |= {key: closure[key]} | edges(estimate, without_document[key], key, fewest)
        rows.append(row | {"heads": closure["heads"]})
    return rows


def head_table(curves: Curves, cell: Cell, visited: float) -> list[dict]:
    """The paper's table 2 for every head here: `layer head kmeans static_prior gwr_linear mlp oracle gap_closure`."""
    kinds = [kind for kind in (LOW, "static_prior", "gwr_linear", HIGH, "oracle") if kind in curves.recall[cell]]
    means = {kind: _mean(at_budget(curves.recall[cell][kind], curves.points, visited), 0) for kind in kinds}
    ratios = gap_closure(means["gwr_linear"], means[LOW], means[HIGH])["heads"] if HIGH in kinds else None
    return [
        {"layer": layer, "head": head, **{kind: _number(means[kind][index]) for kind in kinds}}
        | {"gap_closure": ratios[index] if ratios else None}
        for index, (layer, head) in enumerate(curves.heads)
    ]


def lines(curves: Curves, cell: Cell) -> dict[str, dict]:
    """Means over heads and documents at every kept budget: router -> `l recall selectivity`, lists of one length."""
    by_router = {}
    for kind in curves.recall[cell]:
        both = {"recall": curves.recall[cell][kind], "selectivity": curves.selectivity[cell][kind]}
        means = {key: [_number(x) for x in _mean(_mean(values, 0), 0)] for key, values in both.items()}
        by_router[kind] = {"l": list(curves.points), **means}
    return by_router


def budget_rows(curves: Curves, cell: Cell, fewest: int = DOCUMENTS) -> dict[str, list[dict]]:
    """`curve` and `closures`: `mean_rows` (figure 2a) and `closure_rows` without their heads (figure 2b) at each of the
    paper's budgets that C allows, 1/256 to 1/8 of the buckets."""
    by_budget = {"curve": [], "closures": []}
    for visited in budgets(curves.buckets):
        by_budget["curve"] += mean_rows(curves, cell, visited, fewest)
        rows = closure_rows(curves, cell, visited, fewest)
        by_budget["closures"] += [{key: value for key, value in row.items() if key != "heads"} for row in rows]
    return by_budget


def paper_rows() -> list[dict]:
    """What the paper prints: `table row column value unit router l share protocol note`; `router` and `share` in our
    words where it has them (its l is of 1,024 buckets)."""
    rows = []
    for cell in find("gwr_linear_routing"):
        place = next((word[2:] for word in (cell.row, cell.column) if word.startswith("ℓ=")), None)
        visited = int(place) if place else 32
        router = next((PAPER_ROWS[word] for word in (cell.row, cell.column) if word in PAPER_ROWS), None)
        rows.append(
            {"table": cell.table, "row": cell.row, "column": cell.column, "value": cell.value, "unit": cell.unit}
            | {"router": router, "l": visited, "share": visited / 1024, "protocol": cell.protocol, "note": cell.note}
        )
    return rows


def best_of(rows: list[dict]) -> dict:
    """The row of the router that finds most; the oracle, which looks at the answer, is none."""
    return max((row for row in rows if row["router"] != "oracle"), key=lambda row: row["recall"])


def sentence(rows: list[dict], buckets: int, documents: int, unit: str = "documents") -> str:
    """What a page says first, from `mean_rows` at one budget over so many `unit`."""
    by = {row["router"]: row for row in rows}
    visited, share, best = rows[0]["l"], rows[0]["share"], best_of(rows)
    count = sum(row["router"] != "oracle" for row in rows)
    rank = f", the most of {count} routers on the texts that choose it" if count > 1 else ""
    headline = (
        f"Visiting {visited:g} of {buckets:,} buckets ({share:.1%}), {NAMES[best['router']]} finds "
        f"{best['recall']:.1%} of the far attention in {best['selectivity']:.1%} of the keys{rank}"
    )
    compared = [kind for kind in ("gwr_linear", "static_prior", "kmeans", "random") if kind in by]
    compared_text = "".join(
        f"{NAMES[kind]} {by[kind]['recall']:.1%} in {by[kind]['selectivity']:.1%}; "
        for kind in compared
        if kind != best["router"]
    )
    has_interval = best["recall_low"] is not None
    rough = "" if has_interval else f"; {state(documents, True, has_interval, unit)}"
    if points := [f"{point:.1%}" for point in best["recall_points"] or () if point is not None]:
        rough += f": in these texts {', '.join(points)}" if unit == "documents" else ""
    return f"{headline} ({compared_text}no choice over {by['oracle']['recall']:.1%}){rough}."


def _mean(values: np.ndarray, axis: int) -> np.ndarray:
    """The mean of what is known; NaN where nothing is."""
    defined = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.where(defined, values, 0.0).sum(axis) / np.where(defined.any(axis), defined.sum(axis), np.nan)


def _number(value: Any) -> Any:
    """A plain number; None for what is none."""
    if isinstance(value, str) or value is None:
        return value
    return float(value) if np.isfinite(value) else None
