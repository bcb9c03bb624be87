"""Training a temperature for each layer of the model in use: its settings, its price, and what it found."""

from typing import Any

import streamlit as st

from analysis.claims import number
from analysis.commands.quality import FOCAL_AS_PRINTED, FitMethod
from analysis.declaration import fields_of
from analysis.runs import Price, Run
from analysis.runs.machine import pace
from analysis.runs.price import predict
from app import cached
from app.selection import state
from app.ui import asking, fields, jobs, repeat, widgets

METHOD = "focal_learned"
# Argument of the command -> control.
FIELDS = {item.name: item.declared.control for item in fields_of(FitMethod) if item.declared.control}
FIELDS.pop("model")
TERM = "learned temperature"
# Of a step of the training; operations a second and bytes held besides, until one was trained here.
TOKENS, WORK, MEMORY = 2048, 8e10, 128 << 20


def show() -> None:
    """The form with its button, then what the same training found."""
    st.header("Train one here", anchor=False, help=cached.glossary(TERM))
    widgets.prose("The model stays as it is; the bundled texts except the story are learned from.", "quiet")
    fields.presets("learned", FitMethod, FOCAL_AS_PRINTED, FIELDS)
    with st.grid(4, min_column_width=150, gap="small"):
        wide: dict[str, Any] = {"width": "stretch"}
        dense: dict[str, Any] = {"placeholder": "11.31, dense", "width": "stretch"}
        fields.number("Steps", "learned_steps", 1, 1_000_000, "optimiser step", **wide)
        st.number_input("Learning rate", 0.0, 1.0, key="learned_rate", step=None, format="%g")
        fields.number("Lowest (τ min)", "learned_low", 0.5, 32.0, TERM, **wide)
        fields.number("Highest (τ max)", "learned_high", 0.5, 32.0, TERM, **dense)
        fields.number("Before training", "learned_offset", 0.0, 32.0, TERM, **dense)
        means = state.CONTROLS["learned_mean"].declared.options or ()
        st.selectbox("Mean over", means, key="learned_mean", help=cached.glossary(TERM))
    # What stays as it is is not named.
    asked = {name: st.session_state[control] for name, control in FIELDS.items()}
    changed = {name: value for name, value in asked.items() if value != FitMethod.defaults[name]}
    request = FitMethod(model=st.session_state["model"], method=METHOD, **changed)
    stored = cached.store().find(request)
    with widgets.guarded():
        jobs.run_button("Train temperatures", request, "learned_run", price=_price(request), stored=stored)
    if stored is not None:
        _found(stored)
    repeat.drawer(request.command_line())


def _price(request: FitMethod) -> Price:
    """What a training costs, corrected by past ones here."""
    card, past = asking.card(request.model), []
    for run in cached.store().list(request.verb, 20):
        if run.request.get("method") == METHOD and run.request["model"] == request.model:
            past.append((run.seconds, _guess(run.request.get("steps", FitMethod.steps), card)))
    needed = MEMORY + 4 * 40 * TOKENS * card["layers"] * card["width"]
    return predict(past, _guess(request.steps, card), needed, float)


def _guess(steps: int, card: dict) -> float:
    """Seconds of so many steps: forward and back, six operations for each parameter and token."""
    return 5 + 6 * card["parameters"] * steps * TOKENS / (WORK * pace(card["device"]))


def _found(run: Run) -> None:
    """The loss before and after on text that was not learned from, and the temperature of every layer."""
    before, after = run.numbers["held_out"]
    if None not in (before, after):
        change = number(after - before, "nats")
        widgets.prose(f"On text held out of the training the loss changes by {change} nats per token.", "more")
    layers = ", ".join(f"{t:.2f}" for t in run.numbers["temperature"])
    widgets.prose(f"Temperature of each layer on it (1 is dense attention): {layers}.", "more")
    widgets.notes(run)
