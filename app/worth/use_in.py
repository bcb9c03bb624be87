"""Use it in: what a serving stack is told for a method, with lines to copy, or why it cannot run it."""

from functools import partial
from typing import Any

import streamlit as st

from analysis.commands.quality import Take, UseIn
from analysis.runs import Run
from app import cached
from app.ui import take, widgets
from app.ui.tabs import tabs
from app.worth import shapes

# Methods that some stack runs come first.
FIRST = ("snapkv", "h2o", "tova", "keydiff", "streaming_llm", "xattention", "skip_softmax")


def show(context: int) -> None:
    """The method, and the stacks as tabs: those that run it before those that cannot, which are grey."""
    chosen, methods, shape = st.session_state, cached.catalogue(), st.session_state["shape"]
    listed = [name for name in dict.fromkeys([*FIRST, *methods]) if name in methods and name != "dense"]
    widgets.settled("use_method", listed, "snapkv")
    method, model = chosen["use_method"], shapes.spoken(shape)
    asked = {"method": method, "model": model, "length": context, "keep": chosen["keep"], "gpu": shapes.gpu()}
    asked["config"] = shape if shapes.is_config(shape) else None
    request = cached.request(UseIn, **asked)
    run: Run = cached.store().find(request) or cached.jobs().request(request, timeout=cached.PATIENCE)
    rows = sorted(run.numbers["rows"], key=lambda row: not row["lines"])
    widgets.settled("use_stack", [None, *(row["stack"] for row in rows)], None)
    documented = [f"{row['title']} {row['of']}, read {row['read']}: {row['documented']}" for row in rows]
    st.subheader("Use it in", anchor=False, help="\n\n".join(documented))
    look: dict[str, Any] = {"format_func": lambda name: methods[name]["title"], "label_visibility": "collapsed"}
    st.selectbox("Method", listed, key="use_method", **look)
    titles = {row["stack"]: row["title"] if row["lines"] else f":gray[{row['title']}]" for row in rows}
    tabs("use_stack", titles, {row["stack"]: partial(_lines, row, method) for row in rows})


def _lines(row: dict[str, Any], method: str) -> None:
    """What a stack does with the method, and its lines; or why it cannot."""
    widgets.prose(row["says"], "quiet")
    if not row["lines"]:
        return
    with st.container(key="use_lines"):
        st.code(row["lines"], language=row["language"], wrap_lines=True)
    if row["settings"] is None:
        return
    shape = st.session_state["shape"]
    whose = {"config": shape} if shapes.is_config(shape) else {"model": shapes.spoken(shape)}
    asked = {"run": method, "method": {"name": method, "settings": row["settings"]}, **whose}
    take.button(Take.from_arguments(asked), f"use_{method}")
