"""The texts that calibrate and test routers: several files at once, or one long text cut into parts."""

import re
from io import BytesIO

import streamlit as st

from app import cached, topbar
from app.selection import state
from app.ui import fields, widgets

LEAST = 6  # texts: three calibrate and three test
ALIKE = "Parts of one text are more alike than texts of several authors, so a router finds a little more in them."


def show() -> None:
    """The choice among stored texts, a box for several files, and the text in use in parts."""
    fields.corpus("route_corpus", "", ("Texts from", "Texts"), f"Choose at least {LEAST}", "corpus")
    nonce = st.session_state.setdefault("route_nonce", 0)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        with st.popover("Upload several texts", icon=":material/upload_file:", key=f"route_popover_{nonce}"):
            name = f"route_upload_{nonce}"
            st.file_uploader(
                f"At least {LEAST} files",
                key=name,
                accept_multiple_files=True,
                on_change=_uploaded,
                args=(name,),
                help=topbar.FILES,
            )
        st.button(
            f"Cut the text in use into {LEAST} parts",
            key="route_cut",
            on_click=_cut,
            icon=":material/content_cut:",
            help=ALIKE,
        )
    widgets.trouble("route_trouble")


def _uploaded(name: str) -> None:
    files = st.session_state.get(name) or []
    with widgets.attempt("route_trouble"):
        uploads = [(file.getvalue(), file.name) for file in files if isinstance(file, BytesIO)]
        _take([topbar.bring(data, title) for data, title in uploads])
    for file in files:
        topbar.release(file)
    st.session_state["route_nonce"] += 1  # a fresh, empty uploader


def _cut() -> None:
    name, text = cached.store().text(st.session_state["text"])
    with widgets.attempt("route_trouble"):
        texts = parts(text, LEAST)
        state.choose(st.session_state, route_corpus=None)
        _take(
            [topbar.bring(part.encode(), f"{name}, part {number} of {LEAST}") for number, part in enumerate(texts, 1)]
        )


def _take(keys: list[str]) -> None:
    """Texts that came in are chosen, beside those that were."""
    before = (st.session_state["route_corpus"] or "").split("+")
    offered = cached.texts()
    chosen = [key for key in dict.fromkeys([*before, *keys]) if key in offered]
    state.choose(st.session_state, route_corpus="+".join(chosen[: fields.MOST_TEXTS]) or None)


def parts(text: str, count: int) -> list[str]:
    """A text in `count` parts of about the same length, cut where a line ends, or a word."""
    ends = [0]
    for part in range(1, count):
        goal = len(text) * part // count
        near = text.find("\n", goal, goal + len(text) // (4 * count))
        space = re.compile(r"\s").search(text, goal)
        ends.append(max(ends[-1], near + 1 if near >= 0 else space.end() if space else goal))
    return [text[first:last] for first, last in zip(ends, [*ends[1:], len(text)], strict=True)]
