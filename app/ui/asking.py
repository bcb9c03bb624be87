"""What a page asks the worker for: the stored answer at once, else a spinner with its price, or a Run button."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from analysis.commands.text import Inspect
from analysis.declaration.command import Command
from analysis.errors import AnalysisError
from analysis.runs import Run
from analysis.runs.price import LIVE, spell, together
from analysis.runs.stored import StoredStudy
from app import cached
from app.selection import state
from app.ui import offers, widgets

Tell = Callable[[float, str, float | None, dict | None], None]
# Draws the columns that are known so far.
Draw = Callable[[dict], None]
# The router every model has: a study fits it when it is missing.
USUAL = "k8-top1"
# Seconds after which something of a long text is to stand there.
SOON = 6
# Of the session: the `Later` of the page that is drawn.
LATER = "_later"
# Of the session: the `subject` of the last page that was drawn to its end.
SHOWN = "_shown"
# Of the session: the request that was cancelled.
STOPPED = "_stopped"
# Numbers the Cancel buttons: a page may wait for one verb more than once.
BARS = itertools.count()
# What stood here before is hidden where this stands (page.css).
INSTEAD = '<div class="fs-block"></div>'


def ask(request: Command, doing: str, tokens: int | None = None, draw: Draw | None = None) -> Run:
    """The stored run for this request, else the worker's answer; the spinner says what is done, and its price. What
    takes long or much memory waits for its Run button, with smaller scopes beside it. `draw`: called meanwhile with
    what is known so far, anew each time there is more."""
    return cached.store().find(request) or compute(request, doing, tokens, draw)


def compute(
    request: Command, doing: str, tokens: int | None = None, draw: Draw | None = None, goes_on: bool = False
) -> Run:
    """As `ask`, for what was looked up and is not stored; what waits for its Run button raises Waiting, with the button
    on the page. `goes_on`: what is smaller stands there already."""
    due, drawing, stopped = cached.due(request, tokens), cached.drawing(), st.session_state.get(STOPPED) == request
    may_wait = stopped or not request.unasked
    if may_wait and due.refused:
        offers.refused(doing, request, tokens, due)
        raise offers.Waiting
    # What is quick, with all that this drawing of the page computed before it, needs no Run button.
    if may_wait and not (request in drawing.wanted or offers.goes(request.verb)):
        if stopped or due.over or drawing.seconds + due.price.seconds > LIVE:
            offers.ask_first(doing, due, request, tokens, smaller=not goes_on)
        else:
            drawing.seconds += due.price.seconds - due.price.fixed
    if stopped:
        del st.session_state[STOPPED]
    cached.store().remember(request, origin(due.price.seconds))
    # The bar comes first: what follows may be hidden.
    place, below = st.empty(), st.empty()
    try:
        with _waiting(f"{doing}, {due.price.short}"):
            tell = bar(place, request, below, draw)
            return cached.jobs().compute(request, timeout=cached.PATIENCE, tell=tell)
    finally:
        place.empty()
        below.empty()


def several(requests: Sequence[Command], doing: str, noun: str, tokens: int) -> tuple[list[Run | None], bool]:
    """(the stored runs of these requests, None where one is missing; whether those wait): one button for all that are
    missing, where they take long together, else they may be computed. `noun` they are, such as method, and `tokens`
    that each reads."""
    runs = [cached.store().find(request) for request in requests]
    missing = [request for request, run in zip(requests, runs, strict=True) if run is None]
    dues = [cached.due(request, tokens) for request in missing]
    if not missing or any(due.refused for due in dues):
        # `compute` says what lacks.
        return runs, False
    price, drawing = together([due.price for due in dues]), cached.drawing()
    over = next((due.over for due in dues if due.over), None)
    if not over and drawing.seconds + price.seconds <= LIVE:
        return runs, False
    if not offers.goes(missing[0].verb):
        named = f"the {len(missing)} missing {noun}s" if len(missing) > 1 else f"the missing {noun}"
        try:
            offers.ask_first(doing, cached.Due(price, over), missing[0], tokens, f"Compute {named}")
        except offers.Waiting:
            return runs, True
    drawing.wanted = missing
    return runs, False


@dataclass(frozen=True)
class Later:
    """What `rest` asks for under a page of that `subject`: a `request` that reads so many `tokens`. `part`: the run
    that it replaces."""

    subject: tuple
    request: Command
    doing: str
    tokens: int | None
    part: str


def in_parts(request: Command, part: dict, doing: str, then: str, tokens: int | None = None) -> Run:
    """As `ask`. Where the whole takes long, the page is drawn first from the answer with the arguments `part` instead,
    and `rest` asks for the whole under it; `then`: what is done meanwhile."""
    stored = cached.store().find(request)
    if stored is not None:
        return stored
    if cached.due(request, tokens).price.seconds <= LIVE:
        return compute(request, doing, tokens)
    smaller = request.but(**part)
    run = cached.store().find(smaller)
    if run is None:
        run = compute(smaller, doing, tokens)
        # The button said the price of the whole.
        cached.drawing().wanted.append(request)
    st.session_state[LATER] = Later(subject(), request, then, tokens, run.id)
    return run


def by_windows(request: Command, parts: Sequence[dict], doing: str) -> Run:
    """As `ask`. Of a text of several windows that takes longer than SOON the page is drawn from the last of the `parts`
    that is there, else from the first; then `rest` asks for the next one under it, and at last for the whole. A part
    adds a window to the one before. Where a window takes long, all that is missing is asked for together."""
    numbers = inspected()
    shown, most, count = numbers["shown"], numbers["max_positions"], numbers["windows"]
    if (stored := cached.store().find(request)) is not None:
        return stored
    steps = [*(request.but(**part) for part in parts), request]
    known = [cached.store().find(step) for step in steps]
    read = max((place for place, run in enumerate(known, 1) if run is not None), default=0)
    if count == 1 or not read and cached.due(request, shown).price.seconds <= SOON:
        return compute(request, doing, shown)
    if not read and cached.due(steps[0], most).price.seconds > LIVE:
        return in_parts(request, parts[0], doing, f"Reading windows 2 to {count}", shown)
    run = known[read - 1] if read else None
    if run is None:
        read, run = 1, compute(steps[0], f"{doing}, window 1 of {count}", most)
    last = read + 1 == len(steps) or cached.due(steps[read], most).price.seconds > LIVE
    named = f"windows {read + 1} to {count}" if last and read + 1 < count else f"window {read + 1} of {count}"
    following, tokens = (request, shown - read * most) if last else (steps[read], most)
    st.session_state[LATER] = Later(subject(), following, f"Reading {named}", tokens, run.id)
    return run


def rest() -> None:
    """Under a page that was drawn from a part: ask for what comes next, then draw the page anew."""
    later = st.session_state.pop(LATER, None)
    if later is not None and later.subject == subject():
        place = cached.drawing().place
        # What stands there already is not waited for any more.
        cached.drawing().seconds = 0.0
        with place if place is not None else contextlib.nullcontext():
            after(later.request, later.doing, later.tokens, later.part)


def goes_on() -> bool:
    """Whether `rest` will ask for more without being told to."""
    later = st.session_state.get(LATER)
    return later is not None and later.request != st.session_state.get(STOPPED)


def after(request: Command, doing: str, tokens: int | None = None, part: str | None = None) -> None:
    """Under a page that is drawn: ask for what it gets better with, then draw it anew; nothing where that is stored.
    `part`: the run that it replaces."""
    if cached.store().find(request) is None:
        st.session_state[SHOWN] = subject()
        compute(request, doing, tokens, goes_on=part is not None)
        if part is not None:
            cached.store().discard(part)
        widgets.redraw()


def bar(place: DeltaGenerator, request: Command, below: DeltaGenerator | None = None, draw: Draw | None = None) -> Tell:
    """`tell(done, stage, seconds left, so far)`, which draws how far a request is, with Cancel: a click reruns the
    page, which ends the present run at the next `tell`, and the request with it. What there is so far is drawn `below`
    each time it is another one."""
    progress: DeltaGenerator | None = None
    drawn: dict | None = None

    def tell(done: float, stage: str, left: float | None, so_far: dict | None = None) -> None:
        nonlocal progress, drawn
        if progress is None:
            with place.container(horizontal=True, vertical_alignment="center"):
                progress = st.empty()
                key = f"stop_{next(BARS)}"
                st.button("Cancel", key=key, icon=":material/close:", on_click=_stop, args=(request,))
        about = "" if left is None else f", about {spell(left)} left"
        progress.progress(min(max(done, 0.0), 1.0), text=f"{widgets.plain(stage)} ({done:.0%}{about})")
        if draw is not None and below is not None and so_far is not None and so_far != drawn:
            drawn = so_far
            with below.container():
                draw(so_far)

    return tell


def _stop(request: Command) -> None:
    """What was cancelled waits for its Run button."""
    st.session_state[STOPPED] = request


@contextlib.contextmanager
def _waiting(sentence: str) -> Iterator[None]:
    """What stands on the page while the worker answers: what is awaited and its price. What was said of another page,
    text or model is hidden; of the same ones it stays, in grey."""
    place = st.empty()
    try:
        with contextlib.ExitStack() as stack:
            same = st.session_state.get(SHOWN) == subject()
            if not same:
                stack.enter_context(place.container())
            stack.enter_context(st.spinner(sentence, show_time=True))
            if not same:
                st.html(INSTEAD)
            yield
    finally:
        place.empty()


def subject() -> tuple:
    """What the page is about: its address, model and text."""
    return tuple(st.session_state.get(name) for name in ("page_shown", "model", "text"))


def origin(seconds: float) -> dict:
    """The page that is shown with its controls and the price that stood there, as a run remembers who asked for it."""
    controls = {name: raw for name, raw in state.address(st.session_state).items() if name != "job"}
    return {"page": st.session_state.get("page_shown", ""), "controls": controls, "seconds": seconds}


def card(model: str) -> dict:
    """The numbers of the `model` verb: sizes, routers, parity badge."""
    doing = f"Loading {model} and comparing it with the stock one"
    return (cached.card(model) or compute(cached.card_request(model), doing)).numbers


def layers(model: str) -> list[int]:
    """The model's own numbers of its layers of softmax attention."""
    numbers = card(model)
    return numbers.get("layer_numbers") or list(range(numbers["layers"]))


