"""The training tab: the largest group's share of a training, or of the router in use, beside the form and its price."""

from pathlib import Path
from typing import Any

import streamlit as st

from analysis.claims import Claim, Comparison, signed
from analysis.commands.groups import AGAINST_COLLAPSE, AS_PRINTED, TrainRouter
from analysis.runs import Run
from app import cached
from app.selection import state
from app.selection.evidence import PHASES
from app.training import training_charts, training_requests
from app.ui import asking, chips, fields, jobs, plots, repeat, screen, studied, tables, widgets

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
# Settings that are folded.
BESIDE = {"train_phase", "train_groups", "train_steps"}
FOLDED = {name for name in state.CONTROLS if name.startswith("train_")} - BESIDE
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
        _form()
        request = training_requests.request()
        stored = cached.store().find(request)
        with widgets.guarded():
            _button(request, stored)
        if stored is not None:
            _use(stored)
    facts = stored.numbers if stored else facts_of(st.session_state["router"])
    with picture:
        _pictures(request, stored, facts)
    with st.expander("Loss, and what the groups are worth", icon=":material/show_chart:"), widgets.guarded():
        _details(stored, facts)
    repeat.drawer(request.but(corpus="DIR").command_line())


def _button(request: TrainRouter, stored: Run | None) -> None:
    router = cached.router_name(request.spelled)
    purpose = f"This makes the router {router}; the model stays as it is."
    if request.phase == 2:
        copy = f"finetuned/{request.model.replace('/', '--')}-{router}"
        purpose = f"This trains a copy of the model together with the router {router}, under the name {copy}."
    jobs.run_button(
        "Train it again" if stored else "Train",
        request,
        "train_run",
        help=f"{purpose} A stopped training keeps its steps: train again with the same settings.",
        price=training_requests.price(request, asking.card(request.model)),
        instead_of=stored.id if stored else None,
        smaller=lambda: training_requests.smaller(request),
        type="secondary" if stored else "primary",
    )
    router = cached.router_name(request.spelled)


# --- the form ---------------------------------------------------------------------------------------------------------


def _form() -> None:
    help = cached.glossary("phase 1 and phase 2")
    titled = PHASES.__getitem__
    st.selectbox("Phase", list(PHASES), key="train_phase", format_func=titled, help=help)
    first = st.session_state["train_phase"] == 1
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        if first:
            fields.number("Groups (K)", "train_groups", 1, 64, "learned group", width=120)
        fields.number("Steps", "train_steps", 1, 100_000, "optimiser step", width=120)
    if first:
        _against_collapse()
    # What a link brings is seen, and what of it had to go.
    if st.session_state[state.LINKED] & FOLDED:
        st.session_state["train_folded"] = True
    with st.expander("More settings", icon=":material/tune:", key="train_folded", on_change="rerun"):
        named = "Learn from", "Texts to learn from"
        fields.corpus("train_corpus", cached.corpus(), named, "The bundled samples", "corpus")
        if first:
            _presets()
        with st.grid(4, min_column_width=150, gap="small"):
            _more(first)


def _presets() -> None:
    """What the paper prints, or what is usual here, as one step."""
    usual = {name: getattr(TrainRouter, name) for name in AS_PRINTED}
    presets = {"As the paper prints it": AS_PRINTED, "As is usual here": usual}
    with st.container(horizontal=True, gap="small"):
        for number, (label, settings) in enumerate(presets.items()):
            chosen = {training_requests.FIELDS[name]: value for name, value in settings.items()}
            look: dict[str, Any] = {"on_click": state.choose, "args": (st.session_state,), "kwargs": chosen}
            words = ", ".join(f"{name} {value}" for name, value in settings.items())
            st.button(label, key=f"train_preset_{number}", help=words, **look)


def _more(first: bool) -> None:
    _whole("Tokens in a step", "train_tokens", 2, 262_144, "optimiser step")
    _real("Learning rate, router", "train_rate", "learning rate")
    if first:
        help = "Added to the router's name, so that it replaces no other. Letters and digits."
        st.text_input("Name", key="train_label", max_chars=16, on_change=_named, help=help)
        _whole("Groups per token", "train_top", 1, 64, "membership (top-k)")
        _whole("Window, tokens", "train_window", 1, 1024, "sliding window")
        _whole("Sinks, tokens", "train_sinks", 0, 64, "attention sink")
        _whole("Sequence, tokens", "train_length", 2, 131_072, "optimiser step")
        look: dict[str, Any] = {"placeholder": "all", "max_chars": 200, "on_change": _layers}
        st.text_input("Layers with groups", key="train_layers", help=cached.glossary("learned group"), **look)
        st.checkbox("A router for each key-value head", key="train_per_head", help=cached.glossary("router"))
        _one_of("Gate", "train_gate", "gate")
        usual: dict[str, Any] = {"placeholder": "usual", "width": "stretch"}
        fields.number("Gate sharpness (λ)", "train_sharpness", 0.0, 1e6, "gate", **usual)
        fields.number("Gate offset (b)", "train_offset", -1.0, 1.0, "gate", **usual)
        fields.number("Sharper at the end, times", "train_sharpest", 1.0, 1000.0, "gate", width="stretch")
        _one_of("Balance", "train_balance", "Sinkhorn normalisation")
        _real("Temperature", "train_temperature", "temperature (router)")
        _whole("Sinkhorn iterations", "train_iterations", 0, 100, "Sinkhorn iterations")
        _whole("Size of routing vectors", "train_size", 1, 1024, "router")
        _one_of("Similarity", "train_similarity", "router")
        _losses_and_centroids()
    else:
        _real("Learning rate, model", "train_base_rate", "learning rate")
    readings = list(_options("train_reading"))
    if first:
        # without a gradient the router would learn nothing
        readings.remove("hard")
    widgets.settled("train_reading", readings, "soft")
    help = cached.glossary("gate")
    st.selectbox("Reads through", readings, key="train_reading", help=help, format_func=_spaced)
    _whole("Seed", "train_seed", 0, 9999, "protocol")


