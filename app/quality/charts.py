"""Figures of the quality tab: quality against speed, and where in the window a method loses."""

import math
from collections.abc import Sequence

from app.quality.words import NEAR, Shown, signed
from app.speed.charts import times_axis
from app.ui.charts import CHANCE, HERE, RANDOM, error_bars, figure, level, line, marks, safe, style, upright

FAR = 0.3  # change of perplexity beyond which a mark stands at the edge, so that the others keep their room
DODGE = 0.09  # of a bin's width between two methods, so that their bars do not hide each other


def trade(shown: Sequence[Shown], before: Sequence[Shown] = ()) -> dict:
    """Quality against speed, better up and right: a hollow mark at the bound that the pairs read allow, a solid one
    where attention was timed with these settings; bars are 95% intervals, or the slowest to the fastest round. Small
    marks: what was tried `before`."""
    edge = FAR if far(shown) else math.inf
    reference = {"color": RANDOM, "symbol": "circle", "size": 11}
    data = [
        marks("dense", [1], [0], "dense attention: the reference", reference),
        *(_small(one) for one in before if one.row["difference"] <= edge),
    ]
    for one in shown:
        colour, symbol = style(one.asked.place)
        hover = _says(one)
        data.append(_mark(_kind(one.row), one, one.bound, f"{symbol}-open", f"{hover}: at most %{{x:.2f}} times", edge))
        if one.shares and not one.row["ceiling"]:
            said = f"{hover}: by keys fetched at most %{{x:.2f}} times"
            data.append(_mark("fetched", one, one.bound_kv, "line-ns-open", said, edge) | {"showlegend": False})
        if one.speed:
            times, change = one.speed["median"], [min(one.row["difference"], edge)] * 2
            data.append(line("", [times, one.bound], change, colour, "dot", None, width=1, showlegend=False))
            words = f"{hover}<br>measured, {one.speed['of']}, at {one.speed['length']:,} tokens: %{{x:.2f}} times dense"
            made = _mark("measured", one, times, symbol, words, edge)
            made["error_x"] = error_bars([times], [one.speed["low"]], [one.speed["high"]], colour)
            data.append(made)
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
            *(_beyond(one, edge, place) for place, one in enumerate(far(shown))),
        ],
    )


def memory(shown: Sequence[Shown], dense: int) -> dict:
    """Quality against the bytes of the KV cache that are held, better up and left; bars are 95% intervals. `dense`:
    what dense attention holds."""
    edge = FAR if far(shown) else math.inf
    reference = {"color": RANDOM, "symbol": "circle", "size": 11}
    data = [marks("dense", [dense / 1e6], [0], "dense attention: %{x:.2f} MB", reference)]
    for one in shown:
        colour, symbol = style(one.asked.place)
        change, held = one.row["difference"], one.row["kv_bytes"] / 1e6
        hover = f"{safe(one.run.numbers['rows'][1]['label'])}<br>{signed(change)} perplexity<br>%{{x:.2f}} MB held"
        look = {"color": colour, "symbol": symbol, "size": 13}
        ends = ([one.row[f"difference_{end}"]] for end in ("low", "high"))
        bar = {} if change > edge else {"error_y": error_bars([change], *ends, colour)}
        data.append(marks(one.title, [held], [min(change, edge)], hover, look, **bar))
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


