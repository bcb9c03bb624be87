"""The tabs of the page on long-context tests: one test with its map, and what the model can do at all."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.probes import asked as probes, shown, words
from app.ui import jobs, repeat, widgets


def one_test() -> None:
    """The answer, the controls, the map or its button, and one question as the model read it."""
    answer = st.container()
    choices = probes.controls()
    if changes := words.changed(choices):
        widgets.prose(f"Settings as on the page Quality vs speed. {changes}.", "quiet")
    args = probes.chosen_map(choices)
    run = cached.store().find("probe", args)
    if run is None:
        jobs.run_button(
            "Run this test",
            "probe",
            args,
            "probe_run",
            probes.tokens(args),
            smaller=lambda: probes.smaller(args),
            type="primary",
        )
        with answer:
            run = _example(args)
    if run is not None:
        with answer:
            widgets.prose(run.numbers["sentences"][:1])
        shown.maps(run, st.session_state["probe"])
        shown.answer(run)
        shown.lengths(run)
        with widgets.guarded():
            shown.prompt(run)
    repeat.drawer(words.command(args, choices))


def _example(args: dict) -> Run | None:
    """The same test in a bundled text, until it has run in the chosen one; None where there is none."""
    for text, title in cached.samples():
        run = cached.store().find("probe", args | {"text": text})
        if run is not None:
            widgets.prose(f"Example meanwhile: the same test in “{title}”. Run it to see your text.", "note")
            return run
    return None


def every_test() -> None:
    """What dense attention can do at all: every test at one length, or the button that runs them."""
    wanted = probes.every_task()
    tried = cached.store().find("probe", wanted)
    if tried is None:
        jobs.run_button("Try every test", "probe", wanted, "probe_every", probes.tokens(wanted))
        tried = _example(wanted)
    if tried is not None:
        shown.every_task(tried)
