"""What is offered where something costs more than it should: the same with less to do, each with its own price."""

import html
import math
from dataclasses import dataclass, field
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime.scriptrunner_utils.exceptions import StopException

from analysis.declaration.command import Command
from analysis.runs.price import Price
from app import cached
from app.cached import Due
from app.selection import state

# Tokens of a text that is offered in part.
SHORTEST = 256
# Tokens of the shortest part that is offered where the memory lacks.
LEAST = 64
# Of the session: what starts when the page is drawn again, because `set_off` named it.
GO = "_go"


class Waiting(StopException):
    """This part of the page has nothing to show until its Run button is pressed."""


@dataclass(frozen=True)
class Scope:
    """Less to do: what in words, the controls to set, and the share of the work that is left (None: unknown). `part`:
    the share of the text that is kept, as a text of its own."""

    words: str
    controls: dict = field(default_factory=dict)
    share: float | None = None
    part: float | None = None


def of_text(request: Command, tokens: int | None) -> list[Scope]:
    """Less of the text in use, where a request reads it; `tokens` are read, None: as many as it has. A control is
    offered only where the request has its value, so that setting it changes this very request."""
    if not _reads_the_text(request):
        return []
    scopes, (size, at_once) = [], cached.counted(request)
    tokens, long_text = tokens or size, request.spelled.get("long_text")
    if at_once and tokens > at_once and long_text == st.session_state["long_text"] == "windows":
        scopes.append(Scope("the first window only", {"long_text": "first"}, at_once / tokens))
    if tokens >= SHORTEST:
        scopes.append(Scope("the first quarter of the text", share=1 / 4, part=1 / 4))
    return scopes


def of_memory(request: Command, tokens: int | None) -> list[Scope]:
    """The largest part of the text in use that fits the memory, where a request reads it and the whole does not fit."""
    if not _reads_the_text(request):
        return []
    tokens, share = tokens or cached.counted(request)[0], 1 / 2
    while tokens * share >= LEAST:
        if not cached.due(request, int(tokens * share)).refused:
            return [Scope(f"the first {int(tokens * share):,} tokens", share=share, part=share)]
        share /= 2
    return []


def _reads_the_text(request: Command) -> bool:
    text = getattr(request, "text", None)
    return bool(text) and text == st.session_state["text"]


def offer(scopes: list[Scope], price: Price, key: str, starts: str) -> None:
    """A button for each smaller scope, with its price, which runs it; `key` begins their keys, `starts` names what is
    started (`goes`)."""
    for place, scope in enumerate(scopes):
        words = f"{scope.words[:1].upper()}{scope.words[1:]}"
        about = "" if scope.share is None else f", {price.part(scope.share).short}"
        look: dict[str, Any] = {"type": "tertiary", "icon": ":material/compress:", "on_click": _take}
        st.button(f"{words}{about}", key=f"{key}_smaller_{place}", args=(scope, starts), **look)


def goes(name: str) -> bool:
    """Whether this was set off, so that it starts without a button of its own; it does so once."""
    if st.session_state.get(GO) != name:
        return False
    del st.session_state[GO]
    return True


def set_off(name: str, **controls: object) -> None:
    """A callback: set these controls, and let `goes` start what has this name when the page is drawn again."""
    state.choose(st.session_state, **controls)
    st.session_state[GO] = name


def _take(scope: Scope, starts: str) -> None:
    chosen, store = dict(scope.controls), cached.store()
    if scope.part is not None:
        name, text = store.text(st.session_state["text"])
        words = scope.words.removeprefix("the ").removesuffix(" of the text")
        part_of_text = store.put_text(text[: math.ceil(len(text) * scope.part)], f"{name} ({words})")
        chosen |= {"text": part_of_text} | dict.fromkeys(state.INSIDE_A_TEXT)
    set_off(starts, **chosen)


def refused(doing: str, request: Command, tokens: int | None, due: Due) -> None:
    """Instead of a request for which the memory lacks: the numbers, and the part of the text that fits."""
    smaller = of_memory(request, tokens)
    way = "" if smaller else " Choose a shorter text, a smaller model, or weights of fewer bits."
    st.html(f'<p class="fs-note">{html.escape(f"{doing}: not started. {due.over}.{way}")}</p>')
    with row():
        offer(smaller, due.price, f"memory_{request.verb}_{request.key}", request.verb)


def row() -> DeltaGenerator:
    """Where a button stands beside its smaller scopes."""
    return st.container(horizontal=True, vertical_alignment="center", gap="small")


def ask_first(
    doing: str, due: Due, request: Command, tokens: int | None, label: str = "", smaller: bool = True
) -> None:
    """Before a request that takes long or much memory: its button, with its price, and `smaller` scopes. Returns, with
    all that gone, when the button was pressed, and else raises Waiting."""
    place, key = st.empty(), f"run_{request.verb}_{request.key}"
    label, help = label or f"Run: {doing[:1].lower()}{doing[1:]}", f"{doing}. {due.price.sentence}."
    with place.container():
        with row():
            look: dict[str, Any] = {"type": "primary", "icon": ":material/play_arrow:", "help": help}
            pressed = st.button(f"{label}, {due.price.short}", key=key, **look)
            offer(of_text(request, tokens) if smaller else [], due.price, key, request.verb)
        if due.over:
            st.html(f'<p class="fs-note">{html.escape(due.over)}.</p>')
    if not pressed:
        raise Waiting
    # Else it would stand above the result.
    place.empty()