def searched(rows: Sequence[dict], front: Sequence[str], lose: float, what: str) -> dict:
    """What a search tried, `label budget difference left` of each: the frontier as a line, those that were dropped
    early hollow; `lose`: the most that was allowed. Changes beyond 100% stand at the edge."""
    data = []
    for left, name, symbol in ((False, "dropped early", "circle-open"), (True, "read to the end", "circle")):
        mine = [row for row in rows if row["left"] == left]
        look = {"color": HERE if left else RANDOM, "symbol": symbol, "size": 9}
        hover = [f"{safe(row['label'])}<br>{signed(row['difference'])} perplexity" for row in mine]
        more = {"customdata": hover}
        x, y = [row["budget"] for row in mine], [min(row["difference"], 1.0) for row in mine]
        data.append(marks(name, x, y, "%{customdata}<br>%{x:.0%} kept or read", look, **more))
    best = [row for label in front for row in rows if row["label"] == label]
    x, y = [row["budget"] for row in best], [min(row["difference"], 1.0) for row in best]
    data.append(line("frontier", x, y, HERE, "solid", None, width=1.5))
    return figure(
        data,
        what,
        "perplexity against dense (up is better)",
        height=360,
        margin={"l": 76, "r": 24, "t": 20, "b": 100},
        xaxis={"tickformat": ".0%", "rangemode": "tozero"},
        yaxis={"tickformat": "+.0%", "autorange": "reversed"},
        shapes=[level(0), level(lose, CHANCE)],
    )


def far(shown: Sequence[Shown]) -> list[Shown]:
    """The methods beyond the chart's edge, where some are not."""
    found = [one for one in shown if one.row["difference"] > FAR]
    return found if len(found) < len(shown) else []


def _beyond(one: Shown, edge: float, place: int) -> dict:
    """An arrow out of the chart, with the change that lies there, over those of so many before it. The axis is
    logarithmic."""
    look = {"color": style(one.asked.place)[0], "size": 12}
    made = {"text": signed(one.row["difference"]), "x": math.log10(one.bound), "y": edge}
    made |= {"ax": 0, "ay": -34 - 16 * place}
    return made | {"showarrow": True, "arrowhead": 2, "arrowcolor": look["color"], "font": look}


def _kind(row: dict) -> str:
    if row["ceiling"]:
        return "ceiling (no faster itself)"
    return "reads the future" if row["reads_future"] else "at most"


def _says(one: Shown) -> str:
    row = one.row
    said = f"{signed(row['difference'])} perplexity<br>reads {row['reads_causal']:.1%} of the pairs"
    said += f", {row['reads_kv']:.1%} per key-value head" if one.shares else ""
    return f"{safe(one.asked.label)}<br>{said}"


def _small(one: Shown) -> dict:
    look = {"color": style(one.asked.place)[0], "symbol": "circle-open", "size": 5}
    hover = f"tried before: {_says(one)}: at most %{{x:.2f}} times"
    return marks("", [one.bound], [one.row["difference"]], hover, look, opacity=0.6, showlegend=False)


def _mark(kind: str, one: Shown, x: float, symbol: str, hover: str, edge: float) -> dict:
    colour, _ = style(one.asked.place)
    look = {"color": colour, "symbol": symbol, "size": 13, "line": {"width": 2.5, "color": colour}}
    change, low, high = ([one.row[f"difference{end}"]] for end in ("", "_low", "_high"))
    if change[0] > edge:
        return marks(f"{one.title}, {kind}", [x], [edge], hover, look)
    return marks(f"{one.title}, {kind}", [x], change, hover, look, error_y=error_bars(change, low, high, colour))


def by_position(shown: Sequence[Shown]) -> dict:
    """Change of perplexity against dense by position in the window, one line per method, with 95% intervals."""
    data = []
    for at, one in enumerate(shown):
        bins = one.row["bins"]
        width = bins[0]["last"] - bins[0]["first"]
        shift = (at - (len(shown) - 1) / 2) * DODGE * width
        change, low, high = ([cell[name] for cell in bins] for name in ("difference", "low", "high"))
        (colour, symbol), bounds = style(one.asked.place), error_bars(change, low, high, style(one.asked.place)[0])
        said = [
            f"tokens {cell['first'] + 1:,}–{cell['last']:,}, n = {cell['n']:,}<br>{signed(cell['difference'])}"
            + (f" ({signed(cell['low'])} to {signed(cell['high'])})" if cell["low"] is not None else "")
            for cell in bins
        ]
        x, hover = [(cell["first"] + cell["last"] + 1) / 2 + shift for cell in bins], f"{safe(one.title)}<br>%{{text}}"
        data.append(line(one.title, x, change, colour, "solid", symbol, hover, 1.5, error_y=bounds, text=said))
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