def other_layers(model: str) -> dict[int, str]:
    """The other layers of a hybrid by their number, and what they are."""
    return {int(number): kind for number, kind in (card(model).get("other_layers") or {}).items()}


def inspected() -> dict:
    """The numbers of `inspect` for the chosen text: its tokens, windows, and what the model reads at once."""
    return ask(cached.request(Inspect, **state.study_args(st.session_state)), "Counting the tokens").numbers


def study(model: str, name: str) -> tuple[StoredStudy | None, str]:
    """A study stored for a model, not to be changed, or None; then with what damages its file, if so."""
    return cached.study(model, card(model)["revision"], name)


def study_names(model: str) -> list[str]:
    """Names of the studies stored for a model, damaged ones among them."""
    return [file.stem for file in cached.files_of_studies(model, card(model)["revision"])]


def routers(model: str) -> list[str]:
    """Names of the routers known for a model, the usual one first: the stored ones and those a finished job fitted."""
    listed = [router["name"] for router in card(model)["routers"]]
    with contextlib.suppress(AnalysisError):
        jobs = [job for job in cached.jobs().recent(limit=50) if job.verb in cached.MAKE_ROUTERS]
        done = [job.args for job in jobs if job.state == "done" and job.args.get("model") == model]
        listed += [cached.router_name(args) for args in done if args.get("phase", 1) == 1]
    return sorted(dict.fromkeys(listed) or [USUAL], key=lambda name: name != USUAL)


def settle_router() -> None:
    """Choose the first router of the model where none was chosen yet."""
    if st.session_state["router"] is None:
        state.choose(st.session_state, router=routers(st.session_state["model"])[0])
