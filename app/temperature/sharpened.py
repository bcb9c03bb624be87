"""What a softmax temperature does: to one query, live with a slider, to every head, and to the predictions of this
text."""

import streamlit as st

from analysis.claims import Comparison
from analysis.commands.temperature import Temperature, TemperatureCurve
from analysis.runs import Run
from app import cached
from app.heads import one_head, painted_weights
from app.selection import state
from app.selection.sparsify import SHARPNESS, SOFTMAX
from app.temperature import temperature_charts
from app.ui import asking, fields, jobs, painted, plots, widgets
from app.ui.reading import rows_of

# Of the chart of one query.
KEYS = 12
# Tokens read at once on this text, where it is long enough.
WINDOW = 1024
# Temperatures that each layer gets alone.
ALONE = (0.6,)
SHOWN = (0.4, 0.6, 0.8, 1.25)  # temperatures drawn by position
TERM = "perplexity against the temperature"
LOW, HIGH = 0.1, 2.0


# --- one token, and every head ----------------------------------------------------------------------------------------


def one_token(tokens: dict) -> None:
    """Parts redrawn alone: the slider redraws one query from what is measured already, the choice of a head asks for
    its query, neither of them for the page."""
    fields.alone(lambda: fields.alone(_slider_part, _measured(tokens), tokens))


def every_head(tokens: dict) -> None:
    """The sharpness of the chosen layer's heads, and of every layer, at all temperatures; redrawn alone."""
    fields.alone(lambda: _sharpness(_measured(tokens)))


