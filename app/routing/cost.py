"""What routing costs: fitting, routing one query, one step of generation; and how even the buckets are."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.routing import charts
from app.routing.words import ROUTERS
from app.ui import jobs, tables, widgets

SIDES = {"calibration": "text that calibrated", "test": "text that tests"}
COLUMNS = {
    "router": tables.Column("router"),
    "needs": tables.Column("how it chooses"),
    "fit_seconds": tables.Column("seconds to fit, all heads", "number", help="without the passes that all share"),
    "route_us": tables.Column("µs per query and head", "number", help="scores of all buckets and the best C / 32"),
}
STEP = {
    "side": tables.Column("one more token"),
    "ms_per_token": tables.Column("ms per token", "number"),
    "prefill_ms": tables.Column("ms to the first token", "number", digits=0),
    "kernel": tables.Column("kernel", wrap=True),
}


def show(opened: Run, run: Run) -> None:
    """`opened`: the stored curves, with the times of fitting; `run`: what is shown, with the buckets of its test."""
    _times(opened)
    with widgets.guarded():
        _step(run)
    _balance(run)


def _times(opened: Run) -> None:
    st.subheader("Fitting, and routing one query", anchor=False, help=cached.glossary("bucket routers"))
    rows = [row for row in opened.numbers["timings"] if row["router"] in ROUTERS]
    rows.sort(key=lambda row: row["fit_seconds"] or 0.0)
    buckets = next((row for row in opened.numbers["timings"] if row["router"] == "buckets"), None)
    about = opened.protocol
    widgets.prose(
        f"Measured while they were fitted, on {about.get('device', '?')} with {about.get('threads', '?')} "
        f"{'thread' if about.get('threads') == 1 else 'threads'}, "
        f"{about.get('date', '')[:10]}; of {about.get('prompts', ['?'])[0]} prompts. "
        + (f"The buckets that all routers share took {buckets['fit_seconds']:.1f} s." if buckets else ""),
        "quiet",
    )
    values = {
        "router": [ROUTERS[row["router"]].title for row in rows],
        "needs": [ROUTERS[row["router"]].about for row in rows],
        "fit_seconds": [row["fit_seconds"] or None for row in rows],
        "route_us": [row["route_us"] for row in rows],
    }
    tables.table(COLUMNS, values, key="routing_times", identity=opened.id, label="Times of the routers", height=400)
    widgets.numbers(values, "routing-times", "routing_times_numbers")


def _step(run: Run) -> None:
    chosen = st.session_state
    st.subheader("One step of generation", anchor=False, help=cached.glossary("KV cache"))
    router = chosen["route_router"] if chosen["route_router"] not in ("recency", "oracle") else "gwr_linear"
    args = {"model": chosen["model"], "text": chosen["text"], "router": router}
    args["visited"] = max(1, int(run.numbers["l"]))
    stored = cached.store().find("route-time", args)
    widgets.prose(
        "Bucket routing reads near tokens and sinks in full, and the rest from the buckets that it visits. Its "
        "perplexity stands beside the other methods on the page Quality vs speed.",
        "quiet",
    )
    jobs.run_button(
        f"Time {ROUTERS[router].title} against dense{' again' if stored else ''}",
        "route-time",
        args,
        "routing_time",
        instead_of=stored.id if stored else None,
    )
    if stored is None:
        return
    widgets.source(stored)
    widgets.prose(stored.numbers["sentence"], "more")
    rows = stored.numbers["rows"]
    values = {name: [row[name] for row in rows] for name in STEP}
    tables.table(
        STEP, values, key="routing_step", identity=stored.id + stored.created, label="Time of a step", height=150
    )
    widgets.numbers(values, "routing-step", "routing_step_numbers")
    widgets.notes(stored)


def _balance(run: Run) -> None:
    rows, layers = run.numbers["balance"], sorted({row["layer"] for row in run.numbers["balance"]})
    worst = {
        title: [max(row["largest"] for row in rows if (row["layer"], row["side"]) == (layer, side)) for layer in layers]
        for side, title in SIDES.items()
        if any(row["side"] == side for row in rows)
    }
    named = {"layer": "layer", "part": "key-value head", "side": "text", "largest": "largest", "empty": "empty"}
    named["effective"] = "effective"
    widgets.chart(
        charts.balance(layers, worst, 1 / run.numbers["buckets"]),
        {title: [row[name] for row in rows] for name, title in named.items()},
        title="How even the buckets are",
        key="routing_balance",
        alt="The share of the keys in the largest bucket of each layer, with the even share",
        help=cached.glossary("bucket of keys"),
    )
    st.caption(
        "The key-value head with the largest bucket in each layer; the table lists all heads and their empty buckets."
    )
