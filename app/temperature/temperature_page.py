"""Softmax temperature: the live picture, beside it what it costs, and folded away the exact numbers and the studies."""

from itertools import product

import streamlit as st

from analysis.errors import BadModel
from app import cached
from app.heads import live
from app.temperature import evidence, learned, sharpened
from app.ui import asking, fields, screen, widgets
from app.ui.tabs import drawer

TERM = "softmax temperature"
# The best constant temperature of the paper on Focal Attention.
PAPER = "0.4"
# Controls of the study.
HOLDS = ["trained_with", "sharpness", "by_layer", "temperature_tab", *learned.FIELDS.values()]


def show() -> None:
    """The screen."""
    inspected, card = asking.inspected(), asking.card(st.session_state["model"])
    layers, heads = asking.layers(st.session_state["model"]), card["heads"]
    layer, head = fields.cell(list(product([layers[len(layers) // 2], *layers], range(heads))))
    try:
        run = live.ask(layer, 0, min(inspected["tokens"], inspected["max_positions"]))
    except BadModel as error:
        # What no browser can redo is still measured.
        widgets.show_error(error)
        drawer("temperature_evidence", lambda: _study(layer, head, len(layers), inspected["tokens"]), HOLDS, "Study")
        return
    tokens, support = cached.columns(run, "tokens"), run.numbers["support"]
    screen.answer(
        f"At the paper's temperature of {PAPER} heads read {support[PAPER]:,.0f} tokens "
        f"instead of {support['1']:,.0f}.",
        f"Mean over {len(run.numbers['places'])} queries. {cached.glossary(TERM)}",
    )
    picture, beside = screen.picture_and_card("temperature", 0.4)
    with picture, widgets.guarded():
        fields.alone(live.show, tokens, layer, head, "temperature_live")
    with beside:
        with st.container(horizontal=True, gap="small"):
            fields.choose_cell(layers, heads, (layer, head))
        with widgets.guarded():
            sharpened.this_text(len(tokens["piece"]))
    drawer("temperature_evidence", lambda: _study(layer, head, len(layers), len(tokens["piece"])), HOLDS, "Study")
    widgets.notes(run)


def _study(layer: int, head: int, layers: int, tokens: int) -> None:
    widgets.each(
        lambda: sharpened.every_head(layer, head),
        lambda: sharpened.by_position(tokens),
        lambda: sharpened.by_layer(layers, tokens),
        evidence.show,
        learned.show,
    )
