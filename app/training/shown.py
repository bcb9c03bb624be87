"""What a training shows for itself: its curves, the perplexities, and the router it made."""

from pathlib import Path

import streamlit as st

from analysis.claims import Comparison, signed
from analysis.runs import Run
from app import cached
from app.training import charts
from app.ui import chips, jobs, tables, widgets

ARMS = {
    "before": ("reads everything, before phase 2", "perplexity"),
    "dense": ("reads everything", "perplexity"),
    "causal": ("these groups, causal", "literal and causal membership"),
    "literal": ("these groups, literal (reads the future)", "literal and causal membership"),
    "random": ("random centroids", "random centroids"),
}
COLUMNS = {
    "reads": tables.Column("what the model reads"),
    "perplexity": tables.Column("perplexity", "number", help=cached.glossary("perplexity")),
    "change": tables.Column("against reading everything"),
}


def run(training: Run) -> None:
    """The pictures of a finished training: its loss, and the shares by layer over the steps."""
    log, looks = cached.columns(training, "log"), cached.columns(training, "shares")
    widgets.source(training)
    widgets.chart(
        charts.losses(log),
        log,
        title="Loss",
        key="train_loss",
        alt="Training loss by step, and the loss with hard groups where it was measured",
        help=cached.glossary("soft and hard loss"),
    )
    widgets.prose(_said(log), "more")
    widgets.chart(
        charts.shares(looks, 1 / training.request["groups"]),
        looks,
        title="Largest group by layer",
        key="train_shares",
        alt="Largest group's share in each layer over the steps, with the line of even groups",
        help=cached.glossary("largest group's share (dominance)"),
    )


def numbers(training: Run) -> None:
    """The perplexities of a finished training, and the way to use what it made."""
    _perplexities(training.numbers, training.id)
    if training.request["phase"] == 1:
        name = cached.router_name(training.request)
        if name != st.session_state["router"]:
            st.button(f"Use the router {name}", key="train_use", on_click=jobs.use_router, args=(name,))
    else:
        copy = f"finetuned/{Path(training.numbers['path']).name}"
        st.button(f"Use the model {copy}", key="train_load", on_click=chips.use_model, args=(copy,))


def so_far(job_id: str, steps: int) -> None:
    """The loss of a training of so many `steps` that has not ended, or was stopped before its end."""
    curve = cached.jobs().curve(job_id)
    if not curve or len(curve["step"]) < 2:
        st.caption("The curve begins with the second step.")
        return
    widgets.chart(
        charts.losses(curve, steps),
        curve,
        title="Loss so far",
        key="train_growing",
        alt="Training loss by step, up to the present one",
        help=cached.glossary("soft and hard loss"),
    )


@st.fragment(run_every=2)
def growing(job_id: str, steps: int) -> None:
    """The same, drawn anew while the training runs."""
    so_far(job_id, steps)


def router(facts: dict) -> None:
    """The router in use, when nothing was trained with the present form: what its own training left behind."""
    if facts.get("kind") != "trained":
        return
    about = facts.get("training") or {}
    words = [f"{facts.get('steps', 0):,} steps", f"learned from {facts.get('corpus', 'texts of this machine')}"]
    words += [f"gate {about['gate']}", f"balance {about['balance']}"] if "gate" in about else []
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(
            "finished training", icon=":material/auto_stories:", color="gray", help=cached.glossary("trained router")
        )
        widgets.prose(" · ".join([f"The router in use: {facts['name']}", *words]), "quiet")
    if points := facts.get("hard_losses"):
        widgets.chart(
            charts.hard_losses(points),
            {"step": [step for step, _ in points], "hard loss": [loss for _, loss in points]},
            title="Loss with hard groups",
            key="router_loss",
            alt="Loss with hard groups by step of training",
            help=cached.glossary("soft and hard loss"),
        )
    if facts.get("dominance") and facts.get("groups"):
        shares = facts["dominance"]
        widgets.chart(
            charts.by_layer(shares, 1 / facts["groups"]),
            {"layer": list(range(len(shares))), "largest group's share": shares},
            title="Largest group by layer",
            key="router_shares",
            alt="Largest group's share in each layer on held-out text, with the line of even groups",
            help=cached.glossary("largest group's share (dominance)"),
        )


def router_numbers(facts: dict) -> None:
    """The perplexities that are known of the router in use."""
    if facts.get("kind") == "trained" and facts.get("perplexity_dense"):
        _perplexities(facts, facts["name"])


def _said(log: dict) -> str:
    first, last = log["loss"][0], log["loss"][-1]
    _, shares = charts.known(log["step"], log.get("largest_share", []))
    _, stay = charts.known(log["step"], log.get("stability", []))
    sentence = f"The soft loss went from {first:.2f} to {last:.2f} nats per token in {len(log['loss']):,} steps"
    if shares:
        sentence += f"; at the end the largest group of the worst layer holds {shares[-1]:.0%} of the tokens"
    if stay:
        sentence += f", and {stay[-1]:.0%} of them kept their group since the check before"
    return f"{sentence}."


def _perplexities(numbers: dict, identity: str) -> None:
    st.subheader("On text it never saw", anchor=False, help=cached.glossary("perplexity"))
    values, dense = {name: [] for name in COLUMNS}, numbers["perplexity_dense"]
    for arm, (label, _) in ARMS.items():
        value = numbers.get(f"perplexity_{arm}")
        if value:
            change = "–" if arm == "dense" else f"{value / dense - 1:+.1%}"
            for name, cell in zip(COLUMNS, (label, value, change), strict=True):
                values[name].append(cell)
    tables.table(COLUMNS, values, key="train_table", identity=identity, label="Perplexities", height=280)
    widgets.numbers(values, "perplexities", "train_perplexities")
    if gain := numbers.get("gain_over_random"):
        widgets.prose(
            f"Gain of this router's causal groups over random centroids: {signed(gain['mean'])} nats per token "
            f"({_span(gain)}). Hard groups, the router's window and sinks.",
            "quiet",
        )


def _span(gain: dict) -> str:
    """The interval of a gain with what it rests on, or its points; of an older router its units of 8 windows."""
    interval = Comparison.of(gain, "mean", "").interval
    if "state" not in gain:
        return f"{interval}, {gain['units']} units of 8 windows, a percentile bootstrap that is too narrow"
    return f"{gain['state']}, {interval.removeprefix('95% interval ')}"
