"""The text painted by what a method changes for each token, and the tokens that lose most."""

import math
from bisect import bisect_right
from collections.abc import Sequence

import streamlit as st

from app import cached
from app.quality.words import Shown
from app.selection import state
from app.ui import painted, tables, widgets

LEVELS = ((1.5, "1.5–2"), (2.0, "2–4"), (4.0, "4–8"), (8.0, "over 8"))  # times less, or more, likely
WORSE, BETTER = "#D55E00", "#1F78B4"
MIXES = ((16, 22), (28, 34), (42, 48), (58, 62))  # per cent of the colour in the light and in the dark
LINES = {"less": ("solid", "double"), "more": ("dotted", "dashed")}  # the underline says the sign too; the last level
WORST, BEFORE = 20, 8  # rows of the table, tokens of context in a row
GAVE = "probability of the true token under {}"
COLUMNS = {
    "position": tables.Column("token", "whole", help="its place in the text"),
    "context": tables.Column("in its context", wrap=True, help="the word that was to be predicted stands at the end"),
    "dense": tables.Column("dense gave it", "number", words="dense_words", help=GAVE.format("dense attention")),
    "method": tables.Column("the method gave it", "number", words="method_words", help=GAVE.format("the method")),
    "factor": tables.Column("times less likely", "number", 1, help=cached.glossary("change of loss")),
}


def by_change(changes: Sequence[float | None]) -> tuple[list[int], list[dict]]:
    """Paint for changes of loss in nats: a class per doubling of how much less (orange) or more (blue) likely the true
    token became; what changed less than 1.5 times, or is not predicted (None), stays unpainted (-1)."""
    count, floors = len(LEVELS), [low for low, _ in LEVELS]
    paint = []
    for change in changes:
        level = -1 if change is None else bisect_right(floors, math.exp(abs(change))) - 1
        paint.append(-1 if level < 0 else count - 1 - level if change > 0 else count + level)
    palette = []
    for way, levels in (("less", range(count - 1, -1, -1)), ("more", range(count))):
        for level in levels:
            light, dark = MIXES[level]
            found = {"light": WORSE, "dark": WORSE} if way == "less" else {"light": BETTER, "dark": BETTER}
            found |= {"tag": "Aa", "name": f"{LEVELS[level][1]} times {way} likely", "mix": light, "mix_dark": dark}
            palette.append(found | {"line": LINES[way][level == count - 1]})
    for at, entry in enumerate(palette):
        entry["note"] = f"{paint.count(at):,}"
    return paint, palette


def text(shown: Sequence[Shown], tokens: dict) -> None:
    """The painted text of one method with its worst tokens; a row, or a click in the text, locks a token."""
    names = [one.asked.name for one in shown]
    titles = {one.asked.name: one.title for one in shown}
    widgets.settled("quality_paint", names, names[0])
    st.subheader("What it changes, token by token", anchor=False, help=cached.glossary("change of loss"))
    label = "Painted: this method against dense"
    st.segmented_control(label, names, format_func=titles.get, key="quality_paint", required=True)
    one = next(one for one in shown if one.asked.name == st.session_state["quality_paint"])
    table, size = cached.columns(one.run, "losses"), len(tokens["piece"])
    change, loss = [None] * size, [None] * size
    for position, own, apart in zip(table["position"], table["loss"], table["difference"], strict=True):
        change[position], loss[position] = apart, own
    widgets.settled("quality_token", [None, *range(size)], None)
    locked = st.session_state["quality_token"]
    _worst(one, tokens, change, loss, locked)
    show(
        tokens,
        change,
        loss,
        f"{one.title} gave it",
        key="quality_text",
        identity=one.run.id + one.run.created,
        place=f"{st.session_state['text']}.{one.run.numbers['window']}",
        hint="Hover to see a token, click to mark it; a second click or Esc releases it.",
        locked=locked,
        on_token=lambda: state.choose(st.session_state, quality_token=painted.clicked("quality_text", "token")),
    )


def show(tokens: dict, change: list, loss: list, now: str, **more: object) -> None:
    """The text painted by the change of each token's loss, None where nothing is predicted; `now` names what gave
    `loss`, and `more` goes to `painted`."""
    paint, palette = by_change(change)
    tips = [
        ("dense gave it", chances(loss, change)),
        (now, chances(loss)),
        ("change of loss, nats", [None if apart is None else f"{apart:+.2f}" for apart in change]),
    ]
    legend = "the true token became … than under dense; unpainted: less than 1.5 times either way"
    painted.painted(tokens, paint, palette, tips=tips, legend=legend, **more)


def chances(losses: Sequence[float | None], changes: Sequence[float | None] | None = None) -> list[str | None]:
    """The probabilities of the true tokens, before changes of their losses where there are such, in words."""
    words: list[str | None] = []
    # One loop, without a call for each token: this runs for every token of the text at each move of a slider.
    for loss, change in zip(losses, changes or [0.0] * len(losses), strict=True):
        share = None if loss is None else math.exp((change or 0.0) - loss)
        words.append(None if share is None else f"{share:.1%}" if share >= 0.001 else "under 0.1%")
    return words


def _worst(one: Shown, tokens: dict, change: list, loss: list, locked: int | None) -> None:
    lost = sorted([(-apart, at) for at, apart in enumerate(change) if apart is not None and apart > 0])
    worst = [at for _, at in lost[:WORST]]
    if not worst:
        widgets.prose(f"No token is less likely under {one.title} than under dense.", "more")
        return
    values = {
        "position": worst,
        "context": [_context(tokens, at) for at in worst],
        "dense": [math.exp(change[at] - loss[at]) for at in worst],
        "method": [math.exp(-loss[at]) for at in worst],
        "factor": [math.exp(change[at]) for at in worst],
        "dense_words": chances([loss[at] for at in worst], [change[at] for at in worst]),
        "method_words": chances([loss[at] for at in worst]),
    }
    tables.table(
        COLUMNS,
        values,
        key="quality_worst",
        identity=one.run.id + one.run.created,
        label="The tokens that lose most; choose one to go there",
        selected=worst.index(locked) if locked in worst else None,
        on_row=lambda: state.choose(st.session_state, quality_token=painted.picked("quality_worst", worst)),
        release=True,
        height=250,
    )
    said = f"The {len(worst)} tokens that lose most under {one.title}. "
    said += "Click one, or use the arrow keys, to see its place below."
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.caption(said)
        every = {"position": [at for at, own in enumerate(loss) if own is not None]}
        every["token"] = [tokens["piece"][at] for at in every["position"]]
        every["loss"] = [loss[at] for at in every["position"]]
        every["change against dense"] = [change[at] for at in every["position"]]
        widgets.numbers(every, "losses", "quality_losses")


def _context(tokens: dict, at: int) -> str:
    """The tokens before one of its window, and itself in brackets."""
    first = at
    while first > max(0, at - BEFORE) and tokens["window"][first - 1] == tokens["window"][at]:
        first -= 1
    before = "".join(tokens["piece"][first:at]).replace("\n", " ↵ ")
    own = tokens["piece"][at]
    blank = own[: len(own) - len(own.lstrip(" "))]
    return f"{'… ' if first else ''}{before.lstrip()}{blank}[{painted.visible(own[len(blank) :])}]"
