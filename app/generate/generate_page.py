"""The page Generate: the form, the answers as they are written, and what their KV caches hold."""

import streamlit as st

from analysis.commands.quality import Generate
from analysis.jobs import JobStatus
from analysis.runs import Run
from app import cached
from app.generate import answers, generate_form, kv_cache
from app.ui import asking, jobs, repeat, take, widgets

# Of the session: the models and texts for which the page began by itself.
BEGUN = "_generate_begun"
# Stored runs among which the last answers for a text are looked for.
LAST = 20


def show() -> None:
    """Form, button, answers, painted cache. A text that is opened is answered at once where that costs little."""
    widgets.header(
        "What does it still answer when it reads or keeps less?",
        "Dense attention beside up to two methods, token by token: what each writes, how long it takes, and which keys "
        "its KV cache still holds",
    )
    card = asking.card(st.session_state["model"])
    asking.settle_router()
    request = generate_form.request(generate_form.form(card))
    stored = cached.store().find(request)
    again = stored is not None and not stored.example
    jobs.run_button(
        "Generate again" if again else "Generate",
        request,
        "generate_run",
        tokens=generate_form.tokens(request),
        instead_of=stored.id if again else None,
        type="secondary" if stored else "primary",
    )
    with widgets.guarded():
        job = jobs.current()
        mine = job if job is not None and (job.verb, job.args) == (request.verb, request.spelled) else None
        if mine and mine.state in jobs.WAITING:
            st.session_state.pop(answers.STOPPED, None)
            answers.live(mine.id)
        elif stored is not None:
            _shown(stored, offers=True)
        elif answers.stopped(request, mine):
            pass
        elif _begins(request, job):
            widgets.redraw()
        else:
            _meanwhile(request)
    repeat.drawer(request.but(text="TEXT").command_line())


def _shown(run: Run, offers: bool = False) -> None:
    """The answers and the painted cache; with `offers`, the methods to take along."""
    tokens = cached.columns(run, "tokens")
    answers.written(run, tokens)
    if offers:
        specs = [spec for spec in run.request["methods"] if spec["name"] != "dense"]
        rows = run.numbers["rows"][1:]  # after dense attention
        take.offer({row["label"]: (run, spec) for row, spec in zip(rows, specs, strict=True)}, "generate")
    st.subheader("What is still in the cache", anchor=False, help=cached.glossary("eviction"))
    with widgets.guarded():
        kv_cache.shown(run, tokens)


def _begins(request: Generate, job: JobStatus | None) -> bool:
    """Whether the first answers for a model and text were started just now; later ones wait for the button."""
    begun, about = st.session_state.setdefault(BEGUN, set()), (request.model, request.text)
    if about in begun or (job is not None and job.state in jobs.WAITING):
        return False
    begun.add(about)
    return jobs.begin(request, generate_form.tokens(request))


def _meanwhile(request: Generate) -> None:
    """What can be shown until the present choices are answered: the last answers for this text, else the example."""
    store, about = cached.store(), (request.model, request.text)
    similar = (run for run in store.list(request.verb, LAST) if (run.request["model"], run.request["text"]) == about)
    earlier = next(filter(store.answers, similar), None)
    run = earlier or store.find(generate_form.example())
    if run is None:
        return
    sentence = "The answers below were written with other settings; the button above writes them anew."
    if not earlier:
        title = dict(cached.samples())[run.request["text"]]
        sentence = f"Example meanwhile: the bundled model reads “{title}”. The button above asks about your text."
    widgets.prose(sentence, "note")
    _shown(run)
