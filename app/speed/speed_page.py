"""The page Speed: a method of the loaded model, or bare attention shapes, timed against dense in turns."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from analysis.commands.speed import Bench
from analysis.runs import Run
from app import cached
from app.selection.decide import DTYPES, SPEED_MEMBERS, SPEED_ON, SPEED_WHAT
from app.speed import by_length, measured, methods, speed_charts, speed_requests
from app.ui import asking, fields, jobs, repeat, studied, widgets
from app.ui.screen import answer, picture_and_card
from app.ui.tabs import drawer

NO_MORE = {
    "attention": "At most {times:.2f}x at {most} tokens; not timed yet.",
    "decode": "At most {times:.2f}x with {most} tokens in the cache; not timed yet.",
    "inference": "Attention at most {times:.2f}x at {most} tokens; not timed yet.",
}
UNTIMED = "Not timed here yet."
# Attention and models of random weights need no trained one; sliders are moved on this one.
MEASURED_WITH = "demo"
# The study -> (its question, what it is called where it is missing, a glossary term).
STUDIES = {
    "kernels": ("How fast is sparse attention, by length?", "How fast sparse attention is", "crossover"),
    "gpu-check": ("How fast is it on a GPU?", "How fast it is on a GPU", "crossover"),
    "pages": ("What do the pages cost on a large model?", "What the pages cost on a large model", ""),
    "rehearsal": ("How often does a method make a GPU wait?", "Every method on a GPU that computes shapes alone", ""),
    "memory-growth": ("What memory does a long text take?", "What memory a long text takes", ""),
    "long-text": ("What does a long text take?", "What a long text takes", ""),
    "indexer-shapes": ("What does fitting indexers take?", "What fitting indexers to a large model takes", ""),
    "sliders": ("How long does a moved slider take?", "How long a moved slider takes", ""),
}


def show() -> None:
    """The answer, measured or estimated; speed by length; the controls with the button beside; the rest folded."""
    said = st.container()
    picture, card = picture_and_card("speed")
    with card:
        fields.choose("What is timed", SPEED_ON, "speed_on")
    with widgets.guarded():
        (_shapes if st.session_state["speed_on"] == "shapes" else _model)(said, picture, card)
    drawer("speed_evidence", lambda: widgets.each(*(partial(_study, name) for name in STUDIES)))


def _model(said: DeltaGenerator, picture: DeltaGenerator, card: DeltaGenerator) -> None:
    about = methods.settle()
    router: dict[str, Any] = next(
        (candidate for candidate in about["routers"] if candidate["name"] == st.session_state["router"]), {}
    )
    with card:
        method = methods.choose()
        focus = method == methods.LAUNCHED
        _sizes(about["max_positions"], router if focus else {})
        request = methods.request(method)
        stored = cached.store().find(request)
        methods.button(request, stored)
        latest = next(iter(speed_requests.launches()), None) if focus and stored is None else None
        if latest is not None:
            # It had other settings than those chosen now.
            help, args = speed_requests.in_words(latest), (latest.request,)
            st.button("Show the latest launch", key="speed_take", on_click=methods.use, args=args, help=help)
    commands, bound, bench = [speed_requests.command(request)], [], None
    if shown := stored or latest:
        with st.expander("All that was measured", icon=":material/table:"):
            (measured.launched if focus else measured.method)(shown)
    if focus and "groups" in router:
        with st.expander("At other lengths", icon=":material/straighten:"), widgets.guarded():
            _choose_lengths(about)
            asked = speed_requests.bench(about, router)
            lengths, shape = _lengths(asked, about, router)
            bench, bound = cached.store().find(asked), _bound(asked.what, lengths, shape)
            commands.append(speed_requests.command(asked))
            _time_lengths(about, asked, bench, "Measure these lengths", lengths)
    with said:
        _say(stored, st.session_state["speed_what"], bound)
    with picture:
        by_length.show(bench, st.session_state["speed_what"], bound, shown)
    repeat.drawer(*commands)


def _shapes(said: DeltaGenerator, picture: DeltaGenerator, card: DeltaGenerator) -> None:
    chosen = st.session_state
    with card:
        with st.popover("Shape", icon=":material/tune:"):
            fields.number("Heads", "speed_heads", 1, 256, "attention head")
            fields.number("Head size", "speed_size", 8, 256)
            fields.number("Groups (K)", "speed_groups", 1, 64, "learned group")
            _top(chosen["speed_groups"], "1")
            _window(1 << 20, "128")
            if chosen["speed_what"] != "decode":
                fields.number("Batch", "speed_batch", 1, 64)
            st.selectbox("Precision", list(DTYPES), key="speed_dtype")
            fields.choose("Groups are", SPEED_MEMBERS, "speed_members")
            _rounds()
        _choose_lengths(None)
        asked = speed_requests.bench(None, None)
        stored = cached.store().find(asked)
        _time_lengths(None, asked, stored, methods.LAUNCH, asked.lengths or [])
    bound = _bound(asked.what, asked.lengths or [], (asked.groups, asked.top, asked.window))
    with said:
        _say(stored, asked.what, bound)
    with picture:
        by_length.show(stored, asked.what, bound, None)
    repeat.drawer(speed_requests.command(asked))


def _say(run: Run | None, phase: str, bound: speed_charts.Points) -> None:
    """The answer: who was faster, or what no kernel can pass."""
    if run is not None:
        if "speedup" in run.numbers:
            answer(methods.said(run), run.numbers["sentence"])
        else:
            answer(run.numbers["sentence"])
        measured.machine(run)
        widgets.notes(run)
    elif bound:
        most, times = bound[-1]
        answer(NO_MORE[phase].format(times=times, most=speed_charts.short(most)), cached.glossary("bound (speed-up)"))
    else:
        answer(UNTIMED)


def _sizes(context: int, router: Mapping[str, Any]) -> None:
    """Prompt, new tokens and rounds, and of Focus its settings, folded."""
    with st.popover("More", icon=":material/tune:"):
        fields.number("Prompt, tokens", "speed_prompt", 2, context, placeholder="all that fit")
        fields.number("New tokens", "speed_new", 2, 1024)
        _rounds()
        if not router:
            return
        usual = {**router, **speed_requests.inherited()}
        if "groups" in router:
            _top(router["groups"], str(usual["top"]))
        _window(context, str(usual.get("window", "as made")))
        sinks = str(usual.get("n_sink", "as made"))
        fields.number("Sinks", "speed_sinks", 0, 64, "attention sink", placeholder=sinks)


def _top(groups: int, usual: str) -> None:
    fields.number("Groups per token", "speed_top", 1, groups, "membership (top-k)", placeholder=usual)


def _window(context: int, usual: str) -> None:
    fields.number("Window, tokens", "speed_window", 1, context, "sliding window", placeholder=usual)


def _rounds() -> None:
    fields.number("Rounds", "speed_rounds", 1, 50, "round (of a measurement)")


# --- by length --------------------------------------------------------------------------------------------------------


def _lengths(
    asked: Bench, card: Mapping[str, Any], router: Mapping[str, Any]
) -> tuple[list[int], tuple[int, int, int]]:
    """The lengths that are timed, and (groups, groups per token, window) there."""
    if asked.what != "inference":
        return asked.lengths or [], (asked.groups, asked.top, asked.window)
    fits = card["max_positions"] - st.session_state["speed_new"]
    return [max(2, fits // part) for part in (4, 2, 1)], (router["groups"], router["top"], asked.window)


def _bound(phase: str, lengths: list[int], shape: tuple[int, int, int]) -> list[tuple[int, float]]:
    return [(length, speed_requests.even_bound(length, *shape, phase)) for length in lengths]


def _choose_lengths(card: Mapping[str, Any] | None) -> None:
    """What is timed by length, and at which lengths; these are checked when they are asked for."""
    offered = {choice: title for choice, title in SPEED_WHAT.items() if card or choice != "inference"}
    widgets.settled("speed_what", list(offered), "attention")
    fields.choose("Measure by length", offered, "speed_what")
    if st.session_state["speed_what"] != "inference":
        st.text_input("Lengths, tokens", key="speed_lengths", max_chars=80, help="16K means 16,384.")


def _time_lengths(
    card: Mapping[str, Any] | None, asked: Bench, stored: Run | None, label: str, lengths: list[int]
) -> None:
    """The button, and what it measured."""
    jobs.run_button(
        label,
        asked,
        "speed_bench",
        price=speed_requests.bench_price(asked, card, lengths),
        stored=stored,
        smaller=lambda: speed_requests.smaller(asked),
        type="primary" if card is None else "secondary",
    )
    if stored is not None:
        by_length.details(stored)


# --- stored studies ---------------------------------------------------------------------------------------------------


def _study(name: str) -> None:
    """A study; that of the pages has a file for each model."""
    question, title, term = STUDIES[name]
    help = cached.glossary(term) if term else None
    st.header(question, anchor=False, help=help)
    files = [file for file in asking.study_names(MEASURED_WITH) if file == name or file.startswith(f"{name}-")]
    studies = {file: asking.study(MEASURED_WITH, file)[0] for file in files}
    if not any(studies.values()):
        studied.missing(title, name, reads=False)
    for file, study in studies.items():
        if study is not None:
            widgets.prose(study.sentence, "more")
            studied.badge(study)
            studied.drawn(study, f"speed_{file}", help, file)
