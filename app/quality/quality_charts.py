"""Figures of Quality vs speed: quality against speed, memory or a budget, and where in the window a method loses."""

import math
from collections.abc import Sequence

from app.quality.asked import NEAR, Shown, signed
from app.speed.speed_charts import times_axis
from app.ui.charts import CHANCE, HERE, RANDOM, error_bars, line, marks, safe, style, upright
from app.ui.plots import REFERENCE, against_dense, bounds, columns, interval, note

# Change of perplexity beyond which a mark stands at the edge, so that the others keep their room.
FAR = 0.3
# Of a bin's width between two methods, so that their bars do not hide each other.
DODGE = 0.09


def trade(results: Sequence[Shown]) -> dict:
    """Quality against speed, better up and right: a hollow mark at the bound that the pairs read allow, a solid one
    where attention was timed with these settings; bars are 95% intervals, or the slowest to the fastest round."""
    edge = FAR if far(results) else math.inf
    data = [marks("dense", [1], [0], "dense attention: the reference", REFERENCE)]
    for result in results:
        colour, symbol = style(result.asked.place)
        name, hover = f"{result.title}, {_kind(result.row)}", f"{_told(result)}: at most %{{x:.2f}} times"
        data.append(_mark(name, result, result.bound, f"{symbol}-open", hover, edge))
        if result.shares and not result.row["ceiling"]:
            hover = f"{_told(result)}: by keys fetched at most %{{x:.2f}} times"
            fetched = _mark(f"{result.title}, fetched", result, result.bound_kv, "line-ns-open", hover, edge)
            data.append(fetched | {"showlegend": False})
        if result.speed:
            best, up = result.speed.best, [min(result.row["difference"], edge)] * 2
            data.append(line("", [best.median, result.bound], up, colour, "dot", None, width=1, showlegend=False))
            hover = f"{_told(result)}<br>measured, {best.name}, at {best.length:,} tokens: %{{x:.2f}} times dense"
            timed = _mark(f"{result.title}, measured", result, best.median, symbol, hover, edge)
            data.append(timed | {"error_x": error_bars([best.median], [best.low], [best.high], colour)})
    worse = note(f"{NEAR:.0%}<br>worse", 1.01, NEAR, CHANCE, xref="paper", yref="y", yanchor="middle", align="left")
    return against_dense(
        data,
        "speed, times dense (right is better)",
        NEAR,
        xaxis=times_axis(),
        shapes=[upright(1, width=1.2)],
        annotations=[worse],
    )


def memory(results: Sequence[Shown], dense: int) -> dict:
    """Quality against the bytes of the KV cache that are held, better up and left; bars are 95% intervals. `dense`:
    what dense attention holds."""
    edge = FAR if far(results) else math.inf
    data = [marks("dense", [dense / 1e6], [0], "dense attention: %{x:.2f} MB", REFERENCE)]
    for result in results:
        label = safe(result.row["label"])
        hover = f"{label}<br>{signed(result.row['difference'])} perplexity<br>%{{x:.2f}} MB held"
        megabytes, symbol = result.row["kv_bytes"] / 1e6, style(result.asked.place)[1]
        data.append(_mark(result.title, result, megabytes, symbol, hover, edge))
    return against_dense(data, "KV cache held, MB (left is better)", NEAR, xaxis={"rangemode": "tozero"})


def searched(rows: Sequence[dict], front: Sequence[str], lose: float, axis: str) -> dict:
    """What a search tried, `label budget difference left` of each: the frontier as a line, those that were dropped
    early hollow; `lose`: the most that was allowed. Changes beyond 100% stand at the edge."""

    def places(part: Sequence[dict]) -> tuple[list, list]:
        return [row["budget"] for row in part], [min(row["difference"], 1.0) for row in part]

    data = []
    for left, name, symbol in ((False, "dropped early", "circle-open"), (True, "read to the end", "circle")):
        part = [row for row in rows if row["left"] == left]
        look = {"color": HERE if left else RANDOM, "symbol": symbol, "size": 9}
        labels = [f"{safe(row['label'])}<br>{signed(row['difference'])} perplexity" for row in part]
        data.append(marks(name, *places(part), "%{customdata}<br>%{x:.0%} kept or read", look, customdata=labels))
    best = [row for label in front for row in rows if row["label"] == label]
    data.append(line("frontier", *places(best), HERE, "solid", None, width=1.5))
    return against_dense(data, axis, lose, height=360, xaxis={"tickformat": ".0%", "rangemode": "tozero"})


def by_position(results: Sequence[Shown]) -> dict:
    """Change of perplexity against dense by position in the window, one line per method, with 95% intervals."""
    data = []
    for place, result in enumerate(results):
        bins, (colour, symbol) = result.row["bins"], style(result.asked.place)
        shift = (place - (len(results) - 1) / 2) * DODGE * (bins[0]["last"] - bins[0]["first"])
        x = [(cell["first"] + cell["last"] + 1) / 2 + shift for cell in bins]
        labels = [f"tokens {cell['first'] + 1:,}–{cell['last']:,}, n = {cell['n']:,}" for cell in bins]
        hover = f"{safe(result.title)}<br>%{{text}}<br>%{{y:+.1%}}"
        details = {"error_y": bounds(bins, "difference", ("low", "high"), colour), "text": labels}
        change = columns(bins, "difference")["difference"]
        data.append(line(result.title, x, change, colour, "solid", symbol, hover, 1.5, **details))
    return against_dense(data, "position in the window, tokens", height=380, xaxis={"rangemode": "tozero"})


def far(results: Sequence[Shown]) -> list[Shown]:
    """The methods beyond the chart's edge, where some are not."""
    beyond = [result for result in results if result.row["difference"] > FAR]
    return beyond if len(beyond) < len(results) else []


def _kind(row: dict) -> str:
    if row["ceiling"]:
        return "ceiling (no faster itself)"
    return "reads the future" if row["reads_future"] else "at most"


def _told(result: Shown) -> str:
    row = result.row
    together = f", {row['reads_kv']:.1%} per key-value head" if result.shares else ""
    reads = f"reads {row['reads_causal']:.1%} of the pairs{together}"
    return f"{safe(result.asked.label)}<br>{signed(row['difference'])} perplexity<br>{reads}"


def _mark(name: str, result: Shown, x: float, symbol: str, hover: str, edge: float) -> dict:
    """A mark of a method with its interval; under one beyond the edge an arrow, and the caption says how far it is."""
    colour, change = style(result.asked.place)[0], result.row["difference"]
    look = {"color": colour, "symbol": symbol, "size": 13, "line": {"width": 2.5, "color": colour}}
    if change <= edge:
        return marks(name, [x], [change], hover, look, error_y=_interval(result, colour))
    # A mark at the edge without an arrow would be read as a change of 30%.
    arrow = {"text": ["↓"], "textposition": "bottom center", "textfont": {"size": 18, "color": colour}}
    return marks(name, [x], [edge], hover, look, cliponaxis=False, **arrow) | {"mode": "markers+text"}


def _interval(result: Shown, colour: str) -> dict:
    return bounds([result.row], "difference", interval("difference"), colour)
