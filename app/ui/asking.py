"""What a page asks the worker for: the stored answer at once, else a spinner with its price, or a Run button."""

import contextlib
from collections.abc import Iterator

import streamlit as st

from analysis.runs import Run
from app import cached
from app.selection import state
from app.ui import offers

USUAL = "k8-top1"  # the router every model has: a study fits it when it is missing
SHOWN = "_shown"  # of the session: the `subject` of the last page that was drawn to its end
UNASKED = ("model", "inspect")  # what every page needs before it can say what anything costs


def ask(verb: str, args: dict, doing: str, tokens: int | None = None) -> Run:
    """The stored run for this request, else the worker's answer; the spinner says what is done, and its price. What
    takes long or much memory waits for its Run button, with smaller scopes beside it."""
    store = cached.store()
    stored = store.find(verb, args)
    if stored is not None:
        return stored
    due = cached.due(verb, args, tokens)
    if verb not in UNASKED and (due.price.slow or due.over):
        key = f"{verb}_{store.key(verb, args)}"
        if due.refused:
            offers.refused(doing, verb, args, tokens, due, key)
            raise offers.Waiting
        offers.ask_first(doing, due, lambda: offers.of_text(args, tokens), key)
    store.remember(verb, args, here(due.price.seconds))
    with _waiting(f"{doing}. {due.price.sentence}.", due.price.seconds):
        return cached.jobs().compute(verb, args, timeout=cached.PATIENCE)


@contextlib.contextmanager
def _waiting(sentence: str, seconds: float) -> Iterator[None]:
    """What stands on the page while the worker answers. What was said of another page, text or model is hidden behind a
    skeleton, whose bar moves as long as it should take; of the same ones it stays, in grey."""
    if st.session_state.get(SHOWN) == subject():
        with st.spinner(sentence, show_time=True):
            yield
        return
    place = st.empty()
    try:
        with place.container(), st.spinner(sentence, show_time=True):
            st.html(f'<div class="fs-bar"><i style="animation-duration: {seconds:.1f}s"></i></div>')
            for height in (90, 260, 180):
                st.skeleton(height)
            yield
    finally:
        place.empty()


def subject() -> tuple:
    """What the page is about: its address, model and text."""
    return tuple(st.session_state.get(name) for name in ("page_shown", "model", "text"))


def here(seconds: float) -> dict:
    """The page that is shown with its controls and the price that stood there, as a run remembers who asked for it."""
    controls = {name: raw for name, raw in state.address(st.session_state).items() if name != "job"}
    return {"page": st.session_state.get("page_shown", ""), "controls": controls, "seconds": seconds}


def card(model: str) -> dict:
    """The numbers of the `model` verb: sizes, routers, parity badge."""
    stored = cached.card(model)
    run = stored or ask("model", {"model": model}, f"Loading {model} and comparing it with the stock model")
    return run.numbers


def inspected() -> dict:
    """The numbers of `inspect` for the chosen text: its tokens, windows, and what the model reads at once."""
    return ask("inspect", state.study_args(st.session_state), "Counting the tokens").numbers


def studies(model: str) -> tuple[dict[str, dict], list[str]]:
    """name -> numbers of the studies stored for a model, not to be changed; a sentence for each damaged one."""
    return cached.studies(model, card(model)["revision"])


def routers(model: str) -> list[str]:
    """Names of the routers known for a model, the usual one first: the stored ones and those a finished job fitted."""
    found = [router["name"] for router in card(model)["routers"]] + cached.made_routers(model)
    known = dict.fromkeys(found) or {USUAL: None}
    return sorted(known, key=lambda name: name != USUAL)


def settle_router() -> None:
    """Choose the first router of the model where none was chosen yet."""
    if st.session_state["router"] is None:
        state.choose(st.session_state, router=routers(st.session_state["model"])[0])
