"""What routing costs: fitting, routing one query, one step of generation; and how even the buckets are."""

import streamlit as st

from analysis.commands.routing import RouteTime
from analysis.runs import Run
from app import cached
from app.routing import routing_charts
from app.routing.bucket_routers import ROUTERS
from app.ui import jobs, plots, tables, widgets

SIDES = {"calibration": "text that calibrated", "test": "text that tests"}
TIMES = {
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
BALANCE = ("layer", "part", "side", "largest", "empty", "effective")


def show(opened: Run, run: Run) -> None:
    """`opened`: the stored curves, with the times of fitting; `run`: what is shown, with the buckets of its test."""
    _times(opened)
    with widgets.guarded():
        _step(run)
    _balance(run)


def _times(opened: Run) -> None:
    st.subheader("Fitting, and routing one query", anchor=False, help=cached.glossary("bucket routers"))
    about, timings = opened.protocol, {row["router"]: row for row in opened.numbers["timings"]}
    threads = about.get("threads", "?")
    shared = timings.get("buckets")
    widgets.prose(
        f"Measured while they were fitted, on {about.get('device', '?')} with {threads} "
        f"{'thread' if threads == 1 else 'threads'}, {about.get('date', '')[:10]}; of {about.get('prompts', ['?'])[0]} "
        "prompts. " + (f"The buckets that all routers share took {shared['fit_seconds']:.1f} s." if shared else ""),
        "quiet",
    )
    rows = [
        row | {"router": ROUTERS[kind].title, "needs": ROUTERS[kind].about, "fit_seconds": row["fit_seconds"] or None}
        for kind, row in sorted(timings.items(), key=lambda item: item[1]["fit_seconds"] or 0.0)
        if kind in ROUTERS
    ]
    plots.listed(TIMES, rows, "routing_times", "Times of the routers", opened.id, height=400)


def _step(run: Run) -> None:
    chosen = st.session_state
    st.subheader("One step of generation", anchor=False, help=cached.glossary("KV cache"))
    router = chosen["route_router"] if chosen["route_router"] not in ("recency", "oracle") else "gwr_linear"
    about, visited = {"model": chosen["model"], "text": chosen["text"]}, max(1, int(run.numbers["l"]))
    request = RouteTime(**about, router=router, visited=visited)
    stored = cached.store().find(request)
    widgets.prose(
        "Bucket routing reads near tokens and sinks in full, and the rest from the buckets that it visits. Its "
        "perplexity stands beside the other methods on the page Quality vs speed.",
        "quiet",
    )
    jobs.run_button(f"Time {ROUTERS[router].title} against dense", request, "routing_time", stored=stored)
    if stored is None:
        return
    widgets.source(stored)
    widgets.prose(stored.numbers["sentence"], "more")
    identity = stored.id + stored.created
    plots.listed(STEP, stored.numbers["rows"], "routing_step", "Time of a step", identity, height=150)
    widgets.notes(stored)


def _balance(run: Run) -> None:
    rows, layers = run.numbers["balance"], sorted({row["layer"] for row in run.numbers["balance"]})
    worst = {
        title: [max(row["largest"] for row in rows if (row["layer"], row["side"]) == (layer, side)) for layer in layers]
        for side, title in SIDES.items()
        if any(row["side"] == side for row in rows)
    }
    figure = routing_charts.balance(layers, worst, 1 / run.numbers["buckets"])
    listed = plots.columns(rows, *BALANCE)
    plots.draw(figure, listed, "How even the buckets are", "routing_balance", "bucket of keys")
    st.caption("The key-value head with the largest bucket in each layer; the table lists all heads.")
