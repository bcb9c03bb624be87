"""The steps of the sliders in view, computed ahead while somebody looks: one after the other, the nearest first."""

from collections.abc import Sequence
from contextlib import suppress

import streamlit as st

from analysis.declaration.command import Command
from analysis.errors import AnalysisError
from analysis.limits import limits
from analysis.runs.price import LIVE, Price, together
from app import cached
from app.quality.steps import Found, Subject
from app.selection.decide import EQUAL_SHARES
from app.ui import jobs

# Seconds that may be spent ahead without being asked for, all steps together.
UNASKED = 120
# Of the session: (id, request) of the step that is computed, requests that failed, the subjects that were asked for.
RUNNING, FAILED, WANTED = "_ahead", "_ahead_failed", "_ahead_wanted"


def wanted(subject: Subject, found: Sequence[Found], percent: int | None) -> list[Command]:
    """What is missing of the curves, the nearest to the chosen share first."""
    here = EQUAL_SHARES.index(percent) if percent in EQUAL_SHARES else 0
    missing = [(abs(EQUAL_SHARES.index(stop) - here), at, stop) for at, one in enumerate(found) for stop in one.missing]
    requests = [subject.request(found[at].choice, stop) for _, at, stop in sorted(missing)]
    return [request for request in requests if request not in st.session_state.setdefault(FAILED, [])]


def unasked(subject: Subject, requests: list[Command]) -> bool:
    """Whether they are computed without a click: what is little, and what was asked for."""
    if not requests or not limits().allows(requests[0].verb):
        return False
    price = together([cached.due(request, subject.tokens).price for request in requests])
    little = price.seconds <= UNASKED and cached.due(requests[0], subject.tokens).price.seconds <= LIVE
    return little or _about(subject) in st.session_state.setdefault(WANTED, set())


def steps(subject: Subject, requests: list[Command]) -> None:
    """Computes what is missing: unasked where that is little, else after one button with its price."""
    if unasked(subject, requests):
        _go_on(requests)
    elif requests and limits().allows(requests[0].verb):
        price = together([cached.due(request, subject.tokens).price for request in requests])
        label = f"Compute the {len(requests)} missing steps, {price.short}"
        look = {"on_click": st.session_state[WANTED].add, "args": (_about(subject),), "help": price.sentence}
        st.button(label, key="quality_ahead", icon=":material/play_arrow:", **look)


def timed(request: Command, tokens: int, price: Price | None = None) -> bool:
    """Times the method in front at the slider without a click, where that is quick; whether it does."""
    due = cached.due(request, tokens, price)
    if request in st.session_state.setdefault(FAILED, []) or not limits().allows(request.verb):
        return False
    if due.over or due.refused or due.price.seconds > LIVE:
        return False
    _go_on([request], "Timing it against dense")
    return True


def _about(subject: Subject) -> tuple[str, str]:
    return subject.saves, str(subject.about)


@st.fragment(run_every=1.5)
def _go_on(requests: list[Command], doing: str = "") -> None:
    """Submits the next step when the one before is done, and then has the page drawn anew."""
    running, doing = st.session_state.get(RUNNING), doing or f"Computing {len(requests):,} more steps"
    # Where the queue is full, the next look tries again.
    with suppress(AnalysisError):
        if running is not None:
            job = cached.jobs().watch(running[0])
            if job.state in jobs.WAITING:
                st.caption(f"{doing}, {job.fraction:.0%}{' of the next one' * (len(requests) > 1)}.")
                return
            st.session_state[RUNNING] = None
            if job.state != "done":
                st.session_state[FAILED].append(running[1])
            st.rerun()
        st.session_state[RUNNING] = cached.jobs().submit(requests[0]), requests[0]
        st.caption(f"{doing}.")
