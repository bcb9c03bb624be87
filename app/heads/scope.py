"""Which windows of a text a box covers: what it says beside its numbers, and all windows with their price."""

import streamlit as st

from analysis.runs.price import spell
from app import cached
from app.heads import one
from app.selection import state
from app.ui import offers, widgets


def choice(control: str, verb: str, args: dict, tokens: dict) -> tuple[int | None, int]:
    """(window that `verb` is asked for, None for all; its tokens), as the switch `control` says. A text of several
    windows offers all of them, which then start at the price that the button says."""
    (part, _), count, tokens_in_all = one.place(tokens), windows(tokens), len(tokens["window"])
    if count == 1:
        return part, tokens_in_all
    size = tokens["window"].count(part)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if st.session_state[control]:
            widgets.prose(f"All {count} windows, {tokens_in_all:,} tokens.", "quiet")
            st.button(
                f"Window {part + 1} only",
                key=f"{control}_one",
                type="tertiary",
                on_click=lambda: state.choose(st.session_state, **{control: False}),
            )
            return None, tokens_in_all
        price = cached.due(verb, args | {"part": None}, tokens_in_all).price
        widgets.prose(f"{said(part, tokens)}, {size:,} of {tokens_in_all:,} tokens.", "quiet")
        st.button(
            f"All {count} windows, ~{spell(price.seconds)}",
            key=f"{control}_all",
            icon=":material/play_arrow:",
            help=f"{price.sentence}.",
            on_click=_all,
            args=(control, verb),
        )
    return part, size


def _all(control: str, verb: str) -> None:
    state.choose(st.session_state, **{control: True})
    st.session_state[offers.GO] = verb


def windows(tokens: dict) -> int:
    """How many windows the text has."""
    return tokens["window"][-1] + 1


def said(part: int, tokens: dict) -> str:
    """A window in words; of a text of one, the text."""
    count = windows(tokens)
    return "This text" if count == 1 else f"Window {part + 1} of {count}"
