"""The report of a session: pictures, tables and painted texts with where they come from, as one HTML file.

It lives as long as the tab. It is bounded, and what it refuses it says why.
"""

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from analysis.errors import BadSetting
from analysis.runs.price import spell_bytes
from analysis.sheet import facts as facts_of, sheet, table
from app.ui.spelled import plain

# Of the session: the list of Kept; whether it changed in this run.
KEPT, FRESH = "report_kept", "report_fresh"
MOST, MOST_BYTES = 40, 20_000_000
ROWS = 200  # of a table
CELL = 300  # characters of a cell


@dataclass(frozen=True)
class Kept:
    """One picture (SVG, or "") and what stands below it as HTML, a table or a painted text, with the facts of
    `export.facts`."""

    facts: dict[str, str]
    picture: str
    body: str

    @property
    def bytes(self) -> int:
        """About what it adds to the file."""
        return len(self.picture) * 4 // 3 + len(self.body) + sum(map(len, self.facts.values()))

    def as_html(self, width: int | None = None) -> str:
        """The picture as HTML that runs no script of it."""
        size = f' width="{width}"' if width else ""
        data = base64.b64encode(self.picture.encode()).decode()
        return f'<img alt="{html.escape(self.facts["title"])}"{size} src="data:image/svg+xml;base64,{data}">'


def all_kept() -> list[Kept]:
    """What this session has kept, the first one first."""
    return st.session_state.setdefault(KEPT, [])


def numbers(values: Mapping[str, Sequence]) -> str:
    """A table as HTML."""
    total = len(next(iter(values.values()), ()))
    rows = [[_cell(column[row]) for column in values.values()] for row in range(min(total, ROWS))]
    note = f"<p class=note>The first {ROWS:,} of {total:,} rows; the CSV holds all.</p>" if total > ROWS else ""
    return table(list(values), rows) + note


def _cell(value: object) -> str:
    spelled = "–" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return spelled if len(spelled) <= CELL else f"{spelled[:CELL]}…"


def keep(facts: dict[str, str], picture: str, body: str) -> None:
    """Put a picture and its numbers, or a painted text, into the report. Raises BadSetting where there is no room."""
    added, entries = Kept(facts, picture, body), all_kept()
    if len(entries) >= MOST:
        raise BadSetting(f"The report holds {MOST} things, and no more: remove one first.")
    if sum(entry.bytes for entry in entries) + added.bytes > MOST_BYTES:
        raise BadSetting(
            f"“{facts['title']}” has {added.bytes / 1e6:.1f} MB and the report holds {MOST_BYTES / 1e6:.0f} MB in all: "
            "remove something first."
        )
    entries.append(added)


def page(entries: Sequence[Kept]) -> str:
    """The report as one HTML file that loads nothing."""
    lead = "One chart, table or text" if len(entries) == 1 else f"{len(entries)} charts, tables and texts"
    parts = [f"<h1>A report from Focuscope</h1><p class=lead>{lead}, with where the numbers come from.</p>"]
    for entry in entries:
        body = entry.body
        if entry.picture:
            body = f"{entry.as_html()}<details><summary>Numbers</summary>{body}</details>"
        further = {name: value for name, value in entry.facts.items() if name != "title"}
        title = html.escape(entry.facts["title"])
        parts.append(f"<section class=kept><h2>{title}</h2>{body}{facts_of(further)}</section>")
    return sheet("A report", "\n".join(parts))


def contents() -> None:
    """What was kept: look through it, take things out, take it away."""
    entries = all_kept()
    st.session_state[FRESH] = False
    if not entries:
        st.caption("“Add to report”, in the menu of a chart, a table or a text, puts it here.")
        return
    for place, entry in enumerate(entries):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"{place + 1}\\. {plain(entry.facts['title'])}", width="stretch")
            look: dict[str, Any] = {"icon": ":material/close:", "type": "tertiary", "on_click": entries.pop}
            st.button("Remove", key=f"report_remove_{place}", args=(place,), **look)
        st.caption(plain(f"{entry.facts['page']} · {entry.facts['made with']}"))
        if entry.picture:
            st.html(entry.as_html(width=320))
    size = sum(entry.bytes for entry in entries)
    st.caption(f"{spell_bytes(size)} of {spell_bytes(MOST_BYTES)}; it stays until this tab is closed.")
    st.download_button(
        "The report, as one HTML file",
        lambda: page(entries).encode(),
        file_name="focuscope-report.html",
        mime="text/html",
        key="report_download",
        icon=":material/download:",
        type="primary",
        on_click="ignore",
    )


def redraw() -> None:
    """In a part of the page that is drawn alone: draw the page, whose bar shows what was kept."""
    if st.session_state.get(FRESH):
        st.rerun()
