"""Is it worth it?: what could sparse attention gain at most, from the model's shape alone?"""

import streamlit as st

from app import cached
from app.ui import fields, reading, tables, widgets
from app.worth import beside, card, charts, form, tables as worth

widgets.header(
    "Is it worth it?",
    "How much of a model's work is attention, and the most that reading fewer keys could gain: counted from its "
    "config.json",
)


def live() -> None:
    """The controls and all that they count."""
    answer = st.container()
    form.whose()
    chosen = st.session_state
    keep = chosen["keep"]
    sliders, pictures, second = st.container(), st.container(), st.container()
    models = form.offered()
    with second:
        st.subheader("On a GPU, or beside another model", anchor=False, help=cached.glossary("estimated and measured"))
        beside.controls(models)
    named = [
        (models[shape], worth.ask(worth.arguments(shape, keep, chosen["counted"], chosen["gpu"])))
        for shape in (chosen["shape"], chosen["shape_beside"])
        if shape is not None
    ]
    run = named[0][1]
    shape, rows, sentences = run.numbers["shape"], cached.columns(run, "rows"), cached.columns(run, "said")
    with sliders:
        context, batch = form.where(shape["max_positions"])
    row = list(zip(rows["context"], rows["batch"], strict=True)).index((context, batch))

    with answer:
        widgets.prose(sentences["sentence"][row])
        widgets.prose(sentences["further"][row], "more")
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.badge(
                "estimated", icon=":material/calculate:", color="blue", help=cached.glossary("estimated and measured")
            )
            widgets.prose("Counted, not timed: what a machine gains lies below this bound.", "quiet")
        widgets.notes(run)

    with second:
        beside.show(named, context, batch)

    with pictures, st.grid(2, min_column_width=420, gap="large"):
        widgets.chart(
            charts.shares(rows, batch, context, shape["max_positions"]),
            rows,
            title="Attention's share of the work",
            key="worth_shares",
            alt="Attention's share of the arithmetic of a prefill and of the bytes of a step, by context",
            help=cached.glossary("attention's share"),
        )
        widgets.chart(
            charts.gains(rows, batch, context, shape["max_positions"], keep),
            rows,
            title="Largest possible gain",
            key="worth_gains",
            alt="The largest possible gains for the first and each later token, by context",
            help=cached.glossary("largest possible gain"),
        )
        widgets.chart(
            charts.memory(rows, batch, context, shape["max_positions"]),
            rows,
            title="KV cache and weights",
            key="worth_memory",
            alt="Size of the KV cache by context beside the weights",
            help=cached.glossary("KV cache"),
        )
        with st.container(), widgets.guarded():
            worth.beside()

    of_batch = worth.table(reading.rows_of(rows, batch=batch))
    st.subheader(f"Context by context, {'1 sequence' if batch == 1 else f'{batch} sequences at once'}", anchor=False)
    tables.table(
        worth.COLUMNS,
        of_batch,
        key="worth_table",
        identity=f"{run.id}.{batch}",
        label="Shares and gains by context; choose one to look at it",
        selected=of_batch["context"].index(context),
        on_row=lambda: worth.take_row(of_batch),
        height=520,
    )
    widgets.numbers(of_batch, "worth", "worth_rows")

    with st.expander("What the config says, and what is counted", icon=":material/fact_check:"):
        widgets.source(run)
        worth.counted(run, context)

    card.card(worth.arguments(chosen["shape"], keep, chosen["counted"]), shape, rows, row, sentences["sentence"][row])


fields.alone(live)
