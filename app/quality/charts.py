"""Figures of the quality tab: quality against speed, and where in the window a method loses."""

import math
from collections.abc import Sequence

from app.quality.words import NEAR, Shown, signed
from app.speed.charts import times_axis
from app.ui.charts import CHANCE, HERE, RANDOM, error_bars, figure, level, line, marks, safe, style, upright

FAR = 0.3  # change of perplexity beyond which a mark stands at the edge, so that the others keep their room
DODGE = 0.09  # of a bin's width between two methods, so that their bars do not hide each other


def trade(results: Sequence[Shown], before: Sequence[Shown] = ()) -> dict:
    """Quality against speed, better up and right: a hollow mark at the bound that the pairs read allow, a solid one
    where attention was timed with these settings; bars are 95% intervals, or the slowest to the fastest round. Small
    marks: what was tried `before`."""
    edge = FAR if far(results) else math.inf
    reference = {"color": RANDOM, "symbol": "circle", "size": 11}
    data = [
        marks("dense", [1], [0], "dense attention: the reference", reference),
        *(_small(result) for result in before if result.row["difference"] <= edge),
    ]
    for result in results:
        colour, symbol = style(result.asked.place)
        hover = _says(result)
        data.append(
            _mark(_kind(result.row), result, result.bound, f"{symbol}-open", f"{hover}: at most %{{x:.2f}} times", edge)
        )
        if result.shares and not result.row["ceiling"]:
            bound_hover = f"{hover}: by keys fetched at most %{{x:.2f}} times"
            data.append(
                _mark("fetched", result, result.bound_kv, "line-ns-open", bound_hover, edge) | {"showlegend": False}
            )
        if result.speed:
            times, change = result.speed["median"], [min(result.row["difference"], edge)] * 2
            data.append(line("", [times, result.bound], change, colour, "dot", None, width=1, showlegend=False))
            timed = f"{hover}<br>measured, {result.speed['of']}, at {result.speed['length']:,} tokens: "
            timed += "%{x:.2f} times dense"
            mark = _mark("measured", result, times, symbol, timed, edge)
            mark["error_x"] = error_bars([times], [result.speed["low"]], [result.speed["high"]], colour)
            data.append(mark)
    return figure(
        data,
        "speed, times dense (right is better)",
        "perplexity against dense (up is better)",
        height=400,
        margin={"l": 76, "r": 48, "t": 20, "b": 120},
        xaxis=times_axis(),
        yaxis={"tickformat": "+.1~%", "autorange": "reversed"},
        shapes=[upright(1, width=1.2), level(0), level(NEAR, CHANCE)],
        annotations=[
            {"text": f"{NEAR:.0%}<br>worse", "x": 1.01, "xref": "paper", "y": NEAR, "xanchor": "left", "align": "left"}
            | {"showarrow": False, "font": {"color": CHANCE, "size": 12}},
            *(_beyond(result, edge, place) for place, result in enumerate(far(results))),
        ],
    )


def memory(results: Sequence[Shown], dense: int) -> dict:
    """Quality against the bytes of the KV cache that are held, better up and left; bars are 95% intervals. `dense`:
    what dense attention holds."""
    edge = FAR if far(results) else math.inf
    reference = {"color": RANDOM, "symbol": "circle", "size": 11}
    data = [marks("dense", [dense / 1e6], [0], "dense attention: %{x:.2f} MB", reference)]
    for result in results:
        colour, symbol = style(result.asked.place)
        change, megabytes = result.row["difference"], result.row["kv_bytes"] / 1e6
        hover = f"{safe(result.run.numbers['rows'][1]['label'])}<br>{signed(change)} perplexity<br>%{{x:.2f}} MB held"
        look = {"color": colour, "symbol": symbol, "size": 13}
        ends = ([result.row[f"difference_{end}"]] for end in ("low", "high"))
        bar = {} if change > edge else {"error_y": error_bars([change], *ends, colour)}
        data.append(marks(result.title, [megabytes], [min(change, edge)], hover, look, **bar))
    return figure(
        data,
        "KV cache held, MB (left is better)",
        "perplexity against dense (up is better)",
        height=400,
        margin={"l": 76, "r": 48, "t": 28, "b": 120},
        xaxis={"rangemode": "tozero"},
        yaxis={"tickformat": "+.1~%", "autorange": "reversed"},
        shapes=[level(0), level(NEAR, CHANCE)],
    )


