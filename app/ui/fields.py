"""Fields of the pages' forms, and how what they hold is kept."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from analysis.declaration.command import Command
from analysis.runs.brought import TEXTS, corpora
from app import cached
from app.selection import state
from app.ui import jobs, report, widgets

MOST_TEXTS = 20


def alone(draw: Callable[..., None], *arguments: object) -> None:
    """Draw a part of the page that is redrawn alone (a fragment): what is chosen in it stays and stands in the URL."""
    with_the_page = True

    @functools.wraps(draw)
    def part() -> None:
        nonlocal with_the_page
        # The page has read its selection, and widgets above may be drawn already.
        if not with_the_page:
            state.keep(st.session_state)
            cached.drawn_anew()
            report.redraw()
            jobs.redraw()
        with_the_page = False
        with widgets.guarded():
            draw(*arguments)
        write_address()

    st.fragment(part)()


def pick(widget: Callable, label: str, options: object, name: str, value: object, **look: Any) -> Any:
    """A control that shows a default without making it the selection; returns what it shows. `options`: of a number
    the lowest."""
    key = f"{name}_pick"
    st.session_state[key] = value

    def picked() -> None:
        state.choose(st.session_state, **{name: st.session_state[key]})

    widget(label, options, key=key, on_change=picked, **look)
    return st.session_state[key]


def cell(cells: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The (layer, head) in use: the first of these `cells` that the shared selection allows."""
    for name, places in zip(("layer", "head"), zip(*cells, strict=True), strict=True):
        widgets.settled(name, [None, *sorted(set(places))], None)
    layer, head = st.session_state["layer"], st.session_state["head"]
    fitting = (cell for cell in cells if layer in (None, cell[0]) and head in (None, cell[1]))
    return next(fitting, cells[0])


def choose_cell(layers: Sequence[int], heads: int, now: tuple[int, int]) -> None:
    """Two boxes to choose another layer and head than those that are shown `now`."""
    for name, options, value in (("layer", layers, now[0]), ("head", range(heads), now[1])):
        help = cached.glossary("layer" if name == "layer" else "attention head")
        pick(st.selectbox, name.capitalize(), options, name, value, width=120, help=help)


def choose(label: str, titles: Mapping[Any, str], name: str, term: str = "", **look: Any) -> None:
    """A box of the values of a control, each under its title; `term` of the glossary explains it."""
    help = cached.glossary(term) if term else None
    st.selectbox(label, list(titles), key=name, format_func=titles.__getitem__, help=help, **look)


def switch(label: str, titles: Mapping[Any, str], name: str, term: str = "", **look: Any) -> None:
    """The same with all values in sight."""
    help = cached.glossary(term) if term else None
    st.segmented_control(
        label, list(titles), key=name, format_func=titles.__getitem__, required=True, help=help, **look
    )


def presets(key: str, command: type[Command], printed: Mapping[str, Any], controls: Mapping[str, str]) -> None:
    """What the paper prints, or what is usual here, as one step; `controls`: field of the command -> its control."""
    usual = {name: command.defaults[name] for name in printed}
    with st.container(horizontal=True, gap="small"):
        for label, settings in (("As the paper prints it", printed), ("As is usual here", usual)):
            chosen = {controls[name]: value for name, value in settings.items()}
            words = ", ".join(f"{name} {value}" for name, value in settings.items())
            look: dict[str, Any] = {"on_click": state.choose, "args": (st.session_state,), "kwargs": chosen}
            st.button(label, key=f"{key}_preset_{int(settings is usual)}", help=words, **look)


def write_address() -> None:
    """The URL as the selection is now."""
    address = state.write(st.session_state, st.query_params.to_dict())
    if address is not None:
        st.query_params.from_dict(address)


def number(
    label: str, name: str, low: float, high: float, term: str = "", *, placeholder: str | None = None, **look: Any
) -> None:
    """A number kept inside its range, whole where that is; `term` of the glossary explains it. With a placeholder it
    may be left empty."""
    value = st.session_state[name]
    fits = low <= value <= high if value is not None else placeholder is not None
    default = None if placeholder is not None else min(max(state.CONTROLS[name].default, low), high)
    widgets.settled(name, [value] if fits else [], default)
    look = ({"step": 1} if isinstance(low, int) else {}) | look
    look |= {} if placeholder is None else {"value": None, "placeholder": placeholder}
    st.number_input(label, low, high, key=name, help=cached.glossary(term) if term else None, **look)


def corpus(name: str, usual: str, labels: tuple[str, str], placeholder: str, term: str) -> None:
    """Stored texts, or a folder that somebody put into models_cache/corpora; `usual` is read when nothing was chosen.
    `labels`: of the choice of a folder, and of the choice of texts."""
    folders, raw = corpora(), st.session_state[name]
    if raw and not TEXTS.fullmatch(raw) and raw not in folders:
        widgets.settled(name, [None], None)
        raw = None
    now = raw or usual
    if folders:
        st.session_state[f"{name}_folder_pick"] = now if now in folders else ""
        st.selectbox(
            labels[0],
            ["", *folders],
            key=f"{name}_folder_pick",
            on_change=lambda: state.choose(st.session_state, **{name: st.session_state[f"{name}_folder_pick"] or None}),
            width=200,
            format_func=lambda folder: folder or "texts stored here",
        )
    if now not in folders:
        offered = cached.texts()
        st.session_state[f"{name}_texts_pick"] = [key for key in now.split("+") if key in offered]
        st.multiselect(
            labels[1],
            list(offered),
            key=f"{name}_texts_pick",
            on_change=_texts,
            args=(name, usual),
            width=360,
            max_selections=MOST_TEXTS,
            format_func=lambda key: offered.get(key, key),
            placeholder=placeholder,
            help=cached.glossary(term),
        )


def _texts(name: str, usual: str) -> None:
    keys = st.session_state[f"{name}_texts_pick"]
    chosen = "+".join(keys) if set(keys) != set(usual.split("+")) else ""
    state.choose(st.session_state, **{name: chosen or None})
