"""Figures of the page Speed. Solid marks were measured on this machine; hollow ones are a bound or an estimate."""

from collections.abc import Sequence

from app.ui.charts import (
    CHANCE,
    GROUPS,
    HERE,
    RANDOM,
    SHUFFLED,
    TOKENS,
    bars,
    error_bars,
    figure,
    level,
    line,
    marks,
    safe,
    upright,
)

PARTS = {  # part -> (its name, colour, pattern)
    "router": ("router", GROUPS[3], "/"),
    "sort": ("sort and gather", TOKENS, "."),
    "set_a": ("set A: same group", HERE, "-"),
    "set_b": ("set B: strangers in the window", GROUPS[2], "x"),
    "merge": ("merge", SHUFFLED, "\\"),
    "rest": ("everything else", RANDOM, ""),
}
PAPER_ON = "H100-80GB"
PAPER = {4: (RANDOM, "dash", "square"), 8: (SHUFFLED, "dashdot", "diamond")}  # K -> its line
TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
KINDS = {
    "attention": "attention alone",
    "prefill": "whole model, first token",
    "per_token": "whole model, each further token",
    "decode": "attention of one token",
}
LOOKS = {  # colour and mark of each
    KINDS["attention"]: (HERE, "circle"),
    KINDS["prefill"]: (GROUPS[2], "square"),
    KINDS["per_token"]: (GROUPS[5], "triangle-up"),
    KINDS["decode"]: (HERE, "circle"),
}


def short(length: int) -> str:
    """A length as the paper writes it: 16384 -> 16K, 1000 -> 1,000."""
    for size, unit in ((1 << 20, "M"), (1 << 10, "K")):
        if length >= size and length % size == 0:
            return f"{length // size}{unit}"
    return f"{length:,}"


def curve(
    measured: dict[str, Sequence[dict]],
    estimated: dict[str, Sequence[tuple[int, float]]],
    bound: Sequence[tuple[int, float]],
    paper: dict[int, Sequence[tuple[int, float]]],
    crossover: int | None = None,
) -> dict:
    """Speed-up against length: ours on the left, the paper's in a panel of its own with the same scale.

    `measured`: name -> rows of `length speedup speedup_low speedup_high`, solid with the spread over rounds;
    `estimated` (of the same names) and `bound`: (length, times), hollow; `paper`: K -> (length, times).
    """
    data = [_measured(name, rows) for name, rows in measured.items()]
    for name, points in estimated.items():
        if points:
            colour, symbol = LOOKS[name]
            data.append(_hollow(f"{name} (estimated)", points, colour, "dot", f"{symbol}-open"))
    if bound:
        data.append(_hollow("bound: 1 / pairs read (not measured)", bound, CHANCE, "dash", "diamond-open"))
    for groups, points in paper.items():
        colour, dash, symbol = PAPER.get(groups, PAPER[8])
        x, y = zip(*points, strict=True)
        hover = f"the paper, K={groups}<br>%{{x:,}} tokens: %{{y}} times dense"
        data.append(line(f"paper, K={groups}", x, y, colour, dash, symbol, hover, xaxis="x2"))
    left = _lengths(sorted({x for trace in data if "xaxis" not in trace for x in trace["x"]}))
    shapes, notes, panel = [level(1, width=1.5, xref="x domain")], [_note("on this machine", 0)], {}
    if crossover is not None:
        shapes.append(_crossover(crossover, left["tickvals"]))
    if paper:
        left["domain"] = [0, 0.6]
        right = _lengths(sorted({x for points in paper.values() for x, _ in points}))
        panel["xaxis2"] = right | {"domain": [0.66, 1], "anchor": "y", "title": {"text": "length, tokens"}}
        shapes.append(level(1, width=1.5, xref="x2 domain"))
        notes.append(_note(f"paper: {PAPER_ON}", 0.66))
    return figure(
        data,
        "length, tokens",
        "times as fast as dense",
        height=420,
        margin={"l": 60, "r": 16, "t": 40, "b": 100},
        xaxis=left,
        yaxis=times_axis(),
        shapes=shapes,
        annotations=notes,
        **panel,
    )


