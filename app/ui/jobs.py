"""Long jobs on a page: price before, progress while, result or one sentence after. A job outlives the tab."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from analysis.commands import COMMANDS
from analysis.declaration.command import Command
from analysis.errors import BadSetting
from analysis.jobs import JobStatus
from analysis.limits import limits
from analysis.runs import Price, Run
from analysis.runs.price import spell
from analysis.studies.registry import STORED
from app import cached
from app.selection import state
from app.ui import asking, chips, offers, widgets
from app.ui.offers import Scope

# Of the session: whether a job was submitted since the page was last drawn.
FRESH = "_job_fresh"
# Done of a job, before which the time that is left would be a wild guess.
SURE = 0.1
WAITING = ("queued", "running")
ENDED = {"cancelled": "was cancelled", "interrupted": "was interrupted", "failed": "failed"}


def run_button(
    label: str,
    request: Command,
    key: str,
    tokens: int | None = None,
    help: str | None = None,
    *,
    price: Price | None = None,
    stored: Run | None = None,
    smaller: Callable[[], list[Scope]] = list,
    type: str = "secondary",
) -> None:
    """A button that submits a long job, its price on it: `price`, or what `tokens` tokens took before.

    `stored`: the run of this request that is there, which is dropped first, to be measured again; an example stays.
    `smaller`: what the page offers instead where that is too much. What this installation does not allow has no button.
    """
    instead_of = None
    if stored is not None:
        type = "secondary"
        if not stored.example:
            label, instead_of = f"{label} again", stored.id
    if not limits().allows(request.verb):
        why = f"{label}: not available in this shared demo; start Focuscope on your own machine for it."
        widgets.prose(why, "quiet")
        return
    job = current()
    busy = job is not None and job.state in WAITING and (job.verb, job.args) == (request.verb, request.spelled)
    due = cached.due(request, tokens, price)
    submitted = (request, due.price.seconds, instead_of)
    if offers.goes(key) and not (busy or due.refused):
        _submit(*submitted)
        widgets.redraw()
    look: dict[str, Any] = {"icon": ":material/play_arrow:", "disabled": busy or due.refused, "type": type}
    look["help"] = f"{help} {due.price.sentence}." if help else f"{due.price.sentence}."
    with offers.row():
        st.button(f"{label}, {due.price.short}", key=key, on_click=_submit, args=submitted, **look)
        if busy:
            widgets.prose("Running: progress and Cancel are on top.", "quiet")
            return
        if due.refused or due.over or due.price.long:
            further = offers.of_memory if due.refused else offers.of_text
            offers.offer([*smaller(), *further(request, tokens)], due.price, key, key)
    if due.over:
        widgets.prose(f"{due.over}.", "note")


def begin(request: Command, tokens: int) -> bool:
    """Submit a job without a click, where a request of its price would not wait for one either; whether it was."""
    due = cached.due(request, tokens)
    if due.price.slow or due.over or not limits().allows(request.verb):
        return False
    _submit(request, due.price.seconds)
    return True


def current() -> JobStatus | None:
    """The job named in the URL, or None when there is none or it is unknown here."""
    try:
        return cached.jobs().watch(st.session_state["job"]) if st.session_state["job"] else None
    except BadSetting:
        return None


def _submit(request: Command, seconds: float, instead_of: str | None = None) -> None:
    with widgets.attempt("job_trouble"):
        if instead_of is not None:
            cached.store().discard(instead_of)
        cached.store().remember(request, asking.origin(seconds))
        job_id = cached.jobs().submit(request, session=_session())
        state.choose(st.session_state, job=job_id)
        st.session_state[FRESH] = True


def _session() -> str:
    return st.session_state.setdefault("session_name", secrets.token_hex(8))


def strip() -> None:
    """On top of every page: the job named in the URL, whoever started it, and what else this session runs. A refreshed
    or copied page attaches to its job again. It stays in sight and renews itself; the page reruns when a job ends."""
    st.session_state[FRESH] = False
    widgets.trouble("job_trouble")
    linked = current()
    if linked is None and st.session_state["job"]:
        widgets.dropped(f"The job {st.session_state['job']} is not known here (any more): start it again.")
        state.choose(st.session_state, job=None)
    first = [linked.id] if linked and linked.state in WAITING else []
    at_work = [*first, *(job.id for job in cached.jobs().active(_session()) if linked is None or job.id != linked.id)]
    if at_work:
        _live(at_work)
    if linked is None or linked.state in WAITING:
        return
    title, args = called(linked.verb, linked.args), linked.args
    if linked.state == "done":
        makes_router = linked.verb in cached.MAKE_ROUTERS and {"groups", "top"} <= args.keys()
        with st.container(horizontal=True, vertical_alignment="center"):
            st.badge(f"Done: {title}", icon=":material/check:", color="green")
            look: dict[str, Any] = {"key": "job_use", "type": "primary"}
            if makes_router and args.get("phase", 1) == 1:
                name = cached.router_name(args)
                st.button(f"Use the router {name}", on_click=chips.use_router, args=(name,), **look)
            if linked.verb == "fetch":
                st.button(f"Use {args['model']}", on_click=chips.use_model, args=(args["model"],), **look)
            _dismiss_button()
        if makes_router and linked.run and (run := cached.find_run(linked.run)) is not None:
            # What moved to the trash.
            widgets.notes(run)
        return
    # It did not finish: why, and the way on.
    failed = linked.state == "failed"
    (st.error if failed else st.warning)(widgets.plain(linked.error or f"“{title}” {ENDED[linked.state]}."))
    with st.container(horizontal=True):
        resume = widgets.attempt("job_trouble")(
            lambda: state.choose(st.session_state, job=cached.jobs().resume(linked.id))
        )
        label = "Try again" if failed else "Resume"
        st.button(label, key="job_resume", on_click=resume, icon=":material/replay:")
        _dismiss_button()


def redraw() -> None:
    """In a part of the page that is drawn alone: draw the page, whose strip shows what was submitted there, and whose
    bar the text that was cut."""
    if st.session_state.get(FRESH) or offers.GO in st.session_state:
        st.rerun()


def _dismiss_button() -> None:
    st.button("Dismiss", key="job_dismiss", on_click=state.choose, args=(st.session_state,), kwargs={"job": None})


@st.fragment(run_every=1)
def _live(job_ids: Sequence[str]) -> None:
    """The strip of jobs that wait or run; it alone is drawn anew each second."""
    watched, silent = [cached.jobs().watch(job_id) for job_id in job_ids], cached.jobs().silent()
    if any(job.state not in WAITING for job in watched):
        st.rerun()
    help = "You can close this tab: the job keeps running, and this link reopens it."
    with st.container(key="job_strip", gap="small"):
        for place, job in enumerate(watched):
            with st.container(horizontal=True, vertical_alignment="center"):
                st.progress(min(max(job.fraction, 0.0), 1.0), text=progress_words(job, silent.get(job.id, 0.0)))
                if job.id in silent:
                    restart_button(f"job_restart_{job.id}")
                look: dict[str, Any] = {"disabled": job.cancel, "icon": ":material/close:", "help": help}
                look["on_click"] = widgets.attempt("job_trouble")(lambda job_id: cached.jobs().cancel(job_id))
                st.button("Cancel", key="job_cancel" if place == 0 else f"job_cancel_{job.id}", args=(job.id,), **look)


def called(verb: str, arguments: Mapping[str, Any] | None = None) -> str:
    """What runs and jobs of a verb are called: by the title of the command, or of the named study."""
    name = str((arguments or {}).get("name"))
    command = STORED.get(name) if verb == "study" else COMMANDS.get(verb)
    return command.brief if command else verb


def restart_button(key: str) -> None:
    """Offer another worker for one that was stopped or hangs."""
    help = "What it had begun begins anew, a job at its last checkpoint where it has one."
    restart = widgets.attempt("job_trouble")(lambda: cached.jobs().restart())
    st.button("Restart the worker", key=key, on_click=restart, icon=":material/restart_alt:", help=help)


def progress_words(job: JobStatus, silent: float = 0.0) -> str:
    """What a job is doing: place in the queue, or stage, per cent and time left; or for how many seconds its worker has
    been silent."""
    if silent:
        return f"{called(job.verb, job.args)}: nothing was heard of its worker for {silent:.0f} s ({job.fraction:.0%})"
    if job.state == "queued":
        return f"{called(job.verb, job.args)}: waiting, number {job.queue_position} in the queue"
    left = "" if job.seconds_left is None or job.fraction < SURE else f", about {spell(job.seconds_left)} left"
    doing = f": {widgets.plain(job.stage)}" if job.stage else ""
    return f"{called(job.verb, job.args)}{doing} ({job.fraction:.0%}{left}{', cancelling' if job.cancel else ''})"
