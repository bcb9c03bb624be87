"""What to run for this text on this machine: the sentence on top of Quality vs speed, and the card at its end."""

from collections.abc import Sequence

import streamlit as st

from app import cached
from app.quality import timing
from app.quality.asked import NEAR, Shown, change, signed
from app.speed import speed_requests
from app.ui import repeat, widgets

BEGIN = "For this text and machine:"
# Of the pairs read: nothing is saved.
ALL = 0.995
PYTHON = """import focuscope as fs

model = fs.load_model("{model}")
ids = model.tokenizer(text, return_tensors="pt").input_ids
with fs.apply(model, method="{name}"{settings}):
    print(model.tokenizer.decode(model.lm.generate(ids, max_new_tokens=64)[0]))"""


def headline(results: Sequence[Shown]) -> str:
    """The fastest of the methods that keep the quality and were timed faster than dense; where none was, why not."""
    near = [result for result in results if result.honest and result.near]
    if not near:
        return f"{BEGIN} stay dense. No chosen method keeps the perplexity within {NEAR:.0%}{_ceilings(results)}."
    timed = [result for result in near if result.speed]
    if timed:
        best = max(timed, key=_gain)
        return _gains(best) if _gain(best) > (False, 0) else _none_gains(timed)
    able = [result for result in near if result.asked.about["kernels"]]
    if able:
        return f"{BEGIN} stay dense until a speed is measured; you can time {_names(able)} on this page."
    return f"{BEGIN} stay dense. {_names(near)} would keep the quality, but there is no kernel for that here."


def quality(results: Sequence[Shown], where: str) -> str:
    """Which method keeps the quality with the fewest reads, on this text and no other."""
    near = [result for result in results if result.honest and result.near]
    able = near or [result for result in results if result.honest]
    if not able:
        return ""
    best = min(able, key=lambda result: result.row["reads_causal" if near else "difference"])
    reads = best.row["reads_causal"]
    if near and reads > ALL:
        return f"On {where}, {best.title} reads everything that dense does, so it saves nothing here."
    stays = f"{best.title} stays" if near else f"no chosen method stays within {NEAR:.0%} of dense: {best.title} comes"
    limit = f"within {NEAR:.0%} of dense" if near else "nearest"
    return f"On {where}, {stays} {limit} while it reads {reads:.0%} of what dense reads: perplexity {change(best.row)}."


def _ceilings(results: Sequence[Shown]) -> str:
    """Ceilings keep the quality too, but save no time."""
    ceilings = [result for result in results if result.row["ceiling"] and result.near]
    return f", except {_names(ceilings)} (a ceiling scores every pair to choose: it saves no time)" if ceilings else ""


def _gain(result: Shown) -> tuple[bool, float]:
    """How good a method's speed is: first that no phase is slower, then its fastest phase; nothing where none is
    faster, or none was timed."""
    phases = result.speed.phases if result.speed else ()
    faster = [phase.median for phase in phases if phase.faster]
    return (not any(phase.slower for phase in phases), max(faster)) if faster else (False, 0)


def _gains(result: Shown) -> str:
    phases = result.speed.phases if result.speed else ()
    gains, loses = ([phase.name for phase in phases if getattr(phase, way)] for way in ("faster", "slower"))
    trade = f" gains on {gains[0]} and loses on {loses[0]}" if loses else ""
    where = "" if result.speed.window == phases[0].length else f" (measured at {result.speed.window:,} tokens)"
    return f"{BEGIN} {result.title}{trade}, {signed(result.row['difference'])} perplexity{where}. {_rounds(result)}"


def _none_gains(timed: Sequence[Shown]) -> str:
    sentences = [f"{BEGIN} stay dense. Nothing that keeps the perplexity within {NEAR:.0%} was faster."]
    sentences += [_rounds(result, f"{result.title} at") for result in timed]
    sentences += [
        f"{result.title} is estimated to gain on {phase.name} from about {_rounded(phase.wins_from):,} tokens on."
        for result in timed
        for phase in result.speed.phases
        if phase.wins_from and phase.wins_from > phase.length
    ]
    return " ".join(sentences)


def _rounds(result: Shown, begin: str = "At") -> str:
    return f"{begin} {result.speed.phases[0].length:,} tokens: {'; '.join(map(str, result.speed.phases))}."


def _rounded(length: int) -> int:
    return round(length, 2 - len(str(length)))


def _names(results: Sequence[Shown]) -> str:
    titles = [result.title for result in results]
    return titles[0] if len(titles) == 1 else f"{', '.join(titles[:-1])} and {titles[-1]}"


def card(results: Sequence[Shown], context: int, again: str) -> None:
    """How to run the method that comes nearest to it, on a model that reads `context` tokens.

    `again` is the command line of all that is shown.
    """
    near = [result for result in results if result.honest and result.near]
    best = max([result for result in near if result.speed] or near, key=_gain, default=None)
    with st.container(border=True, key="decision"):
        st.subheader("What to run", anchor=False, help=cached.glossary("quality against speed"))
        if best is None:
            widgets.prose(headline(results) if results else [])
        else:
            widgets.prose(f"{best.title}, {signed(best.row['difference'])} perplexity:", "quiet")
            st.code(_snippet(best, context), language=None, wrap_lines=True)
        repeat.drawer(again)


def _snippet(result: Shown, context: int) -> str:
    """Python for a method that needs nothing fitted; else the command that runs it with these settings."""
    choice = result.asked
    if not choice.about["needs"]:
        settings = "".join(f", {name}={value!r}" for name, value in choice.settings.items())
        return PYTHON.format(model=st.session_state["model"], name=choice.name, settings=settings)
    if timing.can_launch(choice):
        return speed_requests.command(timing.launch_request(choice, result.run.numbers["window"], context))
    return speed_requests.command(timing.time_request(choice))
