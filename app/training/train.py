"""The training tab: the largest group's share of a training, or of the router in use, beside the form and its price."""

from pathlib import Path

import streamlit as st

from analysis.claims import Claim, Comparison, signed
from analysis.commands.groups import TrainRouter
from analysis.runs import Run
from app import cached
from app.training import router_form, training_charts, training_requests
from app.ui import asking, chips, jobs, plots, repeat, screen, studied, tables, widgets

DOMINANCE = "largest group's share (dominance)"
# Points that make a curve.
CURVE = 3
ARMS = {
    "before": "reads everything, before phase 2",
    "dense": "reads everything",
    "causal": "these groups, causal",
    "literal": "these groups, literal (reads the future)",
    "random": "random centroids",
}
COLUMNS = {
    "reads": tables.Column("what the model reads"),
    "perplexity": tables.Column("perplexity", "number", help=cached.glossary("perplexity")),
    "change": tables.Column("against reading everything"),
}


def facts_of(name: str) -> dict:
    """What is known of a router: its card's facts, or of one that was made since, what its training run says."""
    model = st.session_state["model"]
    facts = next((router for router in asking.card(model)["routers"] if router["name"] == name), {"name": name})
    for run in cached.store().list(TrainRouter.verb, 50):
        is_same = run.request.get("model") == model and run.request.get("phase") == 1
        if is_same and cached.router_name(run.request) == name:
            sizes = {key: run.request[key] for key in ("groups", "top", "steps", "window")}
            return facts | sizes | run.numbers | {"kind": "trained", "name": name}
    return facts


def answer() -> tuple[str, str | None]:
    """Whether the groups of the router in use are balanced, and what it has learned besides."""
    facts = facts_of(st.session_state["router"])
    name, gain = facts["name"], facts.get("gain_over_random") or {}
    shares = [share for share in facts.get("dominance") or [] if share is not None]
    if facts.get("kind") != "trained":
        return f"The router {widgets.plain(name)} was fitted without training: train one here.", None
    sentence = f"The router {name} learned for {facts.get('steps', 0):,} steps"
    if gain.get("mean") is not None:
        against_random = Comparison.of(gain, "mean", "", versus="random centroids")
        claim = Claim(against_random, lower="worse", higher="better").text()
        sentence += f"; on text it never saw, its groups are {claim}"
    if not (shares and facts.get("groups")):
        return f"The router {widgets.plain(name)} learned for {facts.get('steps', 0):,} steps.", f"{sentence}."
    balance = f"the largest group holds {max(shares):.1%} of the tokens; even groups {1 / facts['groups']:.1%}."
    return f"{widgets.plain(name)}: {balance}", f"Of the worst layer. {sentence}. {cached.glossary(DOMINANCE)}"


def tab() -> None:
    """The picture of the run that the form asks for, or of the router in use, beside it the form with its price and
    button, and folded the loss and what the groups are worth."""
    picture, card = screen.picture_and_card("training", 0.6)
    with card:
        router_form.form()
        request = training_requests.request()
        stored = cached.store().find(request)
        with widgets.guarded():
            router = cached.router_name(request.spelled)
            purpose = f"This makes the router {router}; the model stays as it is."
            if request.phase == 2:
                trained = f"finetuned/{request.model.replace('/', '--')}-{router}"
                purpose = (
                    f"This trains a copy of the model together with the router {router}, under the name {trained}."
                )
            jobs.run_button(
                "Train",
                request,
                "train_run",
                help=f"{purpose} A stopped training keeps its steps: train again with the same settings.",
                price=training_requests.price(request, asking.card(request.model)),
                stored=stored,
                smaller=lambda: training_requests.smaller(request),
                type="primary",
            )
        if stored is not None:
            name, copy = cached.router_name(stored.request), f"finetuned/{Path(stored.numbers['path']).name}"
            if stored.request["phase"] == 2:
                st.button(f"Use the model {copy}", key="train_load", on_click=chips.use_model, args=(copy,))
            elif name != st.session_state["router"]:
                st.button(f"Use the router {name}", key="train_use", on_click=chips.use_router, args=(name,))
    facts = stored.numbers if stored else facts_of(st.session_state["router"])
    with picture:
        # The training that runs or was stopped, then what is there: the run of the form, or the router in use.
        job = jobs.current()
        if job and (job.verb, job.args) == (request.verb, request.spelled) and job.state != "done":
            with widgets.guarded():
                grows = st.fragment(_so_far, run_every=2) if job.state in jobs.WAITING else _so_far
                grows(job.id, request.steps, request.groups)
        if stored is not None:
            looks = cached.columns(stored, "shares")
            figure = training_charts.shares(looks, 1 / stored.request["groups"])
            plots.draw(figure, looks, "Largest group by layer", "train_shares", DOMINANCE)
        elif facts.get("dominance") and facts.get("groups"):
            rows = [{"layer": layer, "largest group's share": share} for layer, share in enumerate(facts["dominance"])]
            figure = training_charts.by_layer(facts["dominance"], 1 / facts["groups"])
            plots.draw(figure, rows, "Largest group by layer", "router_shares", DOMINANCE)
        elif job is None:
            st.info("The largest group's share is drawn here while a router trains.")
    with st.expander("Loss, and what the groups are worth", icon=":material/show_chart:"), widgets.guarded():
        _details(stored, facts)
    repeat.drawer(request.but(corpus="DIR").command_line())


