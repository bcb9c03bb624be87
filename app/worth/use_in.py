"""Use it in: what a serving stack is told for a method, with lines to copy, or why it cannot run it."""

from typing import Any

import streamlit as st

from analysis.commands.quality import Take, UseIn
from analysis.runs import Run
from app import cached
from app.selection import state
from app.ui import take, widgets
from app.worth import shapes

# Methods that some stack runs come first.
FIRST = ("snapkv", "h2o", "tova", "keydiff", "streaming_llm", "xattention", "skip_softmax")


def show(context: int) -> None:
    """The method, the stacks, and the lines of the chosen one."""
    chosen, methods = st.session_state, cached.catalogue()
    listed = [name for name in dict.fromkeys([*FIRST, *methods]) if name in methods and name != "dense"]
    st.subheader("Use it in", anchor=False)
    widgets.settled("use_method", listed, "snapkv")
    look: dict[str, Any] = {"format_func": lambda name: methods[name]["title"], "label_visibility": "collapsed"}
    st.selectbox("Method", listed, key="use_method", **look)
    method, model = chosen["use_method"], shapes.spoken(chosen["shape"])
    asked = {"method": method, "model": model, "length": context, "keep": chosen["keep"], "gpu": shapes.gpu()}
    rows = _ask(cached.request(UseIn, **asked)).numbers["rows"]
    able = [row["stack"] for row in rows if row["lines"]]
    shown = chosen["use_stack"] if chosen["use_stack"] in able else next(iter(able), None)
    with st.container(horizontal=True, gap="small"):
        for row in rows:
            _stack(row, row["stack"] == shown)
    for row in rows:
        if row["stack"] == shown:
            _lines(row, method)
    cannot = [f"{row['title']}: {row['says']}" for row in rows if not row["lines"]]
    if cannot:
        widgets.prose(" ".join(cannot), "quiet")


def _ask(request: UseIn) -> Run:
    stored = cached.store().find(request)
    return stored or cached.jobs().request(request, timeout=cached.PATIENCE)


def _stack(row: dict[str, Any], shown: bool) -> None:
    """A stack to choose, grey where it cannot."""

    def picked() -> None:
        state.choose(st.session_state, use_stack=row["stack"])

    st.button(
        row["title"],
        key=f"use_{row['stack']}",
        on_click=picked,
        disabled=not row["lines"],
        type="primary" if shown else "secondary",
        help=f"{row['documented']} ({row['title']} {row['of']}, read {row['read']})",
    )


def _lines(row: dict[str, Any], method: str) -> None:
    widgets.prose(row["says"], "quiet")
    with st.container(key="use_lines"):
        st.code(row["lines"], language=row["language"], wrap_lines=True)
    if row["settings"] is None:
        return
    shape = st.session_state["shape"]
    whose = {"config": shape} if shapes.is_config(shape) else {"model": shapes.spoken(shape)}
    asked = {"run": method, "method": {"name": method, "settings": row["settings"]}, **whose}
    request = Take.from_arguments(asked)
    take.button(request, f"use_{method}")
