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


def card(shown: Sequence[Shown], most: int, again: str) -> None:
    """The method that the headline speaks of, its phases on a model that reads `most` tokens, and how to run it;
    `again`: the command line of all that is shown."""
    with st.container(border=True, key="decision"):
        st.subheader("What to run", anchor=False, help=cached.glossary("quality against speed"))
        widgets.prose(headline.headline(shown))
        one = headline.candidate(shown)
        if one is not None:
            facts = _facts(one)
            with st.container(horizontal=True, gap="large"):
                widgets.metrics(facts)
            st.code(_snippet(one, most), language=None, wrap_lines=True)
            values = zip(*((label, value, below) for label, value, below, _ in facts), strict=True)
            widgets.numbers(
                dict(zip(("what", "value", "detail"), map(list, values), strict=True)), "decision", "decision"
            )
        repeat.drawer(again)


def _facts(one: Shown) -> list[tuple[str, str, str, str]]:
    told = [("Perplexity", words.signed(one.row["difference"]), one.title, cached.glossary("perplexity"))]
    help = cached.glossary("speed-up")
    if one.speed is None:
        below = "not timed yet" if one.asked.about["kernels"] else "no kernel here"
        return [*told, ("Attention, at most", f"{one.bound:.1f} times", below, help)]
    return told + [
        (
            phase.name.capitalize(),
            f"{phase.median:.2f} times",
            f"{phase.low:.2f} to {phase.high:.2f}, {phase.length:,} tokens",
            help,
        )
        for phase in one.speed["phases"]
    ]


def _snippet(one: Shown, most: int) -> str:
    """Python for a method that needs nothing fitted; else the command that runs it with these settings."""
    asked = one.asked
    if not asked.about["needs"]:
        settings = "".join(f", {name}={value!r}" for name, value in asked.settings.items())
        return PYTHON.format(model=st.session_state["model"], name=asked.name, settings=settings)
    if quality_speed.can_launch(asked):
        return requests.command("launch", quality_speed.launch_request(asked, one.run.numbers["window"], most))
    return requests.command("time-method", quality_speed.time_request(asked))