# --- what there is ----------------------------------------------------------------------------------------------------


def _so_far(job_id: str, steps: int, groups: int) -> None:
    """The largest group's share of every layer, and the loss, of a training of so many `steps` that has not ended, or
    was stopped before its end."""
    log = cached.jobs().curve(job_id)
    if not log or len(log["step"]) < 2:
        st.caption("The curve begins with the second step.")
        return
    looks = log.get("looks", {})
    if looks.get("step"):
        figure = training_charts.shares(looks, 1 / groups, steps)
        plots.draw(figure, looks, "Largest group so far, by layer", "train_growing_shares", DOMINANCE)
    plots.draw(training_charts.losses(log, steps), log, "Loss so far", "train_growing", "soft and hard loss")


def _details(stored: Run | None, facts: dict) -> None:
    """The loss of a training, the perplexities with its groups, and what a step costs."""
    if stored is not None:
        _loss(stored)
    elif facts.get("kind") == "trained":
        _router(facts)
    if (dense := facts.get("perplexity_dense")) and (stored or facts.get("kind") == "trained"):
        st.subheader("On text it never saw", anchor=False, help=cached.glossary("perplexity"))
        rows = []
        for arm, label in ARMS.items():
            if value := facts.get(f"perplexity_{arm}"):
                change = "–" if arm == "dense" else signed(value / dense - 1, ".1%")
                rows.append({"reads": label, "perplexity": value, "change": change})
        identity = stored.id if stored else facts["name"]
        plots.listed(COLUMNS, rows, "train_table", "Perplexities", identity, height=280)
        if gain := facts.get("gain_over_random"):
            interval = Comparison.of(gain, "mean", "").interval
            span = f"{interval}, {gain['units']} units of 8 windows, a percentile bootstrap that is too narrow"
            if "state" in gain:  # older routers have none
                span = f"{gain['state']}, {interval.removeprefix('95% interval ')}"
            change = f"{signed(gain['mean'])} nats per token ({span})"
            widgets.prose(f"Gain of its causal groups over random centroids: {change}.", "quiet")
    if cost := studied.study("step-cost"):
        processor = cost.numbers["protocol"].get("processor", "this machine")
        widgets.prose(f"{cost.sentence} Measured on: {processor}.", "quiet")


def _loss(run: Run) -> None:
    """The loss of a finished training."""
    log = cached.columns(run, "log")
    widgets.source(run)
    plots.draw(training_charts.losses(log), log, "Loss", "train_loss", "soft and hard loss")
    _, stay = training_charts.defined(log["step"], log.get("stability", []))
    kept_group = f"; {stay[-1]:.0%} of the tokens kept their group since the check before" if stay else ""
    ends = f"from {log['loss'][0]:.2f} to {log['loss'][-1]:.2f} nats per token"
    widgets.prose(f"The soft loss went {ends} in {len(log['loss']):,} steps{kept_group}.", "more")


def _router(facts: dict) -> None:
    """The router in use, when nothing was trained with the present form: what its own training left behind."""
    about = facts.get("training") or {}
    words = [f"{facts.get('steps', 0):,} steps", f"learned from {facts.get('corpus', 'texts of this machine')}"]
    words += [f"gate {about['gate']}", f"balance {about['balance']}"] if "gate" in about else []
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        help = cached.glossary("trained router")
        st.badge("finished training", icon=":material/auto_stories:", color="gray", help=help)
        widgets.prose(" · ".join([f"The router in use: {facts['name']}", *words]), "quiet")
    points = facts.get("hard_losses") or []
    if len(points) >= CURVE:
        rows = [{"step": step, "hard loss": loss} for step, loss in points]
        figure = training_charts.hard_losses(points)
        plots.draw(figure, rows, "Loss with hard groups", "router_loss", "soft and hard loss")
