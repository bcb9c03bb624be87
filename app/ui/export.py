"""What leaves a page: pictures, numbers and painted texts, with where they come from; and the menu of it."""

import html
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

import streamlit as st

from analysis.errors import AnalysisError
from analysis.runs import Run
from app import cached
from app.selection import state
from app.selection.menu import address
from app.ui import painted, report, tables
from app.ui.painted import part
from app.ui.spelled import plain

HOW = "pandas.read_csv(FILE, comment='#')"
PROTOCOL = ("tokens", "window", "seed", "dtype", "device", "kernel", "threads")
MOST_TOKENS = 20_000  # of a kept text
PICTURES = ("PNG", "SVG", "PDF")
_MENU = part(
    "menu",
    """<div class="menu"><button type="button" aria-haspopup="menu">⋯</button>
    <div popover role="menu"></div></div>""",
)


def facts(title: str) -> dict[str, str]:
    """Name -> words: title, page with its settings (its address here), model, text, the results that the page had read
    up to here with their protocol, versions, date."""
    chosen, runs = st.session_state, list(cached.drawing().runs.values())
    controls = {name: raw for name, raw in state.address(chosen).items() if name != "job"}
    card = cached.card(chosen["model"])
    revision = f" (revision {card.numbers['revision']})" if card and "revision" in card.numbers else ""
    text = dict(cached.samples()).get(chosen["text"]) or cached.texts().get(chosen["text"], "")
    versions = {name: version for run in runs for name, version in (run.protocol.get("versions") or {}).items()}
    words = {
        "title": title,
        "page": address(chosen["page_shown"], controls) if "page_shown" in chosen else "",
        "model": f"{chosen['model']}{revision}",
        "text": f"{text} ({chosen['text']})",
        "results": "; ".join(f"{run.verb} {run.id}, computed {run.created[:16]}{_protocol(run)}" for run in runs),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "made with": f"Focuscope, {datetime.now().astimezone():%Y-%m-%d %H:%M %z}",
    }
    return {name: " ".join(value.split()) for name, value in words.items() if value}


def _protocol(run: Run) -> str:
    parts = [f"{name} {run.protocol[name]}" for name in PROTOCOL if run.protocol.get(name) is not None]
    return f" ({', '.join(parts)})" if parts else ""


def menu(
    values: Callable[[], Mapping[str, Sequence]],
    name: str,
    key: str,
    title: str,
    chart: str = "",
    legend: Sequence[tuple[str, str]] = (),
    body: Callable[[], str] | None = None,
) -> None:
    """The menu in the corner of a chart (its key: `chart`), a table or a painted text: `values` makes its numbers,
    `name` goes into the names of files, `title` above the picture; `legend` are its (name, colour) where they are not
    in it; `body` is what the report gets as HTML, by default the numbers. A class needs none."""
    if st.session_state.get("classroom"):
        return
    about, place = facts(title), f"{key}_menu"
    asked = st.session_state.get(place) or {}
    offers = [*(PICTURES if chart else ()), "CSV", "Numbers as a table", "Add to report"]
    # The lines below an exported picture.
    made_with = [f"model {about['model']}", f"text {about['text']}", about["made with"]]
    footer = [" · ".join(filter(None, line)) for line in (made_with, [about["page"], about.get("versions")])]
    data: dict[str, Any] = {"chart": chart, "offers": offers, "title": title, "footer": footer}
    data |= {"name": f"focuscope-{name}", "legend": legend}
    if asked.get("csv"):
        written = to_csv(values(), {"read with": HOW} | about)
        data["file"] = {"id": secrets.token_hex(4), "text": written.decode()}

    def kept() -> None:
        # An <svg>, or nothing.
        picture = (st.session_state.get(place) or {}).get("keep", "").strip()
        if picture and not picture.startswith("<svg"):
            return
        try:
            report.keep(about, picture, body() if body else report.numbers(values()))
        except AnalysisError as error:
            st.toast(plain(error), icon=":material/block:")
            return
        st.session_state[report.FRESH] = True
        added = f"Added: {plain(about['title'])}. Share, on top, has the report."
        st.toast(added, icon=":material/bookmark_added:")

    look: dict[str, Any] = {"on_csv_change": _nothing, "on_table_change": _nothing, "width": "content"}
    _MENU(key=place, data=data, on_keep_change=kept, **look)
    if asked.get("table"):
        numbers = values()
        columns = {column: tables.guess(column, list(cells)) for column, cells in numbers.items()}
        dialog = st.dialog(plain(title), width="large")(tables.table)
        dialog(columns, numbers, key=f"{key}_table", identity=f"{key}{len(numbers)}", label=name)