def searched(rows: Sequence[dict], front: Sequence[str], lose: float, axis: str) -> dict:
    """What a search tried, `label budget difference left` of each: the frontier as a line, those that were dropped
    early hollow; `lose`: the most that was allowed. Changes beyond 100% stand at the edge."""
    data = []
    for left, name, symbol in ((False, "dropped early", "circle-open"), (True, "read to the end", "circle")):
        part = [row for row in rows if row["left"] == left]
        look = {"color": HERE if left else RANDOM, "symbol": symbol, "size": 9}
        hover = [f"{safe(row['label'])}<br>{signed(row['difference'])} perplexity" for row in part]
        labels = {"customdata": hover}
        x, y = [row["budget"] for row in part], [min(row["difference"], 1.0) for row in part]
        data.append(marks(name, x, y, "%{customdata}<br>%{x:.0%} kept or read", look, **labels))
    best = [row for label in front for row in rows if row["label"] == label]
    x, y = [row["budget"] for row in best], [min(row["difference"], 1.0) for row in best]
    data.append(line("frontier", x, y, HERE, "solid", None, width=1.5))
    return figure(
        data,
        axis,
        "perplexity against dense (up is better)",
        height=360,
        margin={"l": 76, "r": 24, "t": 20, "b": 100},
        xaxis={"tickformat": ".0%", "rangemode": "tozero"},
        yaxis={"tickformat": "+.0%", "autorange": "reversed"},
        shapes=[level(0), level(lose, CHANCE)],
    )


def far(results: Sequence[Shown]) -> list[Shown]:
    """The methods beyond the chart's edge, where some are not."""
    beyond = [result for result in results if result.row["difference"] > FAR]
    return beyond if len(beyond) < len(results) else []


def _beyond(result: Shown, edge: float, place: int) -> dict:
    """An arrow out of the chart, with the change that lies there, over those of so many before it. The axis is
    logarithmic."""
    look = {"color": style(result.asked.place)[0], "size": 12}
    arrow = {"text": signed(result.row["difference"]), "x": math.log10(result.bound), "y": edge}
    arrow |= {"ax": 0, "ay": -34 - 16 * place}
    return arrow | {"showarrow": True, "arrowhead": 2, "arrowcolor": look["color"], "font": look}


def _kind(row: dict) -> str:
    if row["ceiling"]:
        return "ceiling (no faster itself)"
    return "reads the future" if row["reads_future"] else "at most"


def _says(result: Shown) -> str:
    row = result.row
    spelled = f"{signed(row['difference'])} perplexity<br>reads {row['reads_causal']:.1%} of the pairs"
    spelled += f", {row['reads_kv']:.1%} per key-value head" if result.shares else ""
    return f"{safe(result.asked.label)}<br>{spelled}"


def _small(result: Shown) -> dict:
    look = {"color": style(result.asked.place)[0], "symbol": "circle-open", "size": 5}
    hover = f"tried before: {_says(result)}: at most %{{x:.2f}} times"
    return marks("", [result.bound], [result.row["difference"]], hover, look, opacity=0.6, showlegend=False)


def _mark(kind: str, result: Shown, x: float, symbol: str, hover: str, edge: float) -> dict:
    colour, _ = style(result.asked.place)
    look = {"color": colour, "symbol": symbol, "size": 13, "line": {"width": 2.5, "color": colour}}
    change, low, high = ([result.row[f"difference{end}"]] for end in ("", "_low", "_high"))
    if change[0] > edge:
        return marks(f"{result.title}, {kind}", [x], [edge], hover, look)
    return marks(f"{result.title}, {kind}", [x], change, hover, look, error_y=error_bars(change, low, high, colour))


def by_position(results: Sequence[Shown]) -> dict:
    """Change of perplexity against dense by position in the window, one line per method, with 95% intervals."""
    data = []
    for place, result in enumerate(results):
        bins = result.row["bins"]
        width = bins[0]["last"] - bins[0]["first"]
        shift = (place - (len(results) - 1) / 2) * DODGE * width
        change, low, high = ([cell[name] for cell in bins] for name in ("difference", "low", "high"))
        (colour, symbol), bounds = (
            style(result.asked.place),
            error_bars(change, low, high, style(result.asked.place)[0]),
        )
        labels = [
            f"tokens {cell['first'] + 1:,}–{cell['last']:,}, n = {cell['n']:,}<br>{signed(cell['difference'])}"
            + (f" ({signed(cell['low'])} to {signed(cell['high'])})" if cell["low"] is not None else "")
            for cell in bins
        ]
        x, hover = (
            [(cell["first"] + cell["last"] + 1) / 2 + shift for cell in bins],
            f"{safe(result.title)}<br>%{{text}}",
        )
        data.append(line(result.title, x, change, colour, "solid", symbol, hover, 1.5, error_y=bounds, text=labels))
    return figure(
        data,
        "position in the window, tokens",
        "perplexity against dense (up is better)",
        height=380,
        margin={"l": 76, "r": 16, "t": 28, "b": 90},
        xaxis={"rangemode": "tozero"},
        yaxis={"tickformat": "+.0%", "autorange": "reversed"},
        shapes=[level(0)],
    )
