"""What leaves a page, in one place: its link, its runs as a bundle, the report as HTML, code, and its papers."""

from io import BytesIO

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import cached
from app.selection.menu import Page
from app.ui import foot, repeat, report, widgets

OWN_TEXT = "The link names your text, which stays on this machine: for another one take the bundle or the report along."


def popover() -> DeltaGenerator:
    """The button; what it holds is known when the page has been drawn."""
    kept = len(report.all_kept())
    return st.popover(f"Share ({kept})" if kept else "Share", icon=":material/share:", key="share")


def contents(page: Page) -> None:
    """All ways to take along what the page shows."""
    widgets.copy_link()
    drawing = cached.drawing()
    if "text" in page.chips and st.session_state["text"] not in dict(cached.samples()):
        widgets.prose(OWN_TEXT, "quiet")
    if drawing.runs:
        bundle([run.id for run in drawing.runs.values()], "The results of this page, as a bundle", "page_bundle")
    widgets.each(report.contents, repeat.rest, lambda: foot.cite(page))
    st.toggle("Classroom", key="classroom", help="Large type, one picture a screen, no tables. The link keeps it.")


def bundle(ids: list[str], label: str, key: str) -> None:
    """A button that downloads these runs and their texts as one file."""

    def made() -> bytes:
        out = BytesIO()
        cached.store().bundle(ids, out)
        return out.getvalue()

    st.download_button(
        label,
        made,
        file_name=f"focuscope-{ids[0] if len(ids) == 1 else 'runs'}.zip",
        mime="application/zip",
        key=key,
        icon=":material/outbox:",
        type="tertiary",
        on_click="ignore",
        help=cached.glossary("bundle (of runs)"),
    )
