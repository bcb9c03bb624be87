"""What is told of routing curves at a budget: rows with intervals over documents, gap closure, the paper beside."""

import csv
from pathlib import Path
from typing import Any

import numpy as np

from ...answer import doc, record
from ...metrics.intervals import DOCUMENTS, jackknife_edges, state
from ...metrics.routing import budgets, gap_closure
from ...papers import find
from .cells import ALL, FAR, Cell
from .score import Curves

# A gap closure of 0 and of 1.
LOW, HIGH = "kmeans", "mlp"
with open(Path(__file__).with_name("routers.csv"), encoding="utf-8", newline="") as _file:
    _ROUTERS = list(csv.DictReader(_file))
# They look at the answer: no router, and bounds of all.
ORACLES = ("oracle", "oracle_layer", "oracle_group", "oracle_head")
# What recall is a share of, in words.
WHOLE = {FAR: "the far attention", ALL: "all attention, far and near"}
NAMES = {row["kind"]: row["name"] for row in _ROUTERS}
PAPER_ROWS = {word: row["kind"] for row in _ROUTERS for word in row["printed"].split("; ") if word}


@record
class MeanRow:
    """One router, the mean over all heads; 95% intervals over documents, None with too few of them."""

    router: str
    l: float = doc("buckets that a query visits")  # noqa: E741
    share: float = doc("of all buckets")
    recall: float | None = doc("share of the far attention that they hold")
    recall_low: float | None
    recall_high: float | None
    recall_points: list[float | None] | None = doc("of each document, where they are too few for an interval")
    selectivity: float | None = doc("share of the far keys that they hold")
    selectivity_low: float | None
    selectivity_high: float | None
    selectivity_points: list[float | None] | None


@record
class HeadRow:
    """One router of one head."""

    layer: int
    head: int
    router: str
    l: float = doc("buckets that a query visits")  # noqa: E741
    recall: float | None = doc("share of the far attention that they hold")
    selectivity: float | None = doc("share of the far keys that they hold")
    recall_low: float | None = doc("95% interval over documents")
    recall_high: float | None


@record
class ClosureRow:
    """How much of the gap between symmetric k-means (0) and the learned router (1) a router closes."""

    router: str
    l: float = doc("buckets that a query visits")  # noqa: E741
    mean_of_ratios: float | None = doc("mean of the heads' own ratios, as in the paper")
    mean_of_ratios_low: float | None = doc("95% interval over documents")
    mean_of_ratios_high: float | None
    ratio_of_means: float | None = doc("ratio of the sums over heads")
    ratio_of_means_low: float | None
    ratio_of_means_high: float | None
    heads: list[float | None] | None = doc("the ratio of each head", default=None)


@record
class Line:
    """One router at every kept budget; means over heads and documents."""

    l: list[int]  # noqa: E741
    recall: list[float | None]
    selectivity: list[float | None]


@record
class PaperRow:
    """A number that the paper prints, with our names of router and budget (its l is of 1,024 buckets)."""

    table: str
    row: str
    column: str
    value: float | str | None
    unit: str
    router: str | None
    l: int  # noqa: E741
    share: float
    protocol: str
    note: str


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


def edges(estimate: float, without: np.ndarray, fewest: int) -> tuple[float | None, float | None]:
    """The interval of a number, from what it is without each document [documents]; None with fewer than `fewest`."""
    low, high = _numbers(jackknife_edges([estimate], without[:, None], fewest)[0])
    return low, high