def _against_collapse() -> None:
    """The ways of section 4 and table 8 as one step each; what they set stands among the settings."""
    fields_of_ways = {name for way in AGAINST_COLLAPSE.values() for name in way}
    controls = {training_requests.FIELDS[name]: getattr(TrainRouter, name) for name in sorted(fields_of_ways)}
    ways = {}
    for title, way in AGAINST_COLLAPSE.items():
        ways[title] = controls | {training_requests.FIELDS[name]: value for name, value in way.items()}
    now = {name: st.session_state[name] for name in controls}
    shown = next((title for title, way in ways.items() if way == now), None)
    st.session_state["train_against"] = shown

    def chosen() -> None:
        state.choose(st.session_state, **ways.get(st.session_state["train_against"], {}))

    help = cached.glossary("routing collapse")
    look: dict[str, Any] = {"placeholder": "as the settings say", "help": help, "on_change": chosen}
    st.selectbox("Against collapse", list(ways), key="train_against", **look)


def _losses_and_centroids() -> None:
    """What the paper's table 8 tries in place of balanced groups, number by number."""
    _real("Balance loss, weight", "train_balance_weight", "routing collapse")
    _real("Entropy loss, weight", "train_entropy_weight", "routing collapse")
    fields.number("EMA of centroids, decay", "train_ema", 0.0, 1.0, "routing collapse", width="stretch")
    _whole("Recluster every, steps", "train_recluster", 0, 1_000_000, "routing collapse")
    st.checkbox("Stop the gradient to its inputs", key="train_detach", help=cached.glossary("routing collapse"))


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _named() -> None:
    """A name that no file can have is made one."""
    label = "".join(sign for sign in st.session_state["train_label"].lower() if sign.isascii() and sign.isalnum())
    state.choose(st.session_state, train_label=label[:16] or state.CONTROLS["train_label"].default)


def _layers() -> None:
    """What names no layers is all of them."""
    typed = training_requests.layers()
    state.choose(st.session_state, train_layers=", ".join(map(str, typed)) if typed else None)


def _options(name: str) -> tuple:
    """The values that a control takes, as the command declares them."""
    return state.CONTROLS[name].declared.options or ()


def _one_of(label: str, name: str, term: str) -> None:
    st.selectbox(label, _options(name), key=name, help=cached.glossary(term))


def _whole(label: str, name: str, low: int, high: int, term: str) -> None:
    fields.number(label, name, low, high, term, width="stretch")


def _real(label: str, name: str, term: str) -> None:
    """A number that the training itself judges, so that it can say what is wrong with it."""
    st.number_input(label, 0.0, None, key=name, step=None, format="%g", help=cached.glossary(term))


# --- what there is ----------------------------------------------------------------------------------------------------


def _pictures(request: TrainRouter, stored: Run | None, facts: dict) -> None:
    """The training that runs or was stopped, then what is there: the run of the form, or the router in use."""
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
    if facts.get("perplexity_dense") and (stored or facts.get("kind") == "trained"):
        _perplexities(facts, stored.id if stored else facts["name"])
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


def _use(run: Run) -> None:
    """The way to use what a training made."""
    name, copy = cached.router_name(run.request), f"finetuned/{Path(run.numbers['path']).name}"
    if run.request["phase"] == 2:
        st.button(f"Use the model {copy}", key="train_load", on_click=chips.use_model, args=(copy,))
    elif name != st.session_state["router"]:
        st.button(f"Use the router {name}", key="train_use", on_click=chips.use_router, args=(name,))


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


def _perplexities(numbers: dict, identity: str) -> None:
    st.subheader("On text it never saw", anchor=False, help=cached.glossary("perplexity"))
    rows, dense = [], numbers["perplexity_dense"]
    for arm, label in ARMS.items():
        if value := numbers.get(f"perplexity_{arm}"):
            change = "–" if arm == "dense" else signed(value / dense - 1, ".1%")
            rows.append({"reads": label, "perplexity": value, "change": change})
    plots.listed(COLUMNS, rows, "train_table", "Perplexities", identity, height=280)
    if gain := numbers.get("gain_over_random"):
        interval = Comparison.of(gain, "mean", "").interval
        span = f"{interval}, {gain['units']} units of 8 windows, a percentile bootstrap that is too narrow"
        if "state" in gain:  # older routers have none
            span = f"{gain['state']}, {interval.removeprefix('95% interval ')}"
        widgets.prose(
            f"Gain of its causal groups over random centroids: {signed(gain['mean'])} nats per token ({span}).", "quiet"
        )
