"""The page Generate: the form, the answers as they are written, and what their KV caches hold."""

import streamlit as st

from analysis.commandline import commandline
from app import cached
from app.generate import answers, cache, form
from app.ui import asking, jobs, repeat, take, widgets


def page() -> None:
    """Form, button, answers, painted cache."""
    card = asking.card(st.session_state["model"])
    asking.settle_router()
    asked = form.form(card)
    request = form.request(asked)
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
        mine = job is not None and job.verb == "generate" and job.args == request
        if mine and job.state in jobs.WAITING:
            st.session_state.pop(answers.STOPPED, None)
            answers.live(job.id)
        elif stored is not None:
            prompt = cached.columns(stored, "tokens")
            answers.written(stored, prompt)
            asked = [one for one in stored.request["methods"] if one["name"] != "dense"]
            rows = stored.numbers["rows"][1:]  # after dense attention
            found = {row["label"]: (stored, spec) for row, spec in zip(rows, asked, strict=True)}
            take.offer(found, "generate")
            st.subheader("What is still in the cache", anchor=False, help=cached.glossary("eviction"))
            with widgets.guarded():
                cache.shown(stored, prompt)
        elif not answers.stopped(request, job if mine else None):
            widgets.prose(
                "The answers stand side by side as they are written, dense attention first. Then the text is painted "
                "by what each cache still holds, and a click on a new token shows what it read and what was gone.",
                "more",
            )
    repeat.drawer(commandline("generate", request | {"text": "TEXT"}))
