"""What it costs here: top-k against dense, keys and values as they are and under eviction, attention's share."""

import streamlit as st

from analysis.commands import request as requested
from analysis.runs import Run
from analysis.runs.price import predicted
from app import cached
from app.budgets import policy
from app.budgets.words import share, span
from app.selection import state
from app.selection.decide import CONTEXTS, LOADED
from app.ui import asking, jobs, tables, widgets
from app.ui.spelled import size
from app.worth import charts as worth_charts, tables as worth

LENGTHS, KEYS, ROUNDS = [1024, 4096], 64, 5
GUESS = 20.0  # seconds, until something was timed here
WORDS = {"pass": "whole text", "step": "one more token"}
COLUMNS = {
    "what": tables.Column("what"),
    "length": tables.Column("tokens", "whole"),
    "dense_ms": tables.Column("dense, ms", "number", 3),
    "topk_ms": tables.Column("top-k, ms", "number", 3),
    "masked_ms": tables.Column("masked, ms", "number", 3, help=cached.glossary("masked reference")),
    "times": tables.Column("top-k, times dense (slowest to fastest round)"),
    "faster": tables.Column("times faster than masked", "number", 1),
}
CANNOT = (
    "Top-k cannot beat dense attention while all scores are computed: to find the largest scores, every query is "
    "multiplied with every key. It saves only the reading of values, and a softmax over fewer scores."
)
EVICTION = (
    "The paper proposes eviction and does not build it: a head that holds more keys than its budget drops the one with "
    "the least attention for good. The newest half of its keys is safe."
)


def tab(run: Run, policies: dict[str, dict]) -> None:
    """Times, memory with its quality, and what attention weighs at each context."""
    widgets.prose(CANNOT, "more")
    widgets.each(_times, lambda: _memory(run, policies), _share)


def _times() -> None:
    st.subheader("Top-k against dense", anchor=False, help=cached.glossary("top-k attention"))
    card = asking.card(st.session_state["model"])
    args = {"lengths": LENGTHS, "keys": KEYS, **{name: card[name] for name in ("heads", "head_dim", "kv_heads")}}
    args |= {"repeats": ROUNDS, "seed": 0}
    run = cached.store().find("topk-cost", args)
    if run is None:
        widgets.prose(
            f"Not timed on this machine yet. The button times {card['heads']} heads of size {card['head_dim']} with "
            f"{KEYS} keys kept, dense and top-k in turns.",
            "quiet",
        )
        price = predicted(cached.store(), requested("topk-cost", args), 1, guess=lambda _: GUESS)
        jobs.run_button("Time it here", "topk-cost", args, "budget_time", price=price)
        return
    widgets.prose(run.numbers["sentence"], "more")
    rows = run.numbers["rows"]
    values = {
        "what": [WORDS[row["what"]] for row in rows],
        "times": [f"{r['times_dense']:.2f} ({r['times_dense_low']:.2f} to {r['times_dense_high']:.2f})" for r in rows],
        "faster": [row["faster_than_masked"] for row in rows],
    } | {name: [row[name] for row in rows] for name in ("length", "dense_ms", "topk_ms", "masked_ms")}
    values = {name: values[name] for name in COLUMNS}
    tables.table(COLUMNS, values, key="budget_times", identity=run.id, label="Times", height=210)
    widgets.numbers(values, "topk-cost", "budget_times_rows")
    about = run.protocol
    widgets.prose(
        f"Measured: medians of {about['repeats']} rounds, {about['dtype']} on "
        f"{about.get('processor', about['device'])}, {about['threads']} threads; dense by {rows[0]['dense_kernel']}.",
        "quiet",
    )
    widgets.source(run)


def _memory(run: Run, policies: dict[str, dict]) -> None:
    numbers = run.numbers
    st.subheader("Keys and values in memory", anchor=False, help=cached.glossary("KV cache"))
    dense, evicted, dtype = numbers["kv_bytes"], numbers["kv_bytes_evicted"], run.protocol["dtype"]
    facts = (
        (f"Held, {dtype}", size(dense), f"at {numbers['window']:,} tokens", cached.glossary("KV cache")),
        (
            f"Held under eviction, {dtype}, at most",
            size(evicted),
            f"{share(evicted / dense)} of it",
            cached.glossary("eviction"),
        ),
    )
    with st.container(horizontal=True, gap="large", vertical_alignment="center"):
        widgets.metrics(facts)
        st.badge("counted", icon=":material/calculate:", color="blue", help=cached.glossary("estimated and measured"))
    widgets.prose(EVICTION, "quiet")
    if policy.refused(policies):
        return
    methods = [
        {"name": "csa", "policy": policy.recipe(), "settings": {"eviction": way}} for way in ("never", "at the budget")
    ]
    args = state.study_args(st.session_state, methods=methods, window=None, seed=0)
    measured = cached.store().find("evaluate", args)
    if measured is None:
        jobs.run_button("Measure what eviction does to this text", "evaluate", args, "budget_evict")
        return
    kept_all, gone = (
        span({"difference": row["difference"], "low": row["difference_low"], "high": row["difference_high"]})
        for row in measured.numbers["rows"]
    )
    widgets.prose(
        f"On this text perplexity changes by {kept_all} against dense when nothing is evicted, and by {gone} when keys "
        "are (masked passes; no kernel evicts).",
        "more",
    )
    widgets.source(measured)


def _share() -> None:
    chosen = st.session_state
    run = worth.ask(worth.arguments(LOADED, chosen["keep"], chosen["counted"]))
    rows, longest = cached.columns(run, "rows"), run.numbers["shape"]["max_positions"]
    context = min(CONTEXTS, key=lambda size: abs(size - (longest or 1024)))
    widgets.chart(
        worth_charts.shares(rows, 1, context, longest),
        rows,
        title="Attention's share of the work",
        key="budget_worth",
        alt="Attention's share of the arithmetic of a prefill and of the bytes of a step, by context",
        help=cached.glossary("attention's share"),
    )
    st.page_link("views/is_it_worth_it.py", label="More on the page Is it worth it?", icon=":material/arrow_forward:")
