"""What a softmax temperature does to one query, live with a slider, and to every head: two tabs of the page."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.heads import one as heads_one, text as heads_text
from app.selection import state
from app.selection.sparsify import SHARPNESS, SOFTMAX
from app.temperature import charts
from app.ui import asking, fields, painted, widgets
from app.ui.reading import rows_of

KEYS = 12  # of the chart of one query


def one_token(tokens: dict) -> None:
    """Parts redrawn alone: the slider redraws one query from what is measured already, the choice of a head asks for
    its query, neither of them for the page."""
    fields.alone(lambda: fields.alone(_slider_part, _measured(tokens)[0], tokens))


def every_head(tokens: dict) -> None:
    """The sharpness of the chosen layer's heads, and of every layer, at all temperatures; redrawn alone."""
    fields.alone(lambda: _sharpness(*_measured(tokens)))


def _measured(tokens: dict) -> tuple[Run, int, int]:
    with st.container(horizontal=True, gap="large"):
        layer, head = _head(asking.card(st.session_state["model"]))
    return _ask(layer, head, *heads_one.place(tokens)), layer, head


def _slider_part(run: Run, tokens: dict) -> None:
    chosen = st.session_state
    st.select_slider(
        "Softmax temperature t",
        SOFTMAX,
        key="softmax",
        format_func=lambda value: f"{value:g}",
        width=420,
        help=cached.glossary("softmax temperature"),
    )
    widgets.prose(run.numbers["sentences"][run.numbers["t"].index(chosen["softmax"])])
    _query(run, tokens, chosen["softmax"])
    widgets.notes(run)


def _head(card: dict) -> tuple[int, int]:
    widgets.settled("head", [None, *range(card["heads"])], None)
    layer = widgets.layer_pills(card["layers"], card["layers"] // 2)
    look = {"required": True, "help": cached.glossary("attention head")}
    return layer, fields.pick(st.pills, "Head", range(card["heads"]), "head", st.session_state["head"] or 0, **look)


def _ask(layer: int, head: int, part: int, query: int | None) -> Run:
    """All temperatures of the slider for one query, and for the whole layer where a long text left others out."""
    args = {"t": list(SOFTMAX), "layer": layer, "head": head, "query": query, "part": part}
    return asking.ask("temperature", state.study_args(st.session_state, **args), "Measuring every temperature")


def _sharpness(run: Run, layer: int, head: int) -> None:
    st.segmented_control(
        "Sharpness as",
        list(SHARPNESS),
        format_func=lambda name: SHARPNESS[name][0],
        key="sharpness",
        required=True,
    )
    name = st.session_state["sharpness"]
    title, term, _ = SHARPNESS[name]
    layers, heads = cached.columns(run, "layers"), rows_of(cached.columns(run, "heads"), layer=layer)
    measure = title.split(",")[0]
    titles = (f"{measure} by layer", f"{measure} of the heads of layer {layer}")
    with st.grid(2, min_column_width=420, gap="large"):
        for place, (table, over, marked) in enumerate(((layers, "layer", layer), (heads, "head", head))):
            widgets.chart(
                charts.against(table, over, name, marked),
                table,
                title=titles[place],
                key=f"temperature_{over}",
                alt=f"{title} against the temperature, a line for each {over}, the chosen one thick",
                help=cached.glossary(term),
            )
    st.caption("Means over the queries of the window. Thick: the chosen one. Dotted: dense attention, at 1.")


def _query(run: Run, tokens: dict, t: float) -> None:
    numbers, table, weights = run.numbers, dict(cached.columns(run, "query")), cached.array(run, "weights")
    query, offset = numbers["query"], numbers["offset"]
    word = tokens["word"][offset + query] or tokens["piece"][offset + query]
    places = numbers["t"].index(1.0), numbers["t"].index(t)
    before, after = (numbers["reads"][row] for row in places)
    table["before"], table["after"] = (weights[row].tolist() for row in places)
    widgets.prose(
        f"From {word!r} (token {offset + query:,}), head {numbers['head']} of layer {numbers['layer']} reads as if "
        f"{before['effective_support']:.1f} keys had equal weight, at t = {t:g} as if "
        f"{after['effective_support']:.1f}; its largest weight goes from {before['max_prob']:.0%} to "
        f"{after['max_prob']:.0%}.",
        "more",
    )
    labels = {side: [None] * len(tokens["piece"]) for side in ("before", "after")}
    for side, shares in labels.items():
        for row, weight in zip(table["position"], table[side], strict=True):
            shares[row] = f"{weight:.2%}"
    dense, sharp = ("at t = 1", labels["before"]), (f"at t = {t:g}", labels["after"])
    looked_at = ".".join(str(run.request[name]) for name in ("text", "part", "layer", "head", "query"))
    sides = (  # the dense side does not change with t, so it is neither sent nor drawn again
        ("before", "t = 1, dense attention", looked_at, [dense]),
        ("after", f"t = {t:g}", f"{looked_at}.{t:g}", [dense, sharp]),
    )
    with st.grid(2, min_column_width=420, gap="large"):
        for side, legend, identity, tips in sides:
            with st.container():
                key = f"temperature_{side}"
                heads_text.show(
                    tokens,
                    heads_text.spread(table[side], offset, query, len(tokens["piece"])),
                    offset + query,
                    key=key,
                    identity=identity,
                    legend=legend,
                    tips=tips,
                    on_token=lambda key=key: state.choose(st.session_state, query=painted.clicked(key, "token")),
                )
    strongest = sorted(range(query + 1), key=lambda row: -max(table["before"][row], table["after"][row]))[:KEYS]
    widgets.chart(
        charts.query(table, strongest, t),
        {name: table[name] for name in ("position", "piece", "word", "distance", "before", "after")},
        title="The keys it reads most",
        key="temperature_query",
        alt="Attention of the keys that get most, in dense attention and at this temperature",
        help=cached.glossary("attention mass"),
    )
