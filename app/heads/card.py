"""The card of a head: its names and the reader's own, the proof by taking it away, and what it reads, in tabs."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import streamlit as st

from analysis.limits import limits
from analysis.runs import Run
from analysis.runs.head_notes import LONGEST, note_head
from app import cached
from app.heads import live, many_texts, numbers, one_head, own, scope, why, without
from app.heads.head_statistics import cells_of, spelled
from app.selection import state
from app.selection.look import HEAD_TABS
from app.ui import asking, fields, head_cards, other, widgets
from app.ui.head_cards import Names
from app.ui.tabs import tabs

BESIDE = {"head": "Another head", "text": "Another text", "model": "Another model"}
# Tab -> controls that stand on it.
HOLDS = {
    "many": ["over_texts", "heads_corpus"],
    "numbers": ["alike", "alike_all"],
    "pattern": ["tile"],
    "sharpness": ["softmax"],
}


def show(statistics: Run, table: dict, tokens: dict, cell: tuple[int, int], names: Names) -> Run:
    """The card of the head `cell` and, where one is pinned, what stands beside it; returns the head's run."""
    beside = st.session_state["beside"]
    first, second = st.columns(2) if beside else (st.container(), None)
    with first:
        run = scope.ask(*cell, *scope.place(tokens))
        _head(table, cell, names)
        own.show(table, cell)
        without.prove(tokens, *cell, heads=max(table["head"]) + 1)
    sides = {f"head {spelled(*cell)}": run}
    if second:
        with second, widgets.guarded():
            sides |= _second(table, tokens, run)
    with first:
        rooms = {
            "text": lambda: one_head.text(run, tokens),
            "why": lambda: why.show(run, names),
            "pattern": lambda: one_head.pattern(run),
            "sharpness": lambda: fields.alone(live.show, tokens, *cell, "heads_sharpness"),
            "many": lambda: many_texts.show(tokens, *cell),
            "numbers": lambda: numbers.show(statistics, sides, tokens, table, cell, names),
        }
        tabs("head_tab", HEAD_TABS, rooms)
    return run


def _head(table: dict, cell: tuple[int, int], names: Names) -> None:
    """Its number and names, what can be done with it, and the reader's own words."""
    name = spelled(*cell)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.subheader(f"Head {name}", anchor=False, width="content")
        st.space("stretch")
        pinned = st.session_state["beside"] == "head" and st.session_state["other_head"] == name
        keep = None if pinned else name
        look: dict[str, Any] = {"type": "tertiary", "icon": ":material/keep:"}
        look["on_click"] = partial(state.choose, st.session_state, beside=keep and "head", other_head=keep)
        st.button("Unpin" if pinned else "Pin", key="heads_pin", help="Keep this head beside the next one.", **look)
        with st.popover("Compare", type="tertiary", key="heads_compare"):
            other.choice("beside", BESIDE)
    if called := names.get(cell):
        with st.container(horizontal=True, gap="small"):
            for called_head in called:
                st.badge(called_head, color="orange", help=cached.glossary("name of a head"))
    if not limits().demo:
        _own(name)


def _own(name: str) -> None:
    """The reader's name and note of a head."""
    written = head_cards.notes().get(name, {})
    with st.container(horizontal=True, gap="small"):
        for kind, asks in (("name", "your name for it"), ("note", "your note")):
            key = f"head_{kind}_{name}"
            st.session_state.setdefault(key, written.get(kind, ""))
            look: dict[str, Any] = {"placeholder": asks, "label_visibility": "collapsed", "max_chars": LONGEST[kind]}
            st.text_input(asks.capitalize(), key=key, on_change=_write, args=(name, kind, key), **look)
    widgets.trouble("head_note")


def _write(name: str, kind: str, key: str) -> None:
    with widgets.attempt("head_note"):
        note_head(cached.store().root, *head_cards.model(), name, **{kind: st.session_state[key]})


# --- what stands beside -----------------------------------------------------------------------------------------------


def _second(table: dict, tokens: dict, first: Run) -> Mapping[str, Run]:
    """The card beside: another head, or the same one in another text or model."""
    layer, head, part = (first.request[name] for name in ("layer", "head", "part"))
    cells, beside = sorted(cells_of(table)), st.session_state["beside"]
    if beside == "head":
        cell = _other_head(cells, cells[(cells.index((layer, head)) + 1) % len(cells)])
        name, run = f"head {spelled(*cell)}", scope.ask(*cell, part, first.request["query"])
        widgets.prose(head_cards.cards().get(spelled(*cell)) or "No name.", "quiet")
    elif beside == "text":
        text = other.text()
        name, run = f"head {spelled(layer, head)} in {cached.texts()[text]}", scope.ask(layer, head, 0, None, text=text)
    elif model := other.model():
        # The same place in both texts: the two models may have other layers, heads and tokens.
        layers, heads = asking.layers(model), range(asking.card(model)["heads"])
        near = min(layers, key=lambda number: abs(number - layer)), min(head, heads[-1])
        cell = _other_head([(row, column) for row in layers for column in heads], near)
        theirs = cached.columns(scope.ask(*cell, 0, None, model=model), "tokens")
        position = other.aligned(tokens, first.numbers["offset"] + first.numbers["query"], theirs)
        part = theirs["window"][position]
        query = position - theirs["window"].index(part)
        name, run = f"head {spelled(*cell)} of {model}", scope.ask(*cell, part, query, model=model)
    else:
        return {}
    _beside(run, name)
    return {name: run}


def _beside(run: Run, name: str) -> None:
    """Of the second card what the open tab shows of the first."""
    opened = st.session_state["head_tab"] or next(iter(HEAD_TABS))
    widgets.prose(one_head.strongest(run), "more")
    if opened == "pattern":
        one_head.drawn_pattern(run, "heads_pattern_1", f"Pattern, {name}", box=False)
    elif opened == "sharpness" and st.session_state["beside"] == "head":
        words = cached.columns(run, "tokens")
        fields.alone(live.show, words, run.request["layer"], run.request["head"], "heads_sharpness_1")
    else:
        one_head.distance(run, 1, name)


def _other_head(cells: list[tuple[int, int]], usual: tuple[int, int]) -> tuple[int, int]:
    """Which of `cells` stands beside: `usual` unless another was chosen."""
    named = {spelled(*cell): cell for cell in cells}
    widgets.settled("other_head", [None, *named], None)
    default = st.session_state["other_head"] or spelled(*usual)
    return named[fields.pick(st.selectbox, "Second head", list(named), "other_head", default, width=120)]
