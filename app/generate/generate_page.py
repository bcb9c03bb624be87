"""The page Generate: the answers as they are written, what their KV caches hold, and the form beside them."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from analysis.commands.quality import Generate
from analysis.jobs import JobStatus
from analysis.runs import Run
from analysis.runs.run import command
from app import cached
from app.generate import answers, generate_form, kv_cache, missed
from app.quality.asked import Asked
from app.ui import asking, jobs, repeat, take, widgets
from app.ui.screen import answer, picture_and_card
from app.ui.tabs import drawer

# Of the session: the models and texts for which the page began by itself.
BEGUN = "_generate_begun"
# Stored runs among which the last answers for a text are looked for.
LAST = 20


def show() -> None:
    """Answers and painted cache, with the form beside them. A text that is opened is answered at once where that costs
    little."""
    card = asking.card(st.session_state["model"])
    asking.settle_router()
    top = st.container()
    picture, beside = picture_and_card("generate")
    with beside:
        request = generate_form.request(generate_form.form(card))
        stored = cached.store().find(request)
        read = generate_form.tokens(request)
        jobs.run_button("Generate", request, "generate_run", read, stored=stored, type="primary")
    job = jobs.current()
    mine = job if job is not None and (job.verb, job.args) == (request.verb, request.spelled) else None
    run, note = (stored, "") if stored else _meanwhile(request)
    with picture, widgets.guarded():
        if mine and mine.state in jobs.WAITING:
            run = None
            answers.live(mine.id)
        elif stored is None and mine and answers.stopped(mine):
            run = None
        elif stored is None and _begins(request, job):
            widgets.redraw()
        elif run is not None:
            widgets.prose(note or [], "note")
            tokens = cached.columns(run, "tokens")
            answers.written(run, "".join(tokens["piece"]))
            with widgets.guarded():
                kv_cache.shown(run, tokens)
    with top:
        prompt = "" if run is None else "".join(cached.columns(run, "tokens")["piece"])
        told = "What is still answered with less?"
        if run is not None:
            told = widgets.plain(answers.headline(run, prompt))
        scope = None if run is None else f"{run.numbers['prompt_tokens']:,} tokens read, then written on word by word."
        answer(told, scope=scope)
    if run is not None:
        if run.numbers.get("missed"):
            with beside:
                missed.put_back(run, cached.columns(run, "tokens"))
        _details(run, beside if run is stored else None)
    repeat.drawer(command(request.verb, request.spelled))


def _details(run: Run, card: DeltaGenerator | None) -> None:
    """What is folded, and in the card the methods to take along."""
    if card is not None:
        specs = [spec for spec in run.request["methods"] if spec["name"] != "dense"]
        # after dense attention, and before the answer with a key put back
        rows = run.numbers["rows"][1 : 1 + len(specs)]
        with card:
            take.offer({row["label"]: (run, spec) for row, spec in zip(rows, specs, strict=True)}, "generate")
    look = {"title": "What the marked token read, and could not", "icon": ":material/visibility:"}
    drawer("generate_reads", lambda: kv_cache.reads(run, cached.columns(run, "tokens")), **look)
    look = {"title": "What each took", "icon": ":material/timer:"}
    drawer("generate_took", lambda: answers.took(run), **look)


def same_question(choice: Asked) -> None:
    """For another page: its text's question answered dense and by a method, where that is stored, else the button."""
    chosen = st.session_state
    request = generate_form.same_question(chosen["text"], [choice.spec])
    if request is None:
        return
    st.subheader("The same question", anchor=False)
    run = cached.store().find(request)
    if run is None:
        label, tokens = "Ask both", generate_form.tokens(request)
        jobs.run_button(label, request, "generate_same", tokens=tokens, help=request.question)
        return
    prompt = "".join(cached.columns(run, "tokens")["piece"])
    widgets.prose(f"{answers.headline(run, prompt)}.")
    answers.written(run, prompt)


def _begins(request: Generate, job: JobStatus | None) -> bool:
    """Whether the first answers for a model and text were started just now; later ones wait for the button."""
    begun, about = st.session_state.setdefault(BEGUN, set()), (request.model, request.text)
    if about in begun or (job is not None and job.state in jobs.WAITING):
        return False
    begun.add(about)
    return jobs.begin(request, generate_form.tokens(request))


def _meanwhile(request: Generate) -> tuple[Run | None, str]:
    """What can be shown until the present choices are answered, and what is said of it: the last answers for this text,
    else the example."""
    store, about = cached.store(), (request.model, request.text)
    similar = (run for run in store.list(request.verb, LAST) if (run.request["model"], run.request["text"]) == about)
    earlier = next(filter(store.answers, similar), None)
    if earlier:
        return earlier, "Written with other settings: Generate writes them anew."
    run = store.find(generate_form.example())
    title = dict(cached.samples())[run.request["text"]] if run else ""
    return run, f"Example meanwhile: the bundled model reads “{title}”."