def corner(values: Callable[[], Mapping[str, Sequence]], name: str, key: str, title: str, **more: Any) -> None:
    """The menu at the right, in a row of its own that takes little height."""
    with st.container(horizontal=True, horizontal_alignment="right", key=f"corner_{key}"):
        menu(values, name, key, title, **more)


def _nothing() -> None:
    """The page is drawn anew, and the menu sees what was asked for."""


def to_csv(values: Mapping[str, Sequence], stamp: Mapping[str, str] | None = None) -> bytes:
    """A table as CSV in UTF-8 with a byte order mark, so that a spreadsheet reads it.

    `stamp`: where it comes from, as lines that begin with # and that pandas leaves out with comment="#"; a cell that
    holds a # is quoted. A text cell that a spreadsheet would run as a formula is put in front of an apostrophe.
    """
    lines = []
    for name, value in (stamp or {}).items():
        words = " ".join(value.split()).replace('"', "'")
        # No field of the line may begin with what a spreadsheet would run as a formula.
        lines.append(f"# {name}: " + re.sub(r"([,;|])(\s*)(?=[=+\-@])", r"\1\2'", words))
    lines += [",".join(map(_cell, cells)) for cells in (list(values), *zip(*values.values(), strict=True))]
    return "".join(f"{line}\r\n" for line in lines).encode("utf-8-sig")


def _cell(cell: object) -> str:
    if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell.strip():
        cell = f"'{cell}"
    written = "" if cell is None else str(cell)
    return '"' + written.replace('"', '""') + '"' if re.search(r'[",#\r\n]', written) else written


def keep_text(tokens: dict, paint: Sequence[int], palette: list[dict], *, title: str, key: str, legend: str) -> None:
    """The menu of the painted text `key`; the first three arguments are those of `painted.painted`."""
    names = [*(entry["name"] for entry in palette), ""]
    values = {"token": tokens["piece"], legend: [names[entry] for entry in paint]}
    body = lambda: text_as_html(tokens, paint, palette, legend)  # noqa: E731  it waits for the click
    corner(lambda: values, re.sub(r"\W+", "-", title.lower()).strip("-"), key, title, body=body)


def text_as_html(tokens: dict, paint: Sequence[int], palette: list[dict], legend: str) -> str:
    """Legend and painted text as HTML that loads nothing, every token escaped; characters that several tokens spell are
    written once, as on the page."""
    pieces, strongest = list(tokens["piece"]), list(paint)
    for start, stop, spelled in painted.characters(tokens):
        pieces[start:stop] = [*[""] * (stop - start - 1), spelled]
        strongest[start:stop] = [max(paint[start:stop])] * (stop - start)
    # The share of the colour in the mix, in per cent, becomes its opacity.
    shades = [entry["light"] + bytes([round(entry["mix"] * 2.55)]).hex() for entry in palette]
    names = (_shaded(entry["name"], shade) for entry, shade in zip(palette, shades, strict=True))
    body = [
        _shaded("".join(pieces[token] for token in run), shades[entry] if entry >= 0 else "")
        for entry, run in groupby(range(min(len(pieces), MOST_TOKENS)), key=strongest.__getitem__)
    ]
    cut = f"The first {MOST_TOKENS:,} of {len(pieces):,} tokens." if len(pieces) > MOST_TOKENS else ""
    note = f"<p class=note>{cut}</p>" if cut else ""
    caption = f"<p>{html.escape(legend)}: {' '.join(names)}</p>"
    return f'{caption}<div style="white-space:pre-wrap;line-height:1.9">{"".join(body)}</div>{note}'


def _shaded(words: str, shade: str) -> str:
    escaped = html.escape(words)
    return f'<span style="background:{shade}">{escaped}</span>' if shade else escaped
