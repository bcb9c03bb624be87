"""The card at the end of Quality vs speed: the verdict, both phases, and what to run."""

from collections.abc import Sequence

import streamlit as st

from app import cached
from app.quality import headline, speed as quality_speed, words
from app.quality.words import Shown
from app.speed import requests
from app.ui import repeat, widgets

PYTHON = """import focuscope as fs

model = fs.load_model("{model}")
ids = model.tokenizer(text, return_tensors="pt").input_ids
with fs.apply(model, method="{name}"{settings}):
    print(model.tokenizer.decode(model.lm.generate(ids, max_new_tokens=64)[0]))"""


def card(results: Sequence[Shown], context: int, again: str) -> None:
    """The method that the headline speaks of, its phases on a model that reads `context` tokens, and how to run it;
    `again`: the command line of all that is shown."""
    with st.container(border=True, key="decision"):
        st.subheader("What to run", anchor=False, help=cached.glossary("quality against speed"))
        widgets.prose(headline.headline(results))
        result = headline.candidate(results)
        if result is not None:
            facts = _facts(result)
            with st.container(horizontal=True, gap="large"):
                widgets.metrics(facts)
            st.code(_snippet(result, context), language=None, wrap_lines=True)
            values = zip(*((label, value, below) for label, value, below, _ in facts), strict=True)
            widgets.numbers(
                dict(zip(("what", "value", "detail"), map(list, values), strict=True)), "decision", "decision"
            )
        repeat.drawer(again)


def _facts(result: Shown) -> list[tuple[str, str, str, str]]:
    facts = [("Perplexity", words.signed(result.row["difference"]), result.title, cached.glossary("perplexity"))]
    help = cached.glossary("speed-up")
    if result.speed is None:
        below = "not timed yet" if result.asked.about["kernels"] else "no kernel here"
        return [*facts, ("Attention, at most", f"{result.bound:.1f} times", below, help)]
    return facts + [
        (
            phase.name.capitalize(),
            f"{phase.median:.2f} times",
            f"{phase.low:.2f} to {phase.high:.2f}, {phase.length:,} tokens",
            help,
        )
        for phase in result.speed["phases"]
    ]


def _snippet(result: Shown, context: int) -> str:
    """Python for a method that needs nothing fitted; else the command that runs it with these settings."""
    choice = result.asked
    if not choice.about["needs"]:
        settings = "".join(f", {name}={value!r}" for name, value in choice.settings.items())
        return PYTHON.format(model=st.session_state["model"], name=choice.name, settings=settings)
    if quality_speed.can_launch(choice):
        return requests.command("launch", quality_speed.launch_request(choice, result.run.numbers["window"], context))
    return requests.command("time-method", quality_speed.time_request(choice))
