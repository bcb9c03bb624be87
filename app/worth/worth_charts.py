"""Figures of the page Is it worth it?: shares, gains and the cache by context. All estimated: hollow marks."""

import math

from app.ui.charts import CHANCE, HERE, figure, line, upright
from app.ui.plots import SHARE_OF_1, Look, curve, note
from app.ui.reading import rows_of

GREY = "#7F8A93"
PREFILL = Look(HERE, "solid", "circle-open")
DECODE = (
    Look("#C0803A", "dash", "square-open"),
    Look("#A07CC5", "dashdot", "diamond-open"),
    Look("#228833", "dot", "x-open"),
)
# Sequences at once, drawn beside the chosen number.
USUAL = (1, 8, 64)


def batches(chosen: int) -> list[int]:
    """The numbers of sequences that are drawn: the usual ones, with the chosen one in the place of its nearest."""
    nearest = min(USUAL, key=lambda usual: max(usual, chosen) / min(usual, chosen))
    return sorted({*USUAL} - {nearest} | {chosen})


def shares(rows: dict, chosen: int, context: int, longest: int | None) -> dict:
    """Attention's share of the arithmetic before the first token, and of the bytes of each later one."""
    data = _lines(rows, chosen, "prefill_share", "decode_share", "%{y:.1%}")
    return _figure(data, rows, context, longest, "attention's share, estimated", SHARE_OF_1)


def gains(rows: dict, chosen: int, context: int, longest: int | None, keep: float) -> dict:
    """The largest possible gains when a fraction `keep` of the keys is read, with the line that none can pass."""
    data = _lines(rows, chosen, "prefill_gain", "decode_gain", "%{y:.2f} times faster")
    ends = [min(rows["context"]), max(rows["context"])]
    data.append(line(f"all time in attention ({1 / keep:.3g} times)", ends, [1 / keep] * 2, CHANCE, "dot", None))
    yaxis = {"type": "log", "dtick": "D2"} if keep < 0.3 else {}
    return _figure(data, rows, context, longest, "times faster at most, estimated", yaxis)


def memory(rows: dict, chosen: int, context: int, longest: int | None) -> dict:
    """The KV cache, and the weights that a step reads, in GB."""
    gigabytes = rows | {name: [size / 1e9 for size in rows[name]] for name in ("kv_bytes", "weight_bytes")}
    data = []
    for batch, look in zip(batches(chosen), DECODE, strict=True):
        name, hover = f"KV cache, {many(batch)}", f"%{{x:,}} tokens, {many(batch)}<br>KV cache %{{y:.3s}} GB"
        data.append(curve(name, rows_of(gigabytes, batch=batch), "context", "kv_bytes", look, hover))
    look, hover = Look(HERE, "solid", None), "weights read in a step: %{y:.3s} GB"
    data.append(curve("weights read", rows_of(gigabytes, batch=chosen), "context", "weight_bytes", look, hover))
    return _figure(data, rows, context, longest, "GB, estimated", {"type": "log"})


def _lines(rows: dict, chosen: int, prefill: str, decode: str, value: str) -> list[dict]:
    """One line for the prefill, which no batch changes, and one per number of sequences for the steps after it."""
    hover = f"%{{x:,}} tokens<br>first token: {value}"
    data = [curve("first token, any batch", rows_of(rows, batch=chosen), "context", prefill, PREFILL, hover)]
    for batch, look in zip(batches(chosen), DECODE, strict=True):
        hover, width = f"%{{x:,}} tokens, {many(batch)}<br>each later token: {value}", 3 if batch == chosen else 1.5
        name, points = f"later tokens, {many(batch)}", rows_of(rows, batch=batch)
        data.append(curve(name, points, "context", decode, look, hover, width=width))
    return data


def many(batch: int) -> str:
    """A number of sequences in words."""
    return "1 sequence" if batch == 1 else f"{batch} sequences"


def _figure(data: list[dict], rows: dict, context: int, longest: int | None, y: str, yaxis: dict) -> dict:
    """Contexts on a logarithmic axis, the chosen one marked, and what lies beyond the model's own shaded."""
    ticks, notes = sorted(set(rows["context"])), []
    shapes = [upright(context, GREY, width=2)]
    if longest and longest < ticks[-1]:
        place = {"type": "rect", "x0": max(longest, ticks[0] / 2), "x1": 2 * ticks[-1], "y0": 0, "y1": 1}
        look = {"fillcolor": GREY, "opacity": 0.13, "line": {"width": 0}, "layer": "below", "yref": "paper"}
        shapes.append(place | look)
        notes.append(note("shaded: longer than the model was made for", 0, xref="paper"))
    axis = {"type": "log", "tickvals": ticks[::2], "ticktext": [_short(tick) for tick in ticks[::2]]}
    axis["range"] = [math.log10(ticks[0] / 1.3), math.log10(ticks[-1] * 1.3)]
    return figure(data, "context, tokens", y, height=380, xaxis=axis, yaxis=yaxis, shapes=shapes, annotations=notes)


def _short(tokens: int) -> str:
    """Powers of two as people say them: 4K, 1M."""
    return f"{tokens >> 20}M" if tokens >= 1 << 20 else f"{tokens >> 10}K" if tokens >= 1024 else str(tokens)
