"""Speed-up against length: measured, bound, estimates, and the curve of the paper in a panel of its own."""

import math
import re

from analysis import papers
from analysis.runs import Run
from app import cached
from app.speed import charts, shown as speed_shown
from app.ui import tables, widgets
from app.ui.spelled import size

KV_READ = "kv_bytes_read_per_step"
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


def paper_curves() -> dict[int, list[tuple[int, float]]]:
    """The paper's speed-up by length: K -> (length, times), as its table 6 prints them."""
    curves = {}
    for cell in papers.find("focus", "table 6"):
        groups, length = re.search(r"K\s*=\s*(\d+)", f"{cell.row} {cell.column}"), _length(cell.column)
        if groups and length and cell.value is not None:
            curves.setdefault(int(groups[1]), []).append((length, float(cell.value)))
    return {groups: sorted(points) for groups, points in sorted(curves.items())}


def _length(words: object) -> int | None:
    """Tokens of the paper's rounded names, which mean powers of two: 65K -> 65,536."""
    match = re.fullmatch(r"(?:.*\D)?([0-9][0-9,]*)\s*([KM]?)\D*", str(words))
    size = match and int(match[1].replace(",", "")) * {"": 1, "K": 1e3, "M": 1e6}[match[2]]
    return size and 2 ** round(math.log2(size))


def curve(run: Run | None, phase: str, bound: list[tuple[int, float]], launch: Run | None) -> None:
    """Speed-up against length. `run` of `bench`: `phase` was timed. `launch`: the model's own point, and what its
    longer
    prompts are estimated at. Without a `run` only `bound` is drawn, (length, times) as predicted for even groups."""
    rows = run.numbers["rows"] if run else []
    measured, estimated, where = _series(phase, rows) if rows else {}, {}, None
    paper = paper_curves() if phase != "decode" else {}  # the paper timed no single tokens
    for kind, name in charts.KINDS.items() if launch else ():
        spread = launch.numbers["speedup"].get(kind)
        if spread and name not in measured:
            ends = {f"speedup_{end}": spread[end] for end in ("low", "high")}
            measured[name] = [{"length": launch.numbers["length"], "speedup": spread["median"], **ends}]
        estimated[name] = [tuple(point) for point in launch.numbers["longer"].get(kind, [])[1:]]
    if rows:
        widgets.prose(run.numbers["sentence"])
        speed_shown.machine(run)
        bound, where = [(row["length"], row["bound"]) for row in rows if row["bound"]], run.numbers["crossover"]
        inside = where is not None and rows[0]["length"] < where < rows[-1]["length"]
        where = where if inside else None
    widgets.chart(
        charts.curve(measured, estimated, bound, paper, where),
        _numbers(measured, estimated, bound, paper),
        title="Speed-up against length",
        key="speed_curve",
        alt="Speed-up against length: measured solid, bound and estimates hollow, the paper in a panel of its own",
        help=cached.glossary("crossover"),
    )
    if paper:
        cells = papers.find("focus", "table 6")
        notes = [cell.protocol for cell in cells] + [cell.note for cell in cells if "caution" in cell.note]
        widgets.prose(f"The paper's panel is Focus, table 6: {'; '.join(dict.fromkeys(notes))}.", "quiet")
    if rows:
        _rows(run, rows)
        bars = {f"{row['length']:,} tokens": _parts(row) for row in rows}
        speed_shown.time_goes(bars, "speed_curve_parts", "Where the time of attention goes")
        if run.numbers.get("merges"):
            speed_shown.merged(run.numbers["merges"], run)
        kernels = ", ".join(dict.fromkeys(row["dense_kernel"] for row in rows))
        speed_shown.opponent(kernels, run.numbers["missing"])


def _series(kind: str, rows: list[dict]) -> dict[str, list[dict]]:
    """The measured lines of a `bench` run; a whole model has two, and no spread is stored of the second."""
    if kind != "inference":
        return {charts.KINDS[kind]: rows}
    token = [{"length": row["length"], "speedup": row["speedup_per_token"]} for row in rows]
    return {charts.KINDS["prefill"]: rows, charts.KINDS["per_token"]: token}


def _numbers(measured: dict, estimated: dict, bound: list[tuple[int, float]], paper: dict) -> dict:
    """Every mark of the chart as a row of a table, what was measured told from what was not."""
    rows = [
        (name, "measured", row["length"], row["speedup"], row.get("speedup_low"), row.get("speedup_high"))
        for name, series in measured.items()
        for row in series
    ]
    rows += [(name, "estimated", *point, None, None) for name, points in estimated.items() for point in points]
    rows += [("bound", "computed", *point, None, None) for point in bound]
    rows += [(f"paper, K={k}", "printed", *place, None, None) for k, points in paper.items() for place in points]
    names = ("what", "how", "length", "times_dense", "slowest_round", "fastest_round")
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def _parts(row: dict) -> dict[str, float]:
    times = {part: row.get(f"{part}_ms") for part in charts.PARTS}
    return {part: value for part, value in times.items() if value is not None}


def _rows(run: Run, rows: list[dict]) -> None:
    table = {name: [row.get(name) for row in rows] for name in COLUMNS}
    table["spread"] = [f"{row['speedup_low']:.2f} to {row['speedup_high']:.2f}" for row in rows]
    for side in ("dense", "sparse"):
        table[side] = [charts.milliseconds(row[f"{side}_ms"]) for row in rows]
    for name, key, say in (("token", "ms_per_token", charts.milliseconds), ("read", KV_READ, size)):
        pairs = [row.get(key) for row in rows]
        table[name] = [pair and f"{say(pair['dense'])} → {say(pair['sparse'])}" for pair in pairs]
    columns = {name: column for name, column in COLUMNS.items() if any(cell is not None for cell in table[name])}
    tables.table(columns, table, key="speed_rows", identity=run.id + run.created, label="Every length", height=320)
