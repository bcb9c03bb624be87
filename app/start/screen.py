"""The first screen of Read, the same on its three pages: a text with its links, the card beside it, the slider under
it, and the field that takes a text of the reader's own."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from analysis.commands.text import Keep, Start
from analysis.runs import Run
from app import cached, topbar
from app.selection import state
from app.start import pair_list
from app.ui import asking, fields, foot, packed, painted, widgets
from app.ui.reading import LONG

# Tokens that the strip marks to be gone to.
PEAKS = 20
BRING = "Paste a text, or drop a file: PDF, Word, HTML, notebook, code"
# What Links and Groups are drawn without first.
SHUFFLED = "Reading the shuffled text, a control"
OPENED = "read_opened"  # of the session: what the card was asked to open


@dataclass
class Look:
    """How a page shows the text. `tab`: what the card opens with, of `card`, `links` and `map`. `place`: while it stays
    the same, so does what is in view, whatever the `identity` becomes; by default that is the place."""

    key: str
    paint: Sequence[int]
    palette: list[dict]
    legend: str
    identity: str
    tips: Sequence[tuple[str, Sequence]]
    tab: str = "card"
    map: dict | None = None
    groups: dict = field(default_factory=dict)
    none: str = ""
    place: str | None = None


def the_text() -> str:
    """The place of a look that stays where it is while windows are added or another layer is painted."""
    return ".".join(str(st.session_state[name]) for name in ("model", "text"))


def read_text(each_window: bool = False) -> tuple[Run, dict]:
    """What the model reads in the text in use, and its table of tokens. Of a text that takes long the first window is
    drawn at once, and the others are read under it: together, or so that the page is drawn with `each_window`."""
    asking.settle_router()
    request, numbers = cached.request(Start, **state.study_args(st.session_state, "router")), asking.inspected()
    first: dict[str, Any] = {"long_text": "first"}
    if each_window:
        parts: list[dict[str, Any]] = [first, *({"windows": count} for count in range(2, numbers["windows"]))]
        run = asking.by_windows(request, parts, "Reading the text")
    else:
        run = asking.in_parts(request, first, "Reading the text", "Reading the other windows", numbers["tokens"])
    tokens = cached.columns(run, "tokens")
    # A link may lead to a window that is read next.
    if windows_read(tokens) == asking.inspected()["windows"]:
        widgets.settled("query", [None, *range(len(tokens["piece"]))], None)
    return run, tokens


def windows_read(tokens: dict) -> int:
    """How many windows of the text a table of tokens holds."""
    return tokens["window"][-1] + 1


def same_windows(run: Run) -> dict[str, str]:
    """The argument of a study that is to read the windows that a run has read."""
    return {"long_text": run.request.get("long_text", "windows")}


def read_line(run: Run, tokens: dict) -> DeltaGenerator:
    """What was read, in a few words, and beside it what is read now, with Cancel. Returns the line, to be added to."""
    inspected, count = asking.inspected(), len(tokens["piece"])
    windows, read = inspected["windows"], windows_read(tokens)
    if read < windows:
        scope = f"Window 1 of {windows}" if read == 1 else f"Windows 1 to {read} of {windows}"
    else:
        part = f" of {inspected['tokens']:,}" if count < inspected["tokens"] else ""
        cut = f", {windows} windows of {inspected['max_positions']:,}" if windows > 1 else ""
        scope = f"{'first ' if part else ''}{count:,} tokens{part}{cut} · exact"
    line = st.container(key="read_line", horizontal=True, vertical_alignment="center", gap="small")
    with line:
        widgets.prose(scope, "quiet")
    cached.drawing().place = line
    return line


def windows() -> None:
    """Of a text longer than the model reads at once: whether all its windows are read, or the first."""
    inspected = asking.inspected()
    if inspected["windows"] > 1 or st.session_state["long_text"] == "first":
        label = f"The model reads {inspected['max_positions']:,} tokens at once"
        fields.switch(label, LONG, "long_text", "window (context)")


def show(run: Run, tokens: dict, listed: dict, look: Look) -> None:
    """The text as `look` paints it, with the pairs of `listed` as its links."""
    keys, card = pair_list.keys_of(listed), asking.card(st.session_state["model"])
    row = pair_list.open_row(keys)
    if row is not None:
        pair_list.found(listed, row)
    kept = cached.store().find(_request())
    titles = {"card": "This word", "links": f"All links, {len(keys)}"} | ({"map": "Groups"} if look.map else {})
    seen: dict[str, Any] = {"identity": look.identity, "tips": look.tips, "legend": look.legend}
    data = painted.described(tokens, look.paint, look.palette, place=look.place, **seen)
    data |= {
        "arcs": pair_list.arcs(tokens, listed),
        "open": row,
        "answered": f"{look.identity}.{keys[row] if row is not None else ''}.{len(keys)}",
        "locked": st.session_state["query"] if st.session_state["query"] in range(len(tokens["piece"])) else None,
        "peaks": _peaks(tokens, run.numbers["min_distance"]),
        "links": packed.linked(tokens, cached.array(run, "links"), cached.array(run, "link_share"), card["heads"]),
        "keep": kept and _steps(kept),
        "keep_waits": None if kept else "the loss is measured next",
        "tabs": titles,
        "tab": look.tab,
        "map": look.map,
        "none": look.none,
        "isolates": bool(look.groups),
        "isolate": None,
        "clickable": True,
        "crossed": None,
    }
    data |= look.groups
    painted.read(
        data,
        key=look.key,
        on_token=lambda: state.choose(st.session_state, query=painted.clicked(look.key, "token")),
        on_arc=lambda: pair_list.choose_row(keys, painted.clicked(look.key, "arc")),
        on_class=lambda: state.choose(st.session_state, group=painted.clicked(look.key, "class")),
        on_head=lambda: st.session_state.update({OPENED: st.session_state[look.key]["head"]}),
        on_pasted=lambda: topbar.take(text=st.session_state[look.key].get("pasted") or ""),
    )
    # A head, a query of it and a key, named as "2.4.1206.977"; with ".why" behind, to *Why*.
    if opened := st.session_state.pop(OPENED, None):
        names = ("layer", "head", "query", "why_key", "head_tab")
        foot.go("map", foot.carried(()) | dict(zip(names, opened.split("."), strict=False)))
    # The field for a text of the reader's own, which takes files too; the screen above hands it what is dropped.
    bring = f"bring_{st.session_state['text_chosen']}"
    bar: dict[str, Any] = {"accept_file": "multiple", "max_upload_size": topbar.MOST_MB}
    bar["on_submit"] = lambda: topbar.take(st.session_state[bring].files, st.session_state[bring].text)
    with st.container(key="bring"):
        st.chat_input(BRING, key=bring, **bar)


def measure() -> None:
    """Under a page that is drawn: measure what the slider shows, where that is not stored and no window is awaited."""
    if asking.goes_on():
        return
    asking.after(_request(), "Measuring what reading less costs")


def _request() -> Keep:
    """Of a long text the first window, so that the price is that of one."""
    return cached.request(Keep, **state.study_args(st.session_state, long_text="first"))


def _steps(run: Run) -> dict:
    """What the slider needs: kept attention in 254 steps, 255 where a token gets none."""
    kept = cached.array(run, "kept")
    steps = np.where(np.isnan(kept), 255, np.rint(254 * np.nan_to_num(kept))).astype(np.uint8)
    covers = "first window" if kept.shape[1] < asking.inspected()["tokens"] else "whole text"
    return {"rows": run.numbers["rows"], "tokens": kept.shape[1], "covers": covers, "kept": packed.sent(steps)}


def _peaks(tokens: dict, far: int) -> list[int]:
    """The tokens that are read from afar most, above chance, in the order of the text. Those that fewer than `far`
    tokens can read from so far, near the end of a window, come only where there are no others: one reader decides."""
    received, window = tokens["received"], tokens["window"]
    ends = {number: place for place, number in enumerate(window)}
    above = [place for place, value in enumerate(received) if value is not None and value > 1]
    often = [place for place in above if ends[window[place]] - place >= 2 * far]
    return sorted(sorted(often or above, key=lambda place: -(received[place] or 0.0))[:PEAKS])
