"""Speed against length: what was measured, solid; the bound and what is estimated, hollow; the paper's curve beside."""

import math
import re
from typing import Any

from analysis import papers
from analysis.runs import Run
from app import cached
from app.speed import measured, speed_charts
from app.ui import plots, tables
from app.ui.spelled import size

COLUMNS = {
    "length": tables.Column("length", "whole"),
    "speedup": tables.Column("times dense", "number", help=cached.glossary("speed-up")),
    "spread": tables.Column("slowest to fastest round"),
    "bound": tables.Column("bound", "number", help=cached.glossary("bound (speed-up)")),
    "retained": tables.Column("pairs read", "share"),
    "dense": tables.Column("dense"),
    "sparse": tables.Column("sparse"),
    "speedup_per_token": tables.Column("times dense, each token", "number"),
    "token": tables.Column("each token, dense → sparse"),
    "read": tables.Column("KV cache read, dense → sparse"),
    "kernel": tables.Column("kernel"),
    "dense_kernel": tables.Column("opponent"),
    "memory": tables.Column("memory", "number", help="peak, in multiples of queries, keys, values and output"),
    "why": tables.Column("why this kernel", wrap=True),
}
Rows = dict[str, list[dict[str, Any]]]


def show(bench: Run | None, phase: str, bound: speed_charts.Points, timed: Run | None) -> None:
    """The chart. `bench`: `phase` by length; `timed`: a model's own points, and what its longer prompts are estimated
    at. Without either only the `bound` is drawn, as predicted for even groups."""
    rows = bench.numbers["rows"] if bench else []
    kinds, where = speed_charts.KINDS, None
    measured_rows: Rows = {}
    estimated: dict[str, Any] = {}
    if rows and phase == "inference":
        # A whole model has two lines, and no spread is stored of the second.
        token = [{"length": row["length"], "speedup": row["speedup_per_token"]} for row in rows]
        measured_rows = {kinds["prefill"]: rows, kinds["per_token"]: token}
    elif rows:
        measured_rows = {kinds[phase]: rows}
    if timed:
        _timed(timed, measured_rows, estimated)
    if bench:
        bound, where = [(row["length"], row["bound"]) for row in rows if row["bound"]], bench.numbers["crossover"]
        where = where if where is not None and rows[0]["length"] < where < rows[-1]["length"] else None
    # The paper timed no single tokens, and no method but Focus.
    paper = paper_curves() if phase != "decode" and bound else {}
    figure = speed_charts.by_length(measured_rows, estimated, bound, paper, where)
    numbers = _numbers(measured_rows, estimated, bound, paper)
    plots.draw(figure, numbers, "Speed-up against length", "speed_curve", "crossover")


def _timed(run: Run, drawn: Rows, estimated: dict[str, Any]) -> None:
    """The points of a timed model, added: a launch estimates those beyond its own length, every method else measures
    three."""
    at = run.numbers["length"]
    for kind, name in speed_charts.KINDS.items():
        rounds, points = run.numbers["speedup"].get(kind), run.numbers["longer"].get(kind) or []
        if not rounds or name in drawn:
            continue
        ends = {f"speedup_{end}": rounds[end] for end in ("low", "high")}
        own = {"length": at, "speedup": rounds["median"], **ends}
        shorter = [{"length": x, "speedup": y, "speedup_low": y, "speedup_high": y} for x, y in points if x < at]
        drawn[name] = [*shorter, own]
        estimated[name] = [(x, y) for x, y in points if x > at]


def details(run: Run) -> None:
    """Every length as a row, and where the time of attention goes."""
    rows = run.numbers["rows"]
    listed = [_row(row) for row in rows]
    columns = {name: column for name, column in COLUMNS.items() if any(row.get(name) is not None for row in listed)}
    plots.listed(columns, listed, "speed_rows", "Every length", run.id + run.created, height=320)
    bars = {
        f"{row['length']:,} tokens": {
            part: row[f"{part}_ms"] for part in speed_charts.PARTS if row.get(f"{part}_ms") is not None
        }
        for row in rows
    }
    measured.time_goes(bars, "speed_curve_parts", "Where the time of attention goes")
    if run.numbers.get("merges"):
        measured.merged(run)
    measured.opponent(", ".join(dict.fromkeys(row["dense_kernel"] for row in rows)), run.numbers["missing"])


def _numbers(
    measured_rows: Rows, estimated: dict[str, Any], bound: speed_charts.Points, paper: dict[int, speed_charts.Points]
) -> list[dict[str, Any]]:
    """Every mark of the chart as a row, what was measured told from what was not."""
    names = {"speedup": "times_dense", "speedup_low": "slowest_round", "speedup_high": "fastest_round"}
    rows: list[dict[str, Any]] = [
        {"what": name, "how": "measured", "length": row["length"]} | {new: row.get(old) for old, new in names.items()}
        for name, series in measured_rows.items()
        for row in series
    ]
    drawn = [(name, "estimated", points) for name, points in estimated.items()] + [("bound", "computed", bound)]
    drawn += [(f"paper, K={groups}", "printed", points) for groups, points in paper.items()]
    blank = dict.fromkeys(names.values())
    for what, how, points in drawn:
        rows += [{"what": what, "how": how, "length": x} | blank | {"times_dense": y} for x, y in points]
    return rows


def _row(row: dict[str, Any]) -> dict[str, Any]:
    words = {"spread": f"{row['speedup_low']:.2f} to {row['speedup_high']:.2f}"}
    words |= {side: speed_charts.milliseconds(row[f"{side}_ms"]) for side in ("dense", "sparse")}
    if sides := row.get("ms_per_token"):
        words["token"] = " → ".join(speed_charts.milliseconds(sides[side]) for side in ("dense", "sparse"))
    if sides := row.get("kv_bytes_read_per_step"):
        words["read"] = " → ".join(size(sides[side]) for side in ("dense", "sparse"))
    return row | words


def paper_curves() -> dict[int, speed_charts.Points]:
    """The paper's speed-up by length: K -> (length, times), as its table 6 prints them."""
    curves: dict[int, list[tuple[int, float]]] = {}
    for cell in papers.find("focus", "table 6"):
        groups = re.search(r"K\s*=\s*(\d+)", f"{cell.row} {cell.column}")
        length = re.fullmatch(r"(?:.*\D)?([0-9][0-9,]*)\s*([KM]?)\D*", str(cell.column))
        if groups and length and cell.value is not None:
            tokens = int(length[1].replace(",", "")) * {"": 1, "K": 1e3, "M": 1e6}[length[2]]
            # Its rounded names mean powers of two: 65K is 65,536.
            tokens = int(2 ** round(math.log2(tokens)))
            curves.setdefault(int(groups[1]), []).append((tokens, float(cell.value)))
    return {groups: sorted(points) for groups, points in sorted(curves.items())}