def speedups(spread: dict[str, dict | None], bound: float | None) -> dict:
    """Attention alone and the whole model as separate marks, each with its spread over rounds; hollow is the bound."""
    rows = [(name, spread[kind]) for kind, name in KINDS.items() if spread.get(kind)]
    names = [name for name, _ in rows]
    median, low, high = ([spread_of[key] for _, spread_of in rows] for key in ("median", "low", "high"))
    marker_look = {"marker": {"color": HERE, "size": 12}, "error_x": error_bars(median, low, high, HERE)}
    hover = "%{y}<br>%{x:.2f} times dense"
    data = [marks("measured (bar: slowest to fastest round)", median, names, hover, **marker_look)]
    if bound is not None and KINDS["attention"] in names:
        look = {"color": CHANCE, "symbol": "diamond-open", "size": 13, "line": {"width": 2}}
        hover = "1 / pairs read: at most %{x:.2f} times dense"
        data.append(marks("bound of attention (not measured)", [bound], [KINDS["attention"]], hover, look))
    return figure(
        data,
        "times as fast as dense",
        "",
        height=300,
        margin={"l": 16, "r": 16, "t": 32, "b": 96},
        xaxis=times_axis(),
        yaxis={"automargin": True, "autorange": "reversed"},
        shapes=[upright(1)],
    )


def parts(times: dict[str, dict[str, float]]) -> dict:
    """Where the time goes: a bar of 100% for each of `times`, name -> {part: milliseconds}, with its total."""
    names = [f"{safe(name)}, {milliseconds(sum(by_part.values()))}" for name, by_part in times.items()]
    totals, data = [sum(by_part.values()) or 1.0 for by_part in times.values()], []
    for part, (label, colour, pattern) in PARTS.items():
        values = [by_part.get(part, 0.0) for by_part in times.values()]
        if not any(values):
            continue
        x, hover = [value / total for value, total in zip(values, totals, strict=True)], "%{customdata}, %{x:.1%}"
        look = {"pattern": {"shape": pattern, "size": 7, "solidity": 0.2, "fillmode": "overlay"}}
        details = {"orientation": "h", "customdata": [milliseconds(value) for value in values]}
        data.append(bars(label, x, names, colour, f"%{{y}}<br>{label}: {hover}", marker=look, **details))
    drawn = figure(
        data,
        "share of the time",
        "",
        height=190 + 44 * len(names),
        margin={"l": 16, "r": 16, "t": 32, "b": 110},
        barmode="stack",
        xaxis={"tickformat": ".0%", "range": [0, 1]},
        yaxis={"automargin": True, "autorange": "reversed"},
    )
    drawn["layout"]["legend"]["traceorder"] = "normal"  # as the bar reads
    return drawn


def milliseconds(value: float) -> str:
    """A time in the unit a person reads."""
    if value >= 10_000:
        return f"{value / 1e3:,.1f} s"
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"


def spread(value: dict) -> str:
    """A median with its quickest and slowest round, milliseconds in one unit: 139 ms (76–202)."""
    times, unit = (1e-3, "s") if value["median"] >= 10_000 else (1, "ms")
    digits = 0 if unit == "ms" and value["median"] >= 100 else 1 if value["median"] >= 1 else 2
    median, low, high = (f"{value[end] * times:,.{digits}f}" for end in ("median", "low", "high"))
    return f"{median} {unit} ({low}–{high})"


def _measured(kind: str, rows: Sequence[dict]) -> dict:
    name, (colour, symbol) = f"{kind} (measured)", LOOKS[kind]
    x, y = [row["length"] for row in rows], [row["speedup"] for row in rows]
    ends = ([row.get(f"speedup_{end}") for row in rows] for end in ("low", "high"))
    hover = f"{name}<br>%{{x:,}} tokens: %{{y:.2f}} times dense"
    series = line(name, x, y, colour, "solid", symbol, hover, error_y=error_bars(y, *ends, colour))
    series["marker"]["size"] = 9
    return series


def _hollow(name: str, points: Sequence[tuple[int, float]], colour: str, dash: str, symbol: str) -> dict:
    x, y = zip(*points, strict=True)
    series = line(name, x, y, colour, dash, symbol, f"{name}<br>%{{x:,}} tokens: %{{y:.2f}}")
    series["marker"] |= {"size": 10, "line": {"width": 2}}
    return series


def _lengths(values: Sequence[int]) -> dict:
    apart = [x for i, x in enumerate(values) if i == 0 or x > 1.3 * values[i - 1]]
    return {"type": "log", "tickvals": apart, "ticktext": [short(x) for x in apart]}


def times_axis() -> dict:
    """A logarithmic axis of times dense."""
    return {"type": "log", "tickvals": TICKS, "ticktext": [f"{tick:g}" for tick in TICKS]}


def _crossover(length: int, lengths: Sequence[int]) -> dict:
    side = "left" if length * length < lengths[0] * lengths[-1] else "right"
    words = {"text": f"crossover near {length:,}", "textposition": "start", "xanchor": side, "textangle": 0}
    return upright(length, dash="dash") | {"label": words, "layer": "above"}


def _note(text: str, x: float) -> dict:
    place = {"xref": "paper", "yref": "paper", "x": x, "y": 1.0, "xanchor": "left", "yanchor": "bottom"}
    return {"text": text, "showarrow": False, "font": {"size": 13}, **place}
