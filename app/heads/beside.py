"""A second head, the same head on a second text, or a head of a second model beside the first."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.heads import one
from app.ui import asking, fields, other, widgets

CHOICES = {"head": "Another head", "text": "Another text", "model": "Another model"}


def second(table: dict, tokens: dict, first: Run) -> tuple[str, Run] | None:
    """Ask what stands beside the head of the run `first`; (its name, its run), or None when nothing does."""
    layer, head, part = (first.request[name] for name in ("layer", "head", "part"))
    cells = sorted(zip(table["layer"], table["head"], strict=True))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        beside = other.choice("beside", CHOICES)
        if beside == "head":
            following = cells[(cells.index((layer, head)) + 1) % len(cells)]
            cell = _head(cells, following)
            name, run = _spelled(*cell), one.ask(*cell, part, first.request["query"])
        elif beside == "text":
            text = other.text()
            name, run = cached.texts()[text], one.ask(layer, head, 0, None, text=text)
            if name == cached.texts()[st.session_state["text"]]:
                name = f"{name}, the other"
        elif beside == "model" and (model := other.model()):
            name, run = _of_model(model, tokens, first)
        else:
            return None
    widgets.prose(run.numbers["sentence"], "quiet")
    return name, run


def _of_model(model: str, tokens: dict, shown_run: Run) -> tuple[str, Run]:
    """A head of another model on the same text, from the token at the same place."""
    card = asking.card(model)
    cells = [(layer, head) for layer in range(card["layers"]) for head in range(card["heads"])]
    near = min(shown_run.request["layer"], card["layers"] - 1), min(shown_run.request["head"], card["heads"] - 1)
    cell = _head(cells, near)
    first = cached.columns(one.ask(*cell, 0, None, model=model), "tokens")
    position = other.aligned(tokens, shown_run.numbers["offset"] + shown_run.numbers["query"], first)
    part = first["window"][position]
    return f"{model}, {_spelled(*cell)}", one.ask(*cell, part, position - first["window"].index(part), model=model)


def _head(cells: list[tuple[int, int]], usual: tuple[int, int]) -> tuple[int, int]:
    """Which second head of `cells` one: `usual` unless another was chosen."""
    names = {f"{layer}.{head}": (layer, head) for layer, head in cells}
    widgets.settled("other_head", [None, *names], None)
    default = st.session_state["other_head"] or "{}.{}".format(*usual)
    look = {"width": 220, "format_func": lambda name: _spelled(*names[name])}
    return names[fields.pick(st.selectbox, "Second head", list(names), "other_head", default, **look)]


def _spelled(layer: int, head: int) -> str:
    return f"layer {layer}, head {head}"