class CellRows:
    """The rows of one cell of curves at any budget; fewer than `fewest` documents give no interval."""

    def __init__(self, curves: Curves, cell: Cell, fewest: int = DOCUMENTS) -> None:
        self.curves, self.fewest = curves, fewest
        self.recall, self.selectivity = curves.recall[cell], curves.selectivity[cell]

    def at(self, by_router: dict[str, np.ndarray], visited: float) -> dict[str, np.ndarray]:
        """Curves by router at a budget: [documents, N] each."""
        return {kind: at_budget(values, self.curves.points, visited) for kind, values in by_router.items()}

    def means(self, visited: float) -> list[MeanRow]:
        """One row per router."""
        rows = []
        both = {"recall": self.at(self.recall, visited), "selectivity": self.at(self.selectivity, visited)}
        for kind in self.recall:
            numbers: dict[str, Any] = {}
            for key, by_router in both.items():
                values = by_router[kind]
                mean = float(_mean(_mean(values, 0), 0))
                (numbers[key],) = _numbers([mean])
                around = edges(mean, _mean(without_each(values), 1), self.fewest)
                numbers[f"{key}_low"], numbers[f"{key}_high"] = around
                few = len(values) < self.fewest
                numbers[f"{key}_points"] = _numbers(_mean(values, 1)) if few else None
            rows.append(MeanRow(router=kind, l=visited, share=visited / self.curves.buckets, **numbers))
        return rows

    def heads(self, visited: float) -> list[HeadRow]:
        """One row per head and router."""
        rows = []
        selectivity = self.at(self.selectivity, visited)
        for kind, values in self.at(self.recall, visited).items():
            recall = _mean(values, 0)
            ends = jackknife_edges(recall, without_each(values), self.fewest)
            table = np.column_stack([recall, _mean(selectivity[kind], 0), ends])
            for (layer, head), numbers in zip(self.curves.heads, table, strict=True):
                rows.append(HeadRow(layer, head, kind, visited, *_numbers(numbers)))
        # Readers look up a head, and then compare its routers.
        return sorted(rows, key=lambda row: (row.layer, row.head))

    def closure(self, visited: float) -> list[ClosureRow]:
        """One row per router, where both ends of the gap were fitted."""
        recall = self.at(self.recall, visited)
        if not {LOW, HIGH} <= set(recall):
            return []
        means = {kind: _mean(values, 0) for kind, values in recall.items()}
        without = {kind: without_each(values) for kind, values in recall.items()}
        rows = []
        for kind in recall:
            closure = gap_closure(means[kind], means[LOW], means[HIGH])
            # Leaving a document out changes both ends of the gap, so the ratio is made anew for each.
            gap, way = without[HIGH] - without[LOW], without[kind] - without[LOW]  # [documents, N]
            with np.errstate(invalid="ignore", divide="ignore"):
                mean_of_ratios = _mean(np.where(np.abs(gap) >= 1e-3, way / gap, np.nan), 1)
                ratio_of_means = _mean(way, 1) / _mean(gap, 1)
            numbers: dict[str, Any] = {}
            for key, others in (("mean_of_ratios", mean_of_ratios), ("ratio_of_means", ratio_of_means)):
                numbers[key] = value = getattr(closure, key)
                around = edges(np.nan if value is None else value, others, self.fewest)
                numbers[f"{key}_low"], numbers[f"{key}_high"] = around
            rows.append(ClosureRow(router=kind, l=visited, **numbers, heads=closure.heads))
        return rows

    def head_table(self, visited: float) -> list[dict[str, Any]]:
        """The paper's table 2 for every head: layer, head, the recall of each router that was fitted, gap_closure."""
        kinds = [kind for kind in (LOW, "static_prior", "gwr_linear", HIGH, "oracle") if kind in self.recall]
        means = {kind: _mean(values, 0) for kind, values in self.at(self.recall, visited).items()}
        ratios: list[float | None] = [None] * len(self.curves.heads)
        if HIGH in kinds:
            ratios = gap_closure(means["gwr_linear"], means[LOW], means[HIGH]).heads
        rows = []
        for index, (layer, head) in enumerate(self.curves.heads):
            recalls = dict(zip(kinds, _numbers([means[kind][index] for kind in kinds]), strict=True))
            rows.append({"layer": layer, "head": head, **recalls, "gap_closure": ratios[index]})
        return rows

    def lines(self) -> dict[str, Line]:
        """Means over heads and documents at every kept budget, by router."""
        by_router = {}
        for kind, recall in self.recall.items():
            pair = (_numbers(_mean(_mean(values, 0), 0)) for values in (recall, self.selectivity[kind]))
            by_router[kind] = Line(list(self.curves.points), *pair)
        return by_router

    def at_budgets(self) -> tuple[list[MeanRow], list[ClosureRow]]:
        """`means`, and `closure` without the heads, at each of the paper's budgets that C allows (figure 2)."""
        means, closures = [], []
        for visited in budgets(self.curves.buckets):
            means += self.means(visited)
            closures += [ClosureRow(**vars(row) | {"heads": None}) for row in self.closure(visited)]
        return means, closures


def paper_rows() -> list[PaperRow]:
    """What the paper prints."""
    rows = []
    for cell in find("gwr_linear_routing"):
        words = (cell.row, cell.column)
        place = next((word[2:] for word in words if word.startswith("ℓ=")), None)
        visited = int(place) if place else 32
        router = next((PAPER_ROWS[word] for word in words if word in PAPER_ROWS), None)
        printed = (cell.table, *words, cell.value, cell.unit)
        rows.append(PaperRow(*printed, router, visited, visited / 1024, cell.protocol, cell.note))
    return rows


def best_of(rows: list[MeanRow]) -> MeanRow:
    """The row of the router that finds most; an oracle, which looks at the answer, is none."""
    return max((row for row in rows if row.router not in ORACLES), key=lambda row: row.recall or 0.0)


def sentence(rows: list[MeanRow], buckets: int, documents: int, unit: str = "documents", recall_of: str = FAR) -> str:
    """What a page says first, from `means` at one budget over so many `unit`."""
    by_router = {row.router: row for row in rows}
    best = best_of(rows)
    count = sum(row.router not in ORACLES for row in rows)
    bound = by_router.get("oracle_head", by_router["oracle"])
    rank = f", the most of {count} routers on the texts that choose it" if count > 1 else ""
    others = "".join(
        f"{NAMES[kind]} {by_router[kind].recall:.1%} in {by_router[kind].selectivity:.1%}; "
        for kind in ("gwr_linear", "static_prior", "kmeans", "random")
        if kind in by_router and kind != best.router
    )
    caveat = f"; {state(documents, True, False, unit)}" if best.recall_low is None else ""
    points = [f"{point:.1%}" for point in best.recall_points or () if point is not None]
    if points and unit == "documents":
        caveat += f": in these texts {', '.join(points)}"
    return (
        f"Visiting {best.l:g} of {buckets:,} buckets ({best.share:.1%}), {NAMES[best.router]} finds {best.recall:.1%} "
        f"of {WHOLE[recall_of]} in {best.selectivity:.1%} of the keys{rank} ({others}no choice over "
        f"{bound.recall:.1%}){caveat}."
    )


def _mean(values: np.ndarray, axis: int) -> np.ndarray:
    """The mean of what is known; NaN where nothing is."""
    defined = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.where(defined, values, 0.0).sum(axis) / np.where(defined.any(axis), defined.sum(axis), np.nan)


def _numbers(values: Any) -> list[float | None]:
    """Plain numbers; None for NaN."""
    return [float(value) if np.isfinite(value) else None for value in values]
