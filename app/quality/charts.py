"""Figures of the quality tab: quality against speed, and where in the window a method loses."""

from collections.abc import Sequence

from app.quality.words import NEAR, Shown, signed
from app.speed.charts import TICKS
from app.ui.charts import CHANCE, GROUPS, RANDOM, SYMBOLS, error_bars, figure, safe

DODGE = 0.09  # of a bin's width between two methods, so that their bars do not hide each other


def trade(shown: Sequence[Shown], before: Sequence[Shown] = ()) -> dict:
    """Quality against speed, better up and right: a hollow mark at the bound that the pairs read allow, a solid one
    where attention was timed with these settings; bars are 95 % intervals, or the slowest to the fastest round. Small
    marks: what was tried `before`."""
    data = [_dense(), *map(_small, before)]
    for one in shown:
        colour, symbol = GROUPS[one.asked.place % len(GROUPS)], SYMBOLS[one.asked.place % len(SYMBOLS)]
        name = f"{one.title}, {_kind(one.row)}"
        hover = _says(one)
        data.append(_mark(name, one, one.bound, colour, f"{symbol}-open", f"{hover}: at most %{{x:.2f}} times"))
        if one.speed:
            times = one.speed["median"]
            data.append(
                {"type": "scatter", "mode": "lines", "x": [times, one.bound], "y": [one.row["difference"]] * 2}
                | {"line": {"color": colour, "width": 1, "dash": "dot"}, "showlegend": False, "hoverinfo": "skip"}
            )
            words = f"{hover}<br>measured, {one.speed['of']}, at {one.speed['length']:,} tokens: %{{x:.2f}} times dense"
            made = _mark(f"{one.title}, measured", one, times, colour, symbol, words)
            made["error_x"] = error_bars([times], [one.speed["low"]], [one.speed["high"]], colour)
            data.append(made)
    return figure(
        data,
        "speed, times dense (right is better)",
        "perplexity against dense (up is better)",
        height=440,
        margin={"l": 76, "r": 48, "t": 28, "b": 140},
        xaxis={"type": "log", "tickvals": TICKS, "ticktext": [f"{tick:g}" for tick in TICKS]},
        yaxis={"tickformat": "+.1~%", "autorange": "reversed"},
        shapes=[
            _rule({"x0": 1, "x1": 1, "y0": 0, "y1": 1, "yref": "y domain"}, RANDOM),
            _rule({"x0": 0, "x1": 1, "xref": "x domain", "y0": 0, "y1": 0}, RANDOM),
            _rule({"x0": 0, "x1": 1, "xref": "x domain", "y0": NEAR, "y1": NEAR}, CHANCE),
        ],
        annotations=[
            {"text": f"{NEAR:.0%}<br>worse", "x": 1.01, "xref": "paper", "y": NEAR, "xanchor": "left", "align": "left"}
            | {"showarrow": False, "font": {"color": CHANCE, "size": 12}}
        ],
    )


def _kind(row: dict) -> str:
    """What a hollow mark is worth."""
    if row["ceiling"]:
        return "ceiling (no faster itself)"
    return "reads the future" if row["reads_future"] else "at most"


def _says(one: Shown) -> str:
    row = one.row
    said = f"{signed(row['difference'])} perplexity<br>reads {row['reads_causal']:.1%} of the pairs"
    return f"{safe(one.asked.label)}<br>{said}"


def _small(one: Shown) -> dict:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [one.bound],
        "y": [one.row["difference"]],
        "marker": {"color": GROUPS[one.asked.place % len(GROUPS)], "symbol": "circle-open", "size": 5},
        "opacity": 0.6,
        "showlegend": False,
        "hovertemplate": f"tried before: {_says(one)}: at most %{{x:.2f}} times<extra></extra>",
    }


def _dense() -> dict:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "dense",
        "x": [1],
        "y": [0],
        "marker": {"color": RANDOM, "symbol": "circle", "size": 11},
        "hovertemplate": "dense attention: the reference<extra></extra>",
    }


def _mark(name: str, one: Shown, x: float, colour: str, symbol: str, hover: str) -> dict:
    row = one.row
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [x],
        "y": [row["difference"]],
        "error_y": error_bars([row["difference"]], [row["difference_low"]], [row["difference_high"]], colour),
        "marker": {"color": colour, "symbol": symbol, "size": 13, "line": {"width": 2.5, "color": colour}},
        "hovertemplate": f"{hover}<extra></extra>",
    }


def _rule(place: dict, colour: str) -> dict:
    return {"type": "line", **place, "line": {"color": colour, "width": 1.2, "dash": "dot"}, "layer": "below"}


def by_position(shown: Sequence[Shown]) -> dict:
    """Change of perplexity against dense by position in the window, one line per method, with 95 % intervals."""
    data = []
    for at, one in enumerate(shown):
        bins = one.row["bins"]
        width = bins[0]["last"] - bins[0]["first"]
        shift = (at - (len(shown) - 1) / 2) * DODGE * width
        change = [cell["difference"] for cell in bins]
        colour = GROUPS[one.asked.place % len(GROUPS)]
        said = [
            f"tokens {cell['first'] + 1:,}–{cell['last']:,}, n = {cell['n']:,}<br>{signed(cell['difference'])}"
            + (f" ({signed(cell['low'])} to {signed(cell['high'])})" if cell["low"] is not None else "")
            for cell in bins
        ]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": one.title,
                "x": [(cell["first"] + cell["last"] + 1) / 2 + shift for cell in bins],
                "y": change,
                "error_y": error_bars(change, [cell["low"] for cell in bins], [cell["high"] for cell in bins], colour),
                "line": {"color": colour, "width": 1.5},
                "marker": {"color": colour, "symbol": SYMBOLS[one.asked.place % len(SYMBOLS)], "size": 7},
                "text": said,
                "hovertemplate": f"{safe(one.title)}<br>%{{text}}<extra></extra>",
            }
        )
    return figure(
        data,
        "position in the window, tokens",
        "perplexity against dense (up is better)",
        height=380,
        margin={"l": 76, "r": 16, "t": 28, "b": 90},
        xaxis={"rangemode": "tozero"},
        yaxis={"tickformat": "+.0%", "autorange": "reversed"},
        shapes=[_rule({"x0": 0, "x1": 1, "xref": "x domain", "y0": 0, "y1": 0}, RANDOM)],
    )
