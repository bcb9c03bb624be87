"""Is it worth it?: what could sparse attention gain at most, from the model's shape alone?"""

from typing import Any

import streamlit as st

from app import cached
from app.selection import state
from app.ui import fields, painted, plots, tables, widgets
from app.ui.reading import rows_of
from app.ui.spelled import size
from app.worth import shape_costs, worth_charts, worth_form

GAIN = cached.glossary("largest possible gain")
COLUMNS = {
    "context": tables.Column("context", "whole", help="tokens"),
    "prefill_share": tables.Column("share, first token", "share", help="attention's share of the FLOPs", full=1.0),
    "decode_share": tables.Column("share, later tokens", "share", help="attention's share of the bytes read", full=1.0),
    "kv": tables.Column("KV cache", help=cached.glossary("KV cache")),
    "prefill_gain": tables.Column("gain, first token", "number", help=GAIN),
    "decode_gain": tables.Column("gain, later tokens", "number", help=GAIN),
    "ceiling": tables.Column("free attention", "number", help="the larger gain if attention cost nothing at all"),
}


def show() -> None:
    """What the page is about, and all that its controls change."""
    widgets.header(
        "Is it worth it?",
        "How much of a model's work is attention, and the most that reading fewer keys could gain: counted from its "
        "config.json",
    )
    fields.alone(_live)


def _live() -> None:
    """The controls and all that they count."""
    chosen, models, answer = st.session_state, worth_form.offered(), st.container()
    worth_form.whose(models)
    sliders, pictures, second = st.container(), st.container(), st.container()
    with second:
        st.subheader("On a GPU, or beside another model", anchor=False, help=cached.glossary("estimated and measured"))
        worth_form.beside(models)
    keep, named = chosen["keep"], []
    for wanted in filter(None, (chosen["shape"], chosen["shape_beside"])):
        request = shape_costs.request(wanted, keep, chosen["counted"], chosen["gpu"])
        named.append((models[wanted], shape_costs.ask(request)))
    run = named[0][1]
    shape, rows, sentences = run.numbers["shape"], cached.columns(run, "rows"), cached.columns(run, "said")
    longest = shape["max_positions"]
    with sliders:
        context, batch = worth_form.where(longest)
    place = list(zip(rows["context"], rows["batch"], strict=True)).index((context, batch))
    verdict = sentences["sentence"][place]

    with answer:
        widgets.prose(verdict)
        widgets.prose(sentences["further"][place], "more")
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            help = cached.glossary("estimated and measured")
            st.badge("estimated", icon=":material/calculate:", color="blue", help=help)
            widgets.prose("Counted, not timed: what a machine gains lies below this bound.", "quiet")
        widgets.notes(run)
    with second:
        shape_costs.beside(named, context, batch)
    with pictures, st.grid(2, min_column_width=420, gap="large"):
        figure = worth_charts.shares(rows, batch, context, longest)
        plots.draw(figure, rows, "Attention's share of the work", "worth_shares", "attention's share")
        figure = worth_charts.gains(rows, batch, context, longest, keep)
        plots.draw(figure, rows, "Largest possible gain", "worth_gains", "largest possible gain")
        figure = worth_charts.memory(rows, batch, context, longest)
        plots.draw(figure, rows, "KV cache and weights", "worth_memory", "KV cache")
        with st.container(), widgets.guarded():
            shape_costs.paper_beside()

    of_batch = rows_of(rows, batch=batch)
    of_batch |= {"kv": [size(count) for count in of_batch["kv_bytes"]]}

    def on_row() -> None:
        if wanted := painted.picked("worth_table", of_batch["context"]):
            state.choose(chosen, context=wanted)

    st.subheader(f"Context by context, {worth_charts.many(batch)}", anchor=False)
    label, marked = "Shares and gains by context; choose one to look at it", of_batch["context"].index(context)
    look: dict[str, Any] = {"selected": marked, "on_row": on_row, "height": 520}
    plots.listed(COLUMNS, of_batch, "worth_table", label, f"{run.id}.{batch}", **look)
    with st.expander("What the config says, and what is counted", icon=":material/fact_check:"):
        widgets.source(run)
        shape_costs.counted(run, context)
    counted = shape_costs.request(chosen["shape"], keep, chosen["counted"])
    shape_costs.card(counted, shape, {name: cells[place] for name, cells in rows.items()}, verdict)
