"""A chart for a paper: SVG or PDF as wide as one column or two, drawn by plotly's own engine, kaleido, in Chrome."""

import copy
import io
import textwrap
import threading
from functools import cache
from html import escape
from importlib.util import find_spec
from typing import Any

import streamlit as st

from analysis.errors import AnalysisError, BadSetting
from analysis.limits import limits
from analysis.package import installs
from app.ui.spelled import plain

WIDTHS = {"One column": 3.25, "Two columns": 6.75}  # inches
KINDS = {"PDF": "application/pdf", "SVG": "image/svg+xml"}
# CSS pixels of an inch.
DOTS = 96
# Pixels: 8 points, as captions have.
LETTERS = 8 * DOTS / 72
# Pixels that a chart has on a page, about.
DRAWN_WIDE = 640
FONT = {"family": "Helvetica, Arial, sans-serif", "size": LETTERS, "color": "black"}  # on white paper alone
# Pixels: of the rim, a row of the legend, the axis.
EDGE, LINE, BELOW, LETTER, SYMBOL, MARK = 8, 19, 48, 5.6, 45, 5
SECONDS = 60  # for one picture
MISSING = f"This needs Chrome or Chromium on this machine, and: {installs('figures')}"
_one_at_a_time = threading.Lock()  # a browser each


class CannotDraw(AnalysisError):
    """Chrome gave no picture."""


@cache
def ready() -> bool:
    """Whether kaleido is installed and finds a browser."""
    try:
        from choreographer.browsers.chromium import Chromium
        from kaleido import calc_fig_sync  # noqa: F401
    except ImportError:
        return False
    return Chromium.find_browser(skip_local=False) is not None


def popover(figure: dict, name: str, key: str, facts: dict[str, str]) -> None:
    """The button below a chart, which opens on the sizes and kinds; nothing where the package that draws is not
    installed, nor in a shared demo, where each picture would start a browser. `name` goes into the file's name, `facts`
    (`export.facts`) into the file."""
    # To import it takes 20 MB.
    if limits().demo or find_spec("kaleido") is None:
        return
    box = st.popover("For a paper", key=f"{key}_press", icon=":material/article:", type="tertiary", on_change="rerun")
    if not box.open:
        return
    with box:
        if not ready():
            st.caption(MISSING)
            return
        names = {width: f"{width}, {inches:g} in" for width, inches in WIDTHS.items()}
        width = st.radio("Width", list(WIDTHS), key=f"{key}_press_width", horizontal=True, format_func=names.get)
        file = f"focuscope-{name}-{width.split()[0].lower()}"
        for kind, mime in KINDS.items():
            look: dict[str, Any] = {"key": f"{key}_press_{kind}", "icon": ":material/download:", "on_click": "ignore"}
            picture = lambda kind=kind: drawn(figure, kind, WIDTHS[width], facts)  # noqa: E731  it waits for the click
            st.download_button(kind, picture, file_name=f"{file}.{kind.lower()}", mime=mime, **look)
        st.caption("On white, in 8-point letters, without a title: the caption says it. It takes a few seconds.")


def drawn(figure: dict, kind: str, inches: float, facts: dict[str, str]) -> bytes:
    """The picture; where it comes from stands in the file. Errors: BadSetting without an engine, CannotDraw."""
    if not ready():
        raise BadSetting(f"{MISSING}.")
    from kaleido import calc_fig_sync

    printed = for_print(figure, inches)
    opts = {"format": kind.lower()} | {name: printed["layout"][name] for name in ("width", "height")}
    with _one_at_a_time:
        try:
            data = calc_fig_sync(printed, opts=opts, kopts={"mathjax": False, "timeout": SECONDS})
        # Of a browser: whatever it may be, the page goes on.
        except Exception as error:
            raise CannotDraw(f"Chrome could not draw this chart: {plain(error)}") from error
    about = "; ".join(f"{name}: {value}" for name, value in facts.items())
    if kind == "SVG":
        # Of the <svg> element itself.
        head, end, tail = data.partition(b">")
        return head + end + f"<desc>{escape(about)}</desc>".encode() + tail
    from pypdf import PdfReader, PdfWriter

    writer, buffer = PdfWriter(clone_from=PdfReader(io.BytesIO(data))), io.BytesIO()
    subject = about.removeprefix(f"title: {facts['title']}; ")
    writer.add_metadata({"/Title": facts["title"], "/Subject": subject, "/Creator": "Focuscope"})
    writer.write(buffer)
    return buffer.getvalue()


def for_print(figure: dict, inches: float) -> dict:
    """The figure on white at its printed size: the plot has about the proportions of the page's, and the legend stands
    above it, because below it would run into the axis."""
    printed = copy.deepcopy({"data": figure["data"], "layout": figure["layout"]})
    layout, data, width = printed["layout"], printed["data"], round(inches * DOTS)
    plot = width * min(max((layout.get("height") or 340) / DRAWN_WIDE - 0.05, 0.5), 1.0)
    above = LINE * legend_rows([trace.get("name", "") for trace in data if trace.get("showlegend", True)], width)
    layout |= {"autosize": False, "paper_bgcolor": "white", "plot_bgcolor": "white", "font": FONT}
    layout |= {"width": width, "height": round(plot + above + BELOW)}
    layout["margin"] = {side: EDGE for side in "lrtb"} | {"pad": 0}
    legend = {"orientation": "h", "xref": "paper", "x": 0, "xanchor": "left", "yref": "paper", "y": 1.02}
    legend |= {"yanchor": "bottom", "maxheight": 4 * width, "font": {"size": LETTERS}}
    layout["legend"] = layout.get("legend", {}) | legend
    for name, axis in layout.items():
        if name.startswith(("xaxis", "yaxis")):
            room = width - 2 * BELOW if name.startswith("x") else plot
            axis["title"] = _title(axis.get("title", {}), room)
            axis |= {"automargin": True, "gridcolor": "lightgray", "linecolor": "black"}
            axis["tickfont"] = axis.get("tickfont", {}) | {"size": LETTERS}
    for trace in data:
        if isinstance(size := trace.get("marker", {}).get("size"), (int, float)):
            trace["marker"]["size"] = min(size, MARK)
        if "colorbar" in trace:
            bar = trace["colorbar"]
            bar |= {"thickness": 10, "tickfont": {"size": LETTERS}, "title": _title(bar.get("title", {}), plot)}
    return printed


def legend_rows(names: list[str], width: float) -> int:
    """Rows of a legend over a chart of so many pixels: plotly gives every name the room of the longest."""
    if len(names) < 2:
        return len(names)
    across = max(1, int((width - 2 * BELOW) // (max(map(len, names)) * LETTER + SYMBOL)))
    return -(-len(names) // across)


def _title(title: dict, room: float) -> dict:
    """The title of an axis, broken into lines of at most `room` pixels."""
    lines = textwrap.wrap(title.get("text", ""), max(12, int(room / LETTER)))
    return title | {"text": "<br>".join(lines), "font": {"size": LETTERS}, "standoff": 4}
