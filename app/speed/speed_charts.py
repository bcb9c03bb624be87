"""Figures of the page Speed. Solid marks were measured on this machine; hollow ones are a bound or an estimate."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.ui.charts import (
    CHANCE,
    GROUPS,
    HERE,
    RANDOM,
    SHUFFLED,
    TOKENS,
    bars,
    figure,
    level,
    line,
    safe,
    upright,
)
from app.ui.plots import Look, curve, interval, note

# Part -> (its name, colour, pattern).
PARTS = {
    "router": ("router", GROUPS[3], "/"),
    "sort": ("sort and gather", TOKENS, "."),
    "set_a": ("set A: same group", HERE, "-"),
    "set_b": ("set B: strangers in the window", GROUPS[2], "x"),
    "merge": ("merge", SHUFFLED, "\\"),
    "rest": ("everything else", RANDOM, ""),
}
PAPER = {4: Look(RANDOM, "dash", "square"), 8: Look(SHUFFLED, "dashdot", "diamond")}  # K -> its line
TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
KINDS = {
    "attention": "attention alone",
    "prefill": "whole model, first token",
    "per_token": "whole model, each further token",
    "decode": "attention of one token",
}
COLOURS = {  # colour and mark of each
    KINDS["attention"]: (HERE, "circle"),
    KINDS["prefill"]: (GROUPS[2], "square"),
    KINDS["per_token"]: (GROUPS[5], "triangle-up"),
    KINDS["decode"]: (HERE, "circle"),
}
# (length, times as fast as dense).
Points = Sequence[tuple[int, float]]


def short(length: int) -> str:
    """A length as the paper writes it: 16384 -> 16K, 1000 -> 1,000."""
    for size, unit in ((1 << 20, "M"), (1 << 10, "K")):
        if length >= size and length % size == 0:
            return f"{length // size}{unit}"
    return f"{length:,}"


def by_length(
    measured: Mapping[str, Sequence[dict]],
    estimated: Mapping[str, Points],
    bound: Points,
    paper: Mapping[int, Points],
    crossover: int | None = None,
) -> dict:
    """Speed-up against length: ours on the left, the paper's in a panel of its own with the same scale.

    `measured`: name -> rows of `length speedup speedup_low speedup_high`, solid with the spread over rounds;
    `estimated` (of the same names) and `bound` are hollow; `paper` goes by the number of groups K.
    """
    data = [_measured(name, rows) for name, rows in measured.items()]
    for name, points in estimated.items():
        colour, symbol = COLOURS[name]
        data += [_hollow(f"{name} (estimated)", points, Look(colour, "dot", f"{symbol}-open"))] if points else []
    if bound:
        data.append(_hollow("bound: 1 / pairs read (not measured)", bound, Look(CHANCE, "dash", "diamond-open")))
    left = _lengths(sorted({x for trace in data for x in trace["x"]}))
    shapes, notes = [level(1, width=1.5, xref="x domain")], [_heading("on this machine", 0)]
    panel: dict[str, Any] = {}
    if crossover is not None:
        lengths = left["tickvals"]
        side = "left" if crossover * crossover < lengths[0] * lengths[-1] else "right"
        words = {"text": f"crossover near {crossover:,}", "textposition": "start", "xanchor": side, "textangle": 0}
        shapes.append(upright(crossover, dash="dash") | {"label": words, "layer": "above"})
    for groups, points in paper.items():
        hover = f"the paper, K={groups}<br>%{{x:,}} tokens: %{{y}} times dense"
        look = PAPER.get(groups, PAPER[8])
        lengths, times = zip(*points, strict=True)
        data.append(line(f"paper, K={groups}", lengths, times, *look, hover, xaxis="x2"))
    if paper:
        left["domain"] = [0, 0.6]
        # Both ends and one between: the panel is a third of the chart, also on a telephone.
        right = _lengths(sorted({x for points in paper.values() for x, _ in points}), apart=31)
        panel["xaxis2"] = right | {"domain": [0.66, 1], "anchor": "y", "title": {"text": "length, tokens"}}
        shapes.append(level(1, width=1.5, xref="x2 domain"))
        notes.append(_heading("paper: H100-80GB", 0.66))
    place: dict[str, Any] = {"height": 420, "margin": {"l": 60, "r": 16, "t": 40, "b": 100}}
    # A logarithmic axis of times dense.
    place |= {
        "xaxis": left,
        "yaxis": {"type": "log", "tickvals": TICKS, "ticktext": [f"{tick:g}" for tick in TICKS]},
        "shapes": shapes,
        "annotations": notes,
    } | panel
    return figure(data, "length, tokens", "times as fast as dense", **place)


def parts(times: dict[str, dict[str, float]]) -> dict:
    """Where the time goes: a bar of 100% for each of `times`, name -> {part: milliseconds}, with its total."""
    names = [f"{safe(name)}, {milliseconds(sum(by_part.values()))}" for name, by_part in times.items()]
    totals, data = [sum(by_part.values()) or 1.0 for by_part in times.values()], []
    for part, (label, colour, pattern) in PARTS.items():
        values = [by_part.get(part, 0.0) for by_part in times.values()]
        if not any(values):
            continue
        x = [value / total for value, total in zip(values, totals, strict=True)]
        look = {"pattern": {"shape": pattern, "size": 7, "solidity": 0.2, "fillmode": "overlay"}}
        details: dict[str, Any] = {"orientation": "h", "customdata": [milliseconds(value) for value in values]}
        hover = f"%{{y}}<br>{label}: %{{customdata}}, %{{x:.1%}}"
        data.append(bars(label, x, names, colour, hover, marker=look, **details))
    place: dict[str, Any] = {
        "height": 190 + 44 * len(names),
        "margin": {"l": 16, "r": 16, "t": 32, "b": 110},
        "barmode": "stack",
    }
    yaxis = {"automargin": True, "autorange": "reversed"}
    drawn = figure(data, "share of the time", "", xaxis={"tickformat": ".0%", "range": [0, 1]}, yaxis=yaxis, **place)
    drawn["layout"]["legend"]["traceorder"] = "normal"  # as the bar reads
    return drawn


def milliseconds(value: float) -> str:
    """A time in the unit a person reads."""
    if value >= 10_000:
        return f"{value / 1e3:,.1f} s"
    digits = 0 if value >= 100 else 1 if value >= 1 else 2
    return f"{value:,.{digits}f} ms"


def spread(value: dict) -> str:
    """A median with its quickest and slowest round, milliseconds in one unit: 139 ms (76–202)."""
    times, unit = (1e-3, "s") if value["median"] >= 10_000 else (1, "ms")
    digits = 0 if unit == "ms" and value["median"] >= 100 else 1 if value["median"] >= 1 else 2
    median, low, high = (f"{value[end] * times:,.{digits}f}" for end in ("median", "low", "high"))
    return f"{median} {unit} ({low}–{high})"


def _measured(kind: str, rows: Sequence[dict]) -> dict:
    colour, symbol = COLOURS[kind]
    name, look = f"{kind} (measured)", Look(colour, "solid", symbol)
    hover = f"{name}<br>%{{x:,}} tokens: %{{y:.2f}} times dense"
    series = curve(name, rows, "length", "speedup", look, hover, interval("speedup"))
    series["marker"]["size"] = 9
    return series


def _hollow(name: str, points: Points, look: Look) -> dict:
    lengths, times = zip(*points, strict=True)
    series = line(name, lengths, times, *look, f"{name}<br>%{{x:,}} tokens: %{{y:.2f}}")
    series["marker"] |= {"size": 10, "line": {"width": 2}}
    return series


def _lengths(values: Sequence[int], apart: float = 1.3) -> dict:
    """A logarithmic axis that names those of the rising values that are more than `apart` times their neighbour."""
    named: list[int] = []
    for x in values:
        if not named or x > apart * named[-1]:
            named.append(x)
    return {"type": "log", "tickvals": named, "ticktext": [short(x) for x in named]}


def _heading(text: str, x: float) -> dict:
    return note(text, x, xref="paper", font={"size": 13})
