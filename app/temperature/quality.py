"""Perplexity against the softmax temperature: the stored study, this text, and a temperature for every layer."""

import streamlit as st

from analysis.claims import signed
from app import cached
from app.selection import state
from app.selection.sparsify import SOFTMAX
from app.temperature import charts
from app.ui import asking, jobs, stored, study as study_panels, widgets
from app.ui.reading import rows_of

WINDOW = 1024  # tokens read at once on this text, where it is long enough
ALONE = (0.6,)  # temperatures that each layer gets alone
SHOWN = (0.4, 0.6, 0.8, 1.25)  # temperatures drawn by position
TERM = "perplexity against the temperature"
LOW, HIGH = 0.1, 2.0


def study() -> None:
    """Every domain, by position and layer by layer, as it was measured and stored."""
    st.header("What it does to the predictions", anchor=False, help=cached.glossary(TERM))
    numbers = stored.opened("temperature", "Perplexity against the temperature", small=True, corpus=None)
    if numbers is not None:
        study_panels.drawn(numbers, "temperature_study", cached.glossary(TERM))


def perplexity(layers: int, tokens: int) -> None:
    """The tab: what temperatures do to the predictions of this text."""
    widgets.each(lambda: this_text(tokens), lambda: by_layer(layers, tokens))


def this_text(tokens: int) -> None:
    """The same on the chosen text: a long job with its price, then its curves."""
    st.subheader("On this text", anchor=False, help=cached.glossary(TERM))
    wanted = _args(tokens) | {"t": list(SOFTMAX), "layers": list(ALONE)}
    run = cached.store().find("temperature-curve", wanted)
    if run is None:
        label = f"Measure perplexity at {len(SOFTMAX)} temperatures"
        jobs.run_button(label, "temperature-curve", wanted, "temperature_run", tokens)
        return
    widgets.prose(run.numbers["sentence"], "more")
    widgets.source(run)
    curve, bins, alone = (cached.columns(run, name) for name in ("curve", "bins", "layers"))
    by_t = {f"t = {t:g}": rows_of(bins, t=t) for t in SHOWN}
    by_layer = {f"t = {t:g}": rows_of(alone, t=t) for t in ALONE}
    with st.grid(2, min_column_width=380, gap="large"):
        for title, lines, table, x, label in (
            ("All layers at one temperature", {"this text": curve}, curve, "t", "softmax temperature"),
            ("By position in the window", by_t, bins, "first", "first token of the bin"),
            ("One layer at a time", by_layer, alone, "layer", "layer"),
        ):
            widgets.chart(
                charts.change(lines, x, label),
                table,
                title=title,
                key=f"temperature_{x}_curve",
                alt=f"Change of perplexity against {label}",
                help=cached.glossary("paired difference" if x == "t" else TERM),
            )
    caption = f"Bars: {curve['state'][0]}. "
    cells = rows_of(bins, t=1.0)["n"]
    st.caption(f"{caption}Bins of {min(cells):,} predicted tokens each.")


def by_layer(layers: int, tokens: int) -> None:
    """A temperature for every layer, and what they do together on this text."""
    st.subheader("A temperature for every layer", anchor=False, help=cached.glossary("temperatures by layer"))
    values = _layers(layers)
    with st.grid(min(8, layers), min_column_width=110, gap="small"):
        for layer, value in enumerate(values):
            key = f"by_layer_{layer}"
            st.session_state[key] = value
            st.number_input(
                f"Layer {layer}", LOW, HIGH, step=0.1, format="%.2f", key=key, on_change=_set, args=(layer, layers)
            )
    with st.container(horizontal=True, gap="small"):
        everywhere = [st.session_state["softmax"]] * layers
        st.button("All layers at the slider's t", key="by_layer_all", on_click=_choose, args=(everywhere,))
        if any(value != 1 for value in values):
            st.button("Back to dense", key="by_layer_none", on_click=_choose, args=([1.0] * layers,), type="tertiary")
    if all(value == 1 for value in values):
        widgets.prose("All are 1, which is dense attention: change one to see what it costs.", "quiet")
        return
    wanted = _args(tokens) | {"t": [1.0], "by_layer": values}
    run = asking.ask("temperature-curve", wanted, "Reading with these temperatures", tokens)
    together = run.numbers["by_layer"]
    low, high = together["low"], together["high"]
    sure = (
        f" ({together['state']})"
        if low is None
        else f" ({signed(low, '.1%')} to {signed(high, '.1%')}, {together['state']})"
    )
    widgets.prose(
        f"Perplexity {together['perplexity']:.2f} against {run.numbers['perplexity_dense']:.2f} dense on this text: "
        f"{signed(together['difference'], '.1%')}{sure}.",
        "more",
    )
    widgets.source(run)
    widgets.notes(run)


def _args(tokens: int) -> dict:
    """What is read: windows of WINDOW tokens, or a short text as a whole."""
    window = min(WINDOW, tokens, asking.card(st.session_state["model"])["max_positions"])
    return state.study_args(st.session_state, window=window, seed=0)


def _layers(layers: int) -> list[float]:
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
    values = _layers(layers)
    values[layer] = round(st.session_state[f"by_layer_{layer}"], 2)
    _choose(values)


def _choose(values: list[float]) -> None:
    plain = all(value == 1 for value in values)
    state.choose(st.session_state, by_layer=None if plain else "~".join(f"{value:g}" for value in values))
