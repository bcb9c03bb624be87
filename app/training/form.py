"""The training tab: a form with its price, and what a training run or the router in use shows for itself."""

import streamlit as st

from analysis.claims import Claim, Comparison
from analysis.runs import Run
from app import cached
from app.selection import state
from app.selection.evidence import BALANCES, GATES, PHASES, READINGS
from app.training import requests, shown
from app.ui import asking, fields, jobs, repeat, stored as stored_studies, widgets


def facts_of(name: str) -> dict:
    """What is known of a router: its card's facts, or of one that was made since, what its training run says."""
    card = asking.card(st.session_state["model"])
    facts = next((router for router in card["routers"] if router["name"] == name), {"name": name})
    for run in cached.store().list("train-router", 50):
        is_same = run.request.get("model") == st.session_state["model"] and run.request.get("phase") == 1
        if is_same and cached.router_name(run.request) == name:
            sizes = {key: run.request[key] for key in ("groups", "top", "steps", "window")}
            return facts | sizes | run.numbers | {"kind": "trained", "name": name}
    return facts


def answer() -> str:
    """What the router in use has learned: the computed sentence that leads."""
    facts = facts_of(st.session_state["router"])
    name, shares = facts["name"], facts.get("dominance") or []
    if facts.get("kind") != "trained":
        return f"The router {name} was fitted without training: train one here, and see whether its groups say more."
    gain = facts.get("gain_over_random") or {}
    sentence = f"The router {name} learned for {facts.get('steps', 0):,} steps"
    if gain.get("mean") is not None:
        against_random = Comparison.of(gain, "mean", "", versus="random centroids")
        sentence += (
            f"; on text it never saw, its groups are {Claim(against_random, lower='worse', higher='better').text()}"
        )
    if shares and facts.get("groups"):
        sentence += (
            f", and the largest group of any layer holds {max(shares):.1%} (even groups {1 / facts['groups']:.1%})"
        )
    return f"{sentence}."


def tab() -> None:
    """The form with its price and button, and beside it the run it asked for, or the router in use."""
    with st.grid(2, min_column_width=400, gap="large"):
        with st.container():
            _form()
            args, card = requests.arguments(), asking.card(st.session_state["model"])
            stored = cached.store().find("train-router", args)
            with widgets.guarded():
                _button(args, card, stored)
        with st.container():
            _pictures(args, stored)
    if stored is not None:
        shown.numbers(stored)
    else:
        shown.router_numbers(facts_of(st.session_state["router"]))
    if cost := stored_studies.study("step-cost"):
        processor = cost.numbers["protocol"].get("processor", "this machine")
        widgets.prose(f"{cost.sentence} Measured on: {processor}.", "quiet")
    repeat.drawer(requests.command(args))


def _button(args: dict, card: dict, stored: Run | None) -> None:
    jobs.run_button(
        "Train it again" if stored else "Train",
        "train-router",
        args,
        "train_run",
        price=requests.price(args, card),
        instead_of=stored.id if stored else None,
        smaller=lambda: requests.smaller(args),
        type="secondary" if stored else "primary",
    )
    router = cached.router_name(args)
    widgets.prose(
        f"This makes the router {router}; the model stays as it is. A stopped training keeps its steps: train again "
        "with the same settings to continue."
        if args["phase"] == 1
        else f"This trains a copy of the model together with the router {router}, under the name "
        f"finetuned/{args['model'].replace('/', '--')}-{router}; the model and its router stay as they are.",
        "quiet",
    )


def _pictures(args: dict, stored: Run | None) -> None:
    """The training that runs or was stopped, then what is there: the run of the form, or the router in use."""
    job = jobs.current()
    if job and (job.verb, job.args) == ("train-router", args) and job.state != "done":
        with widgets.guarded():
            (shown.growing if job.state in jobs.WAITING else shown.so_far)(job.id, args["steps"])
    if stored is not None:
        shown.run(stored)
    else:
        shown.router(facts_of(st.session_state["router"]))


def _form() -> None:
    st.segmented_control(
        "Phase",
        list(PHASES),
        format_func=PHASES.get,
        key="train_phase",
        required=True,
        help=cached.glossary("phase 1 and phase 2"),
    )
    first = st.session_state["train_phase"] == 1
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        named = "Learn from", "Texts to learn from"
        fields.corpus("train_corpus", cached.corpus(), named, "The bundled samples", "corpus")
        if first:
            fields.number("Groups (K)", "train_groups", 1, 64, "learned group", width=120)
            fields.number("Groups per token", "train_top", 1, 64, "membership (top-k)", width=150)
        fields.number("Steps", "train_steps", 1, 100_000, "optimiser step", width=120)
        if first:
            st.text_input(
                "Name",
                key="train_label",
                max_chars=16,
                width=130,
                on_change=_named,
                help="Added to the router's name, so that it replaces no other. Letters and digits.",
            )
    with st.expander("More settings", icon=":material/tune:"), st.grid(4, min_column_width=170, gap="small"):
        fields.number("Tokens in a step", "train_tokens", 2, 262_144, "optimiser step", width="stretch")
        _real("Learning rate, router", "train_rate", "learning rate")
        if first:
            fields.number("Window, tokens", "train_window", 1, 1024, "sliding window", width="stretch")
            fields.number("Sinks, tokens", "train_sinks", 0, 64, "attention sink", width="stretch")
            st.selectbox("Gate", GATES, key="train_gate", help=cached.glossary("gate"))
            st.selectbox(
                "Balance",
                BALANCES,
                key="train_balance",
                help=cached.glossary("Sinkhorn normalisation"),
            )
            _real("Temperature", "train_temperature", "temperature (router)")
            fields.number("Sinkhorn iterations", "train_iterations", 0, 100, "Sinkhorn iterations", width="stretch")
            fields.number("Size of routing vectors", "train_size", 1, 1024, "router", width="stretch")
        else:
            _real("Learning rate, model", "train_base_rate", "learning rate")
        readings = list(READINGS[:2] if first else READINGS)
        widgets.settled("train_reading", readings, "soft")
        st.selectbox(
            "Reads through",
            readings,
            key="train_reading",
            help=cached.glossary("gate"),
            format_func=lambda name: name.replace("_", " "),
        )
        fields.number("Seed", "train_seed", 0, 9999, "protocol", width="stretch")


def _named() -> None:
    """A name that no file can have is made one."""
    label = "".join(sign for sign in st.session_state["train_label"].lower() if sign.isascii() and sign.isalnum())
    state.choose(st.session_state, train_label=label[:16] or state.CONTROLS["train_label"].default)


def _real(label: str, name: str, term: str) -> None:
    """A number that the training itself judges, so that it can say what is wrong with it."""
    st.number_input(label, 0.0, None, key=name, step=None, format="%g", help=cached.glossary(term))
