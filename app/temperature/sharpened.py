"""What a softmax temperature does to every head, exactly, and to the predictions of this text."""

from typing import Any

import streamlit as st

from analysis.claims import Comparison
from analysis.commands.temperature import Temperature, TemperatureCurve
from app import cached
from app.selection import state
from app.selection.sparsify import SHARPNESS, SOFTMAX
from app.temperature import temperature_charts
from app.ui import asking, fields, jobs, plots, widgets
from app.ui.reading import rows_of

# Tokens read at once on this text, where it is long enough.
WINDOW = 1024
# Temperatures that each layer gets alone.
ALONE = (0.6,)
SHOWN = (0.4, 0.6, 0.8, 1.25)  # temperatures drawn by position
TERM = "perplexity against the temperature"
LOW, HIGH = 0.1, 2.0


# --- every head, exactly ----------------------------------------------------------------------------------------------


def every_head(layer: int, head: int) -> None:
    """The sharpness of the layer's heads, and of every layer, at all temperatures and over every query."""
    st.subheader("Every head over every query", anchor=False, help=cached.glossary("softmax temperature"))
    args = state.study_args(st.session_state, t=list(SOFTMAX), layer=layer, head=head, part=0)
    run = asking.ask(Temperature(**args), "Measuring every temperature")
    titles = {name: title for name, (title, _, _) in SHARPNESS.items()}
    fields.switch("Sharpness as", titles, "sharpness")
    name = st.session_state["sharpness"]
    title, term, _ = SHARPNESS[name]
    measure = title.split(",")[0]
    heads = rows_of(cached.columns(run, "heads"), layer=layer)
    with st.grid(2, min_column_width=420, gap="large"):
        figure = temperature_charts.sharpness(cached.columns(run, "layers"), "layer", name, layer)
        plots.draw(figure, cached.columns(run, "layers"), f"{measure} by layer", "temperature_layer", term)
        figure = temperature_charts.sharpness(heads, "head", name, head)
        plots.draw(figure, heads, f"{measure} of the heads of layer {layer}", "temperature_head", term)
    st.caption("Means over the queries of the first window. Thick: the chosen one. Dotted: dense attention, at 1.")
    widgets.notes(run)


# --- the predictions of this text -------------------------------------------------------------------------------------


def _curve(tokens: int, t: list[float], **settings: list[float]) -> TemperatureCurve:
    """Windows of WINDOW tokens, or a short text as a whole, at temperatures `t`."""
    window = min(WINDOW, tokens, asking.card(st.session_state["model"])["max_positions"])
    return TemperatureCurve(**state.study_args(st.session_state, window=window, seed=0, t=t, **settings))


def this_text(tokens: int) -> None:
    """A long job with its price, then its curves."""
    st.subheader("What it costs", anchor=False, help=cached.glossary(TERM))
    request = _curve(tokens, list(SOFTMAX), layers=list(ALONE))
    run = cached.store().find(request)
    if run is None:
        jobs.run_button("Measure the loss", request, "temperature_run", tokens)
        return
    widgets.prose(run.numbers["sentence"], "quiet")
    curve = cached.columns(run, "curve")
    figure = temperature_charts.change({"this text": curve}, "t", "softmax temperature")
    plots.draw(figure, curve, "All layers at one temperature", "temperature_t_curve", TERM)
    st.caption(f"Bars: {curve['state'][0]}.")


def by_position(tokens: int) -> None:
    """Where in a window, and in which layer, it costs: from the same job."""
    run = cached.store().find(_curve(tokens, list(SOFTMAX), layers=list(ALONE)))
    if run is None:
        return
    bins, alone = (cached.columns(run, name) for name in ("bins", "layers"))
    by_t = {f"t = {t:g}": rows_of(bins, t=t) for t in SHOWN}
    by_layer = {f"t = {t:g}": rows_of(alone, t=t) for t in ALONE}
    with st.grid(2, min_column_width=380, gap="large"):
        for title, lines, table, x, label in (
            ("By position in the window", by_t, bins, "first", "first token of the bin"),
            ("One layer at a time", by_layer, alone, "layer", "layer"),
        ):
            plots.draw(temperature_charts.change(lines, x, label), table, title, f"temperature_{x}_curve", TERM)
    tokens_of_bin = min(rows_of(bins, t=1.0)["n"])
    st.caption(f"Bins of {tokens_of_bin:,} predicted tokens each.")


def by_layer(layers: int, tokens: int) -> None:
    """A temperature for every layer, and what they do together on this text."""
    st.subheader("A temperature for every layer", anchor=False, help=cached.glossary("temperatures by layer"))
    values, numbers = _temperatures(layers), asking.layers(st.session_state["model"])
    with st.grid(min(8, layers), min_column_width=110, gap="small"):
        for layer, value in enumerate(values):
            key = f"by_layer_{layer}"
            st.session_state[key] = value
            look: dict[str, Any] = {"step": 0.1, "format": "%.2f", "on_change": _set, "args": (layer, layers)}
            st.number_input(f"Layer {numbers[layer]}", LOW, HIGH, key=key, **look)
    with st.container(horizontal=True, gap="small"):
        t = st.session_state["softmax"]
        st.button(f"All layers at t = {t:g}", key="by_layer_all", on_click=_choose, args=([t] * layers,))
        if any(value != 1 for value in values):
            st.button("Back to dense", key="by_layer_none", on_click=_choose, args=([1.0] * layers,), type="tertiary")
    if all(value == 1 for value in values):
        widgets.prose("All are 1, which is dense attention: change one to see what it costs.", "quiet")
        return
    run = asking.ask(_curve(tokens, [1.0], by_layer=values), "Reading with these temperatures", tokens)
    together = run.numbers["by_layer"]
    change = Comparison.of(together, "difference", "", unit="change").bracketed
    widgets.prose(
        f"Perplexity {together['perplexity']:.2f} against {run.numbers['perplexity_dense']:.2f} dense on this text: "
        f"{change}; {together['state']}.",
        "more",
    )
    widgets.source(run)
    widgets.notes(run)


def _temperatures(layers: int) -> list[float]:
    """The temperatures in use, 1 for each layer unless the link says otherwise."""
    raw = st.session_state["by_layer"]
    if raw is None:
        return [1.0] * layers
    try:
        values = [float(word) for word in raw.split("~")]
    except ValueError:
        values = []
    if len(values) != layers or not all(LOW <= value <= HIGH for value in values):
        widgets.settled("by_layer", [None], None)
        return [1.0] * layers
    return values


def _set(layer: int, layers: int) -> None:
    values = _temperatures(layers)
    values[layer] = round(st.session_state[f"by_layer_{layer}"], 2)
    _choose(values)


def _choose(values: list[float]) -> None:
    plain = all(value == 1 for value in values)
    state.choose(st.session_state, by_layer=None if plain else "~".join(f"{value:g}" for value in values))
