"""The form of a router's training: what it asks for stands in the address, control by control."""

from typing import Any

import streamlit as st

from analysis.commands.groups import AGAINST_COLLAPSE, AS_PRINTED, TrainRouter
from app import cached
from app.selection import state
from app.selection.evidence import PHASES
from app.training import training_requests
from app.ui import fields, widgets

# Settings that are not folded.
BESIDE = {"train_phase", "train_groups", "train_steps"}
FOLDED = {name for name in state.CONTROLS if name.startswith("train_")} - BESIDE


def form() -> None:
    """The phase, the sizes, one step against collapse, and folded all other settings."""
    fields.choose("Phase", PHASES, "train_phase", "phase 1 and phase 2")
    first = st.session_state["train_phase"] == 1
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        if first:
            fields.number("Groups (K)", "train_groups", 1, 64, "learned group", width=120)
        fields.number("Steps", "train_steps", 1, 100_000, "optimiser step", width=120)
    if first:
        # The ways of section 4 and table 8 as one step each; what they set stands among the settings.
        fields_of_ways = {name for way in AGAINST_COLLAPSE.values() for name in way}
        controls = {training_requests.FIELDS[name]: getattr(TrainRouter, name) for name in sorted(fields_of_ways)}
        ways = {}
        for title, way in AGAINST_COLLAPSE.items():
            ways[title] = controls | {training_requests.FIELDS[name]: value for name, value in way.items()}
        now = {name: st.session_state[name] for name in controls}
        current = next((title for title, way in ways.items() if way == now), None)
        st.session_state["train_against"] = current
        help = cached.glossary("routing collapse")
        look: dict[str, Any] = {"placeholder": "as the settings say", "help": help}
        look["on_change"] = lambda: state.choose(st.session_state, **ways.get(st.session_state["train_against"], {}))
        st.selectbox("Against collapse", list(ways), key="train_against", **look)
    # What a link brings is seen, and what of it had to go.
    if st.session_state[state.LINKED] & FOLDED:
        st.session_state["train_folded"] = True
    with st.expander("More settings", icon=":material/tune:", key="train_folded", on_change="rerun"):
        named = "Learn from", "Texts to learn from"
        fields.corpus("train_corpus", cached.corpus(), named, "The bundled samples", "corpus")
        if first:
            fields.presets("train", TrainRouter, AS_PRINTED, training_requests.FIELDS)
        with st.grid(4, min_column_width=150, gap="small"):
            _more(first)


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
        # What the paper's table 8 tries in place of balanced groups.
        _real("Balance loss, weight", "train_balance_weight", "routing collapse")
        _real("Entropy loss, weight", "train_entropy_weight", "routing collapse")
        fields.number("EMA of centroids, decay", "train_ema", 0.0, 1.0, "routing collapse", width="stretch")
        _whole("Recluster every, steps", "train_recluster", 0, 1_000_000, "routing collapse")
        st.checkbox("Stop the gradient to its inputs", key="train_detach", help=cached.glossary("routing collapse"))
    else:
        _real("Learning rate, model", "train_base_rate", "learning rate")
    readings = list(_options("train_reading"))
    if first:
        # without a gradient the router would learn nothing
        readings.remove("hard")
    widgets.settled("train_reading", readings, "soft")
    look = {"help": cached.glossary("gate"), "format_func": lambda name: name.replace("_", " ")}
    st.selectbox("Reads through", readings, key="train_reading", **look)
    _whole("Seed", "train_seed", 0, 9999, "protocol")


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
