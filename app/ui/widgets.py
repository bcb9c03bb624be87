"""What every page is made of: its question and answer, charts with their numbers, errors, prices, badges."""

import contextlib
import html
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import streamlit as st

from analysis.errors import AnalysisError
from analysis.runs import Run
from app import cached
from app.selection import state
from app.ui import charts, export
from app.ui.figure import Figure
from app.ui.offers import Waiting
from app.ui.painted import part
from app.ui.spelled import plain

log = logging.getLogger("focuscope.app")
# The numbers of a chart or a table: column -> its cells.
Values = Mapping[str, Sequence]
# Of the session: what was said to have gone of the link while the page was drawn.
DROPPED = "_dropped"
# Of the session: the same, where `redraw` ended that run.
REDRAWN = "_redrawn"
# Characters from which on a paragraph is folded, so that the picture stays in sight.
LONG = 600
# What is selected -> ways to select that it does without.
MODES = {"lasso": [], "box": ["lasso2d"]}
_LINK = part(
    "link",
    """<div class="link"><button type="button"></button>
    <input readonly hidden aria-label="address of this page"></div>""",
)


def prose(sentences: Sequence[str] | str, kind: str = "lead") -> None:
    """Computed sentences as paragraphs; they may quote the reader's text, so they are escaped, never Markdown. Of a
    long one that says more than the answer four lines are seen until it is opened."""
    paragraphs = []
    for sentence in [sentences] if isinstance(sentences, str) else sentences:
        words = html.escape(sentence)
        folded = kind == "more" and len(sentence) > LONG
        summary = f"<summary><span>{words}</span><u>All of it</u></summary>"
        paragraphs.append(
            f'<details class="fs-more">{summary}</details>' if folded else f'<p class="fs-{kind}">{words}</p>'
        )
    if paragraphs:
        st.html("".join(paragraphs))


def header(question: str, subtitle: str) -> None:
    """The page's question and where the method comes from."""
    st.title(question, anchor=False)
    st.caption(subtitle)


def show_error(error: BaseException) -> None:
    """One sentence: what, why, what to do. Anything but our own errors is named by its class; no traceback, ever."""
    if isinstance(error, AnalysisError):
        st.error(plain(error))
        return
    st.error(
        f"This part of the page failed with {plain(type(error).__name__)}; the rest still works. "
        "Try again, or choose another text."
    )


@contextlib.contextmanager
def guarded() -> Iterator[list[Exception]]:
    """A part of the page that may fail: its error takes its place and the rest of the page stays. Yields a list that
    holds the error afterwards."""
    troubles: list[Exception] = []
    try:
        yield troubles
    except Waiting:
        pass
    # A page must never show a traceback, whatever went wrong.
    except Exception as error:
        if not isinstance(error, AnalysisError):
            log.exception("A part of the page failed.")
        troubles.append(error)
        show_error(error)


def each(*parts: Callable[[], object]) -> None:
    """Parts of a page, one below the other; one that fails leaves the others alone."""
    for show in parts:
        with guarded():
            show()


@contextlib.contextmanager
def attempt(place: str) -> Iterator[None]:
    """A callback runs outside the page's own guard and must not fail either: its error is kept for `trouble`.
    Also around a callback: `attempt(place)(callback)`."""
    st.session_state[place] = None
    try:
        yield
    except Exception as error:
        st.session_state[place] = error


def trouble(place: str) -> None:
    """Say what went wrong in the last `attempt` of this place."""
    if (error := st.session_state.get(place)) is not None:
        show_error(error)


def metrics(facts: Sequence[tuple[str, str, str | None, str]]) -> None:
    """Numbers that stand large: (label, value, what is below it, help)."""
    for label, value, below, help in facts:
        st.metric(label, value, below or None, delta_color="off", delta_arrow="off", help=help, width="content")


def settled(name: str, options: list, default: object) -> None:
    """Keep a control inside what this model and text offer; a value from a link that had to go is said."""
    gone = state.settle(st.session_state, name, options, default)
    if gone:
        dropped(gone)


def dropped(sentence: str) -> None:
    """Say what of a link had to go."""
    st.session_state.setdefault(DROPPED, []).append(sentence)
    st.caption(plain(sentence))


def redraw() -> None:
    """Draw the page anew without anybody having touched it, so that what was said of its link stays."""
    st.session_state[REDRAWN] = st.session_state.get(DROPPED, [])
    st.rerun()


def times_chance(value: float | None) -> str:
    """Attention in multiples of chance, for a tooltip."""
    return "too near the end" if value is None else f"{value:.1f} times chance"


