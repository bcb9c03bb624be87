"""The page Generate: the form, the answers as they are written, and what their KV caches hold."""

import streamlit as st

from analysis.commands import commandline
from analysis.jobs import JobStatus
from analysis.runs import Run
from app import cached
from app.generate import answers, cache, form
from app.ui import asking, jobs, repeat, take, widgets

BEGUN = "_generate_begun"  # of the session: the models and texts for which the page began by itself
LAST = 20  # stored runs among which the last answers for a text are looked for


def page() -> None:
    """Form, button, answers, painted cache. A text that is opened is answered at once where that costs little."""
    card = asking.card(st.session_state["model"])
    asking.settle_router()
    specs = form.form(card)
    request = form.request(specs)
    stored = cached.store().find("generate", request)
    again = stored is not None and not stored.example
    jobs.run_button(
        "Generate again" if again else "Generate",
        "generate",
        request,
        "generate_run",
        tokens=form.tokens(request),
        instead_of=stored.id if again else None,
        type="secondary" if stored else "primary",
    )
    with widgets.guarded():
        job = jobs.current()
        watched = job is not None and job.verb == "generate" and job.args == request
        if watched and job.state in jobs.WAITING:
            st.session_state.pop(answers.STOPPED, None)
            answers.live(job.id)
        elif stored is not None:
            answers.written(stored, cached.columns(stored, "tokens"))
            specs = [chosen_spec for chosen_spec in stored.request["methods"] if chosen_spec["name"] != "dense"]
            rows = stored.numbers["rows"][1:]  # after dense attention
            by_label = {row["label"]: (stored, spec) for row, spec in zip(rows, specs, strict=True)}
            take.offer(by_label, "generate")
            _painted(stored)
        elif answers.stopped(request, job if watched else None):
            pass
        elif _begins(request, job):
            widgets.redraw()
        else:
            _meanwhile(request)
    repeat.drawer(commandline("generate", request | {"text": "TEXT"}))


def _painted(run: Run) -> None:
    st.subheader("What is still in the cache", anchor=False, help=cached.glossary("eviction"))
    with widgets.guarded():
        cache.shown(run, cached.columns(run, "tokens"))


def _begins(request: dict, job: JobStatus | None) -> bool:
    """Whether the first answers for a model and text were started just now; later ones wait for the button."""
    begun, about = st.session_state.setdefault(BEGUN, set()), (request["model"], request["text"])
    if about in begun or (job is not None and job.state in jobs.WAITING):
        return False
    begun.add(about)
    return jobs.begin("generate", request, form.tokens(request))


def _meanwhile(request: dict) -> None:
    """What can be shown until the present choices are answered: the last answers for this text, else the example."""
    store, about = cached.store(), ("model", "text")
    requests = [run.request for run in store.list("generate", LAST)]
    similar = (
        store.find("generate", earlier_request)
        for earlier_request in requests
        if all(earlier_request[name] == request[name] for name in about)
    )
    earlier = next(filter(None, similar), None)
    run = earlier or store.find("generate", form.example())
    if run is None:
        return
    sentence = (
        "The answers below were written with other settings; the button above writes them anew."
        if earlier
        else f"Example meanwhile: the bundled model reads “{dict(cached.samples())[run.request['text']]}”. The button "
        "above asks about your text."
    )
    widgets.prose(sentence, "note")
    answers.written(run, cached.columns(run, "tokens"))
    _painted(run)