def _measured(tokens: dict) -> Run:
    """All temperatures of the slider for one query, and for the whole layer where a long text left others out."""
    card = asking.card(st.session_state["model"])
    with st.container(horizontal=True, gap="large"):
        widgets.settled("head", [None, *range(card["heads"])], None)
        layer = widgets.layer_pills(card["layers"], card["layers"] // 2)
        look = {"required": True, "help": cached.glossary("attention head")}
        now = st.session_state["head"] or 0
        head = fields.pick(st.pills, "Head", range(card["heads"]), "head", now, **look)
    part, query = one_head.place(tokens)
    args = {"t": list(SOFTMAX), "layer": layer, "head": head, "query": query, "part": part}
    return asking.ask(Temperature(**state.study_args(st.session_state, **args)), "Measuring every temperature")


def _slider_part(run: Run, tokens: dict) -> None:
    look = {"format_func": "{:g}".format, "width": 420, "help": cached.glossary("softmax temperature")}
    st.select_slider("Softmax temperature t", SOFTMAX, key="softmax", **look)
    t = st.session_state["softmax"]
    widgets.prose(run.numbers["sentences"][run.numbers["t"].index(t)])
    _query(run, tokens, t)
    widgets.notes(run)


def _query(run: Run, tokens: dict, t: float) -> None:
    numbers, table, weights = run.numbers, dict(cached.columns(run, "query")), cached.array(run, "weights")
    query, offset, size = numbers["query"], numbers["offset"], len(tokens["piece"])
    places = {"before": numbers["t"].index(1.0), "after": numbers["t"].index(t)}
    table |= {side: weights[row].tolist() for side, row in places.items()}
    before, after = (numbers["reads"][row] for row in places.values())
    widgets.prose(
        f"Head {numbers['head']} of layer {numbers['layer']} reads as if {before['effective_support']:.1f} keys had "
        f"equal weight, at t = {t:g} as if {after['effective_support']:.1f}; its largest weight goes from "
        f"{before['max_prob']:.0%} to {after['max_prob']:.0%}.",
        "more",
    )
    spread = {side: painted_weights.spread(table[side], offset, query, size) for side in places}
    told = {side: [None if w is None else f"{w:.2%}" for w in placed] for side, placed in spread.items()}
    dense, sharp = ("at t = 1", told["before"]), (f"at t = {t:g}", told["after"])
    looked_at = ".".join(str(run.request[name]) for name in ("text", "part", "layer", "head", "query"))
    # The dense side does not change with t, so it is neither sent nor drawn again.
    sides = (
        ("before", "t = 1, dense attention", looked_at, [dense]),
        ("after", f"t = {t:g}", f"{looked_at}.{t:g}", [dense, sharp]),
    )
    with st.grid(2, min_column_width=420, gap="large"):
        for side, legend, identity, tips in sides:
            key = f"temperature_{side}"
            with st.container():
                painted_weights.show(
                    tokens,
                    spread[side],
                    offset + query,
                    key=key,
                    identity=identity,
                    legend=legend,
                    tips=tips,
                    on_token=lambda key=key: state.choose(st.session_state, query=painted.clicked(key, "token")),
                )
    strongest = sorted(range(query + 1), key=lambda row: -max(table["before"][row], table["after"][row]))[:KEYS]
    figure = temperature_charts.query(table, strongest, t)
    listed = plots.columns(table, "position", "piece", "word", "distance", "before", "after")
    plots.draw(figure, listed, "The keys it reads most", "temperature_query", "attention mass")


def _sharpness(run: Run) -> None:
    titles = {name: title for name, (title, _, _) in SHARPNESS.items()}
    st.segmented_control("Sharpness as", list(titles), format_func=titles.get, key="sharpness", required=True)
    name = st.session_state["sharpness"]
    title, term, _ = SHARPNESS[name]
    layer, measure = run.request["layer"], title.split(",")[0]
    heads = rows_of(cached.columns(run, "heads"), layer=layer)
    with st.grid(2, min_column_width=420, gap="large"):
        figure = temperature_charts.sharpness(cached.columns(run, "layers"), "layer", name, layer)
        plots.draw(figure, cached.columns(run, "layers"), f"{measure} by layer", "temperature_layer", term)
        figure = temperature_charts.sharpness(heads, "head", name, run.request["head"])
        plots.draw(figure, heads, f"{measure} of the heads of layer {layer}", "temperature_head", term)
    st.caption("Means over the queries of the window. Thick: the chosen one. Dotted: dense attention, at 1.")


# --- the predictions of this text -------------------------------------------------------------------------------------


def perplexity(layers: int, tokens: int) -> None:
    """The tab: what temperatures do to the predictions of this text."""
    widgets.each(lambda: _this_text(tokens), lambda: _by_layer(layers, tokens))


def _curve(tokens: int, t: list[float], **settings: list[float]) -> TemperatureCurve:
    """Windows of WINDOW tokens, or a short text as a whole, at temperatures `t`."""
    window = min(WINDOW, tokens, asking.card(st.session_state["model"])["max_positions"])
    return TemperatureCurve(**state.study_args(st.session_state, window=window, seed=0, t=t, **settings))


def _this_text(tokens: int) -> None:
    """A long job with its price, then its curves."""
    st.subheader("On this text", anchor=False, help=cached.glossary(TERM))
    request = _curve(tokens, list(SOFTMAX), layers=list(ALONE))
    run = cached.store().find(request)
    if run is None:
        jobs.run_button(f"Measure perplexity at {len(SOFTMAX)} temperatures", request, "temperature_run", tokens)
        return
    widgets.prose(run.numbers["sentence"], "more")
    widgets.source(run)
    curve, bins, alone = (cached.columns(run, name) for name in ("curve", "bins", "layers"))
    by_t = {f"t = {t:g}": rows_of(bins, t=t) for t in SHOWN}
    by_layer = {f"t = {t:g}": rows_of(alone, t=t) for t in ALONE}
    with st.grid(2, min_column_width=380, gap="large"):
        for title, lines, table, x, label, term in (
            ("All layers at one temperature", {"this text": curve}, curve, "t", "softmax temperature", TERM),
            ("By position in the window", by_t, bins, "first", "first token of the bin", TERM),
            ("One layer at a time", by_layer, alone, "layer", "layer", TERM),
        ):
            plots.draw(temperature_charts.change(lines, x, label), table, title, f"temperature_{x}_curve", term)
    tokens_of_bin = min(rows_of(bins, t=1.0)["n"])
    st.caption(f"Bars: {curve['state'][0]}. Bins of {tokens_of_bin:,} predicted tokens each.")


def _by_layer(layers: int, tokens: int) -> None:
    """A temperature for every layer, and what they do together on this text."""
    st.subheader("A temperature for every layer", anchor=False, help=cached.glossary("temperatures by layer"))
    values = _temperatures(layers)
    with st.grid(min(8, layers), min_column_width=110, gap="small"):
        for layer, value in enumerate(values):
            key = f"by_layer_{layer}"
            st.session_state[key] = value
            look = {"step": 0.1, "format": "%.2f", "on_change": _set, "args": (layer, layers)}
            st.number_input(f"Layer {layer}", LOW, HIGH, key=key, **look)
    with st.container(horizontal=True, gap="small"):
        everywhere = [st.session_state["softmax"]] * layers
        st.button("All layers at the slider's t", key="by_layer_all", on_click=_choose, args=(everywhere,))
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