def source(run: Run) -> None:
    """Where a result comes from: an example that came with the program, the cache, or computed just now; and what was
    read."""
    tokens, model = run.protocol.get("tokens"), run.protocol.get("model")
    facts = [f"{tokens:,} tokens" if isinstance(tokens, int) else "", f"model {model}" if model else ""]
    origin, icon, help = f"{'from cache, ' * run.cached}computed {run.computed}", "schedule", cached.glossary("run")
    if run.marks.imported:
        origin, icon, help = (
            f"from a bundle, computed {run.computed}",
            "move_to_inbox",
            cached.glossary("bundle (of runs)"),
        )
    elif run.example:
        origin, icon = "example", "auto_stories"
        help = "Computed when this version was made; choose another text above to compute it here."
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(origin, icon=f":material/{icon}:", color="gray", help=help)
        prose(" · ".join(fact for fact in facts if fact), "quiet")


def router_badge(facts: dict) -> None:
    """What made the groups, with "not trained" in plain sight."""
    colour: Literal["orange", "green"] = "orange"
    label, icon, term = "not trained", "warning", "fit without training"
    if facts.get("kind") == "trained":
        label, icon, term = f"trained, {facts.get('steps', 0):,} steps", "check", "trained router"
        colour = "green"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.badge(label, icon=f":material/{icon}:", color=colour, help=cached.glossary(term))
        made = f"router {facts['name']}: {facts['groups']} groups, each token in {facts['top']}"
        prose(f"{made}, window {facts['window']} tokens", "quiet")
    ours = facts.get("perplexity_causal", facts.get("perplexity_fitted"))
    if ours and facts.get("perplexity_random") and facts.get("perplexity_dense"):
        prose(
            f"Perplexity when the model reads only a window of {facts['window']} tokens and these groups: {ours:.2f}; "
            f"with random centroids {facts['perplexity_random']:.2f}, reading everything "
            f"{facts['perplexity_dense']:.2f} (measured on: {facts['evaluated_on']}, "
            f"{facts['evaluated_tokens']:,} tokens).",
            "quiet",
        )


def chart(
    figure: dict,
    values: Values | Callable[[], Values],
    *,
    title: str,
    key: str,
    alt: str,
    help: str | None = None,
    select: str | None = None,
) -> Any:
    """A titled chart with the menu of what it is taken away as.

    `select`: "points" or "lasso"; then the selected points come back as a list of dicts. "box": the boxes, each with
    its corners `x` and `y`.
    """
    # A legend aside takes too much of a telephone's width.
    aside = figure["layout"].get("legend", {}).get("orientation") == "v"
    with st.container(key=f"wide_{key}" if aside else None):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.subheader(title, anchor=False, help=help)
            if figure["data"]:
                numbers(values, re.sub(r"\W+", "-", title.lower()).strip("-"), key, title, key)
        # Plotly refuses a figure without a line.
        if not figure["data"]:
            st.caption("There is nothing to draw here: this text has no numbers for this chart.")
            return [] if select else None
        if st.session_state.get("classroom"):
            figure = charts.larger(figure)
        buttons = ["toImage", "zoom2d", "zoomIn2d", "zoomOut2d", "autoScale2d"]
        buttons += MODES.get(select or "", ["select2d", "lasso2d"]) + ([] if select else ["pan2d", "resetScale2d"])
        config = {"displaylogo": False, "displayModeBar": True, "modeBarButtonsToRemove": buttons}
        selection: dict[str, Any] = {"on_select": "rerun", "selection_mode": [select]} if select else {}
        event: Any = st.plotly_chart(Figure(figure), key=key, config=config, alt=alt, **selection)
        return event["selection"]["box" if select == "box" else "points"] if select else None


def new_cell(points: list[dict], key: str) -> tuple[int, int] | None:
    """The (layer, head) of a point that was selected on a map just now; the chart `key` keeps its selection, so that
    an old one is passed over."""
    chosen = next((point["customdata"] for point in points if point.get("customdata")), None)
    cell = (int(chosen[0]), int(chosen[1])) if chosen else None
    old = st.session_state.get(f"{key}_taken")
    st.session_state[f"{key}_taken"] = cell
    return cell if cell != old else None


def numbers(values: Values | Callable[[], Values], name: str, key: str, title: str = "", chart: str = "") -> None:
    """The menu in the corner of a table, or of the `chart` of this key, which has the same key: what its numbers are
    taken away as. `title` stands on all of it; else it is called by `name`."""
    make = values if callable(values) else lambda: values
    title = title or name.replace("-", " ").capitalize()
    if chart:
        export.menu(make, name, key, title, chart)
    else:
        export.corner(make, name, key, title)


def copy_link() -> None:
    """A button that copies the address, which holds text, model and selection."""
    _LINK(key="copy_link", data={"label": "Copy link", "done": "Link copied"}, width="content")


def notes(run: Run) -> None:
    """Sentences a reader must see beside a result: what was cut, what was fitted, what to read with care."""
    prose(run.numbers.get("notes", []), "note")
