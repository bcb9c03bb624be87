"""Softmax temperature: the live picture, beside it what it costs, and folded away the exact numbers and the studies."""

from functools import partial
from itertools import product
from typing import Any

import streamlit as st

from analysis import papers
from analysis.errors import BadModel
from app import cached
from app.heads import live
from app.selection.sparsify import FOCAL_STUDIES
from app.temperature import learned, sharpened
from app.ui import asking, fields, plots, screen, studied, tables, widgets
from app.ui.tabs import drawer

TERM = "softmax temperature"
TABLES = {
    "table 1": "Trained from scratch: constant and learned temperature",
    "table 2": "Adapted: trained further at a temperature",
}
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
    study = partial(studied.section, term="perplexity against the temperature", rows=False)
    widgets.each(
        lambda: sharpened.every_head(layer, head),
        lambda: sharpened.by_position(tokens),
        lambda: sharpened.by_layer(layers, tokens),
        # Every domain, by position and layer by layer.
        partial(study, "temperature", "What it does to the predictions", small=True, corpus=None),
        _trained,
        _printed,
        learned.show,
    )


def _trained() -> None:
    """Models that were trained with a softmax temperature: the stored studies of it, one at a time."""
    help = cached.glossary("trained with a temperature")
    st.header("Trained with it", anchor=False, help=help)
    titles = {name: title for name, (_, title, _) in FOCAL_STUDIES.items()}
    fields.switch("Study", titles, "trained_with", label_visibility="collapsed")
    name, title, question = FOCAL_STUDIES[st.session_state["trained_with"]]
    widgets.prose(question, "quiet")
    numbers = studied.opened(name, f"Training small models with a temperature ({title.lower()})")
    if numbers is not None:
        studied.drawn(numbers, "trained", help, name)


def _printed() -> None:
    """Tables 1 and 2 of the paper and the best temperatures of figure 8, each with what it was measured on."""
    st.header("What the paper printed", anchor=False, help=cached.glossary(TERM))
    best = papers.find("focal_attention", "figure 8a")[0]
    where = f"figure 8a, {best.row}; {best.protocol}"
    widgets.prose(f"The paper's best constant temperature of training is {best.value:g} ({where}).", "more")
    for name, title in TABLES.items():
        cells = papers.find("focal_attention", name)
        by_setting: dict[str, dict[str, Any]] = {}
        for cell in cells:
            by_setting.setdefault(cell.row, {"setting": cell.row})[cell.column] = cell.value
        titles = dict.fromkeys(cell.column for cell in cells)
        columns = {"setting": tables.Column("setting")}
        columns |= {column: tables.Column(f"{column}, %", "number") for column in titles}
        st.subheader(f"{name.capitalize()}: {title.lower()}", anchor=False)
        rows = list(by_setting.values())
        plots.listed(columns, rows, f"paper_{name[-1]}", f"{name} of the paper", height=200)
        facts = dict.fromkeys(cell.protocol for cell in cells if cell.protocol)
        doubts = dict.fromkeys(f"{cell.row}, {cell.column}: {cell.note}" for cell in cells if cell.note)
        widgets.prose(["; ".join(facts), *doubts], "quiet")
    widgets.prose("Other models and text than ours; the bundled model is too small for these benchmarks.", "quiet")
