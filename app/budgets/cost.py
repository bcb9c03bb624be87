"""What it costs here: top-k against dense, keys and values as they are and under eviction."""

import streamlit as st

from analysis.commands.budgets import TopkCost
from analysis.commands.quality import Evaluate
from analysis.runs import Run
from analysis.runs.price import predicted
from app import cached
from app.budgets import policy
from app.budgets.budget_words import share, span
from app.selection import state
from app.ui import asking, foot, jobs, plots, tables, widgets
from app.ui.spelled import size

LENGTHS, KEYS, ROUNDS = [1024, 4096], 64, 5
# Seconds, until something was timed here.
GUESS = 20.0
WORDS = {"pass": "whole text", "step": "one more token"}
COLUMNS = {
    "what": tables.Column("what"),
    "length": tables.Column("tokens", "whole"),
    "dense_ms": tables.Column("dense, ms", "number", 3),
    "topk_ms": tables.Column("top-k, ms", "number", 3),
    "masked_ms": tables.Column("masked, ms", "number", 3, help=cached.glossary("masked reference")),
    "times": tables.Column("top-k, times dense (slowest to fastest round)"),
    "faster_than_masked": tables.Column("times faster than masked", "number", 1),
}
CANNOT = (
    "Top-k cannot beat dense attention while all scores are computed: to find the largest scores, every query is "
    "multiplied with every key. It saves only the reading of values, and a softmax over fewer scores."
)
EVICTION = (
    "The paper proposes eviction and does not build it: a head that holds more keys than its budget drops the one with "
    "the least attention for good. The newest half of its keys is safe. *Generate* with this setting frees them and "
    "says what it held."
)


def show(run: Run, refused: str | None) -> None:
    """Times, and memory with its quality."""
    widgets.prose(CANNOT, "more")
    with widgets.guarded():
        _times()
    with widgets.guarded():
        numbers, dtype = run.numbers, run.protocol["dtype"]
        st.subheader("Keys and values in memory", anchor=False, help=cached.glossary("KV cache"))
        dense, evicted = numbers["kv_bytes"], numbers["kv_bytes_evicted"]
        if dense is not None:
            held = f"{share(evicted / dense)} of it"
            facts = (
                (f"Held, {dtype}", size(dense), f"at {numbers['window']:,} tokens", cached.glossary("KV cache")),
                (f"Held under eviction, {dtype}, at most", size(evicted), held, cached.glossary("eviction")),
            )
            with st.container(horizontal=True, gap="large", vertical_alignment="center"):
                widgets.metrics(facts)
                hint = cached.glossary("estimated and measured")
                st.badge("counted", icon=":material/calculate:", color="blue", help=hint)
        widgets.prose(numbers.get("kv_notes", []), "note")
        widgets.prose(EVICTION, "quiet")
        if refused:
            widgets.prose(refused, "note")
        else:
            ways = ({"eviction": way} for way in ("never", "at the budget"))
            methods = [{"name": "csa", "policy": policy.recipe(), "settings": way} for way in ways]
            request = Evaluate(**state.study_args(st.session_state, methods=methods, window=None, seed=0))
            measured = cached.store().find(request)
            if measured is None:
                jobs.run_button("Measure what eviction does to this text", request, "budget_evict")
            else:
                whole, gone = (span(row, "difference_") for row in measured.numbers["rows"])
                widgets.prose(
                    f"On this text perplexity changes by {whole} against dense when nothing is evicted, and by {gone} "
                    "when keys are (masked passes).",
                    "more",
                )
                widgets.source(measured)
    foot.link("worth", "What attention weighs at each context: Is it worth it?")


def _times() -> None:
    st.subheader("Top-k against dense", anchor=False, help=cached.glossary("top-k attention"))
    card = asking.card(st.session_state["model"])
    shape = {name: card[name] for name in ("heads", "head_dim", "kv_heads")}
    request = TopkCost(lengths=LENGTHS, keys=KEYS, **shape, repeats=ROUNDS, seed=0)
    run = cached.store().find(request)
    if run is None:
        widgets.prose("Not timed on this machine yet. The button times dense and top-k in turns.", "quiet")
        price = predicted(cached.store(), request, 1, guess=lambda _: GUESS)
        jobs.run_button("Time it here", request, "budget_time", price=price)
        return
    widgets.prose(run.numbers["sentence"], "more")
    rows = [
        row
        | {"what": WORDS[row["what"]]}
        | {"times": f"{row['times_dense']:.2f} ({row['times_dense_low']:.2f} to {row['times_dense_high']:.2f})"}
        for row in run.numbers["rows"]
    ]
    plots.listed(COLUMNS, rows, "budget_times", "Times", run.id, height=210)
    about = run.protocol
    where = f"{about['dtype']} on {about.get('processor', about['device'])}, {about['threads']} threads"
    rounds = f"Measured: medians of {about['repeats']} rounds, {where}"
    widgets.prose(f"{rounds}; dense by {rows[0]['dense_kernel']}.", "quiet")
    widgets.source(run)
