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
            entry_look = {"light": WORSE, "dark": WORSE} if way == "less" else {"light": BETTER, "dark": BETTER}
            entry_look |= {
                "tag": "Aa",
                "name": f"{LEVELS[level][1]} times {way} likely",
                "mix": light,
                "mix_dark": dark,
            }
            palette.append(entry_look | {"line": LINES[way][level == count - 1]})
    for place, entry in enumerate(palette):
        entry["note"] = f"{paint.count(place):,}"
    return paint, palette


def text(results: Sequence[Shown], tokens: dict) -> None:
    """The painted text of one method with its worst tokens; a row, or a click in the text, locks a token."""
    names = [painted_result.asked.name for painted_result in results]
    titles = {painted_result.asked.name: painted_result.title for painted_result in results}
    widgets.settled("quality_paint", names, names[0])
    st.subheader("What it changes, token by token", anchor=False, help=cached.glossary("change of loss"))
    label = "Painted: this method against dense"
    st.segmented_control(label, names, format_func=titles.get, key="quality_paint", required=True)
    painted_result = next(
        painted_result for painted_result in results if painted_result.asked.name == st.session_state["quality_paint"]
    )
    table, size = cached.columns(painted_result.run, "losses"), len(tokens["piece"])
    change, loss = [None] * size, [None] * size
    for position, dense_loss, apart in zip(table["position"], table["loss"], table["difference"], strict=True):
        change[position], loss[position] = apart, dense_loss
    widgets.settled("quality_token", [None, *range(size)], None)
    locked = st.session_state["quality_token"]
    _worst(painted_result, tokens, change, loss, locked)
    show(
        tokens,
        change,
        loss,
        f"{painted_result.title} gave it",
        key="quality_text",
        identity=painted_result.run.id + painted_result.run.created,
        place=f"{st.session_state['text']}.{painted_result.run.numbers['window']}",
        hint="Hover to see a token, click to mark it; a second click or Esc releases it.",
        locked=locked,
        on_token=lambda: state.choose(st.session_state, quality_token=painted.clicked("quality_text", "token")),
    )


def show(tokens: dict, change: list, loss: list, now: str, **look: object) -> None:
    """The text painted by the change of each token's loss, None where nothing is predicted; `now` names what gave
    `loss`, and `look` goes to `painted`."""
    paint, palette = by_change(change)
    tips = [
        ("dense gave it", chances(loss, change)),
        (now, chances(loss)),
        ("change of loss, nats", [None if apart is None else f"{apart:+.2f}" for apart in change]),
    ]
    legend = "the true token became … than under dense; unpainted: less than 1.5 times either way"
    painted.painted(tokens, paint, palette, tips=tips, legend=legend, **look)


def chances(losses: Sequence[float | None], changes: Sequence[float | None] | None = None) -> list[str | None]:
    """The probabilities of the true tokens, before changes of their losses where there are such, in words."""
    words: list[str | None] = []
    # One loop, without a call for each token: this runs for every token of the text at each move of a slider.
    for loss, change in zip(losses, changes or [0.0] * len(losses), strict=True):
        share = None if loss is None else math.exp((change or 0.0) - loss)
        words.append(None if share is None else f"{share:.1%}" if share >= 0.001 else "under 0.1%")
    return words


def _worst(result: Shown, tokens: dict, change: list, loss: list, locked: int | None) -> None:
    lost = sorted([(-apart, token) for token, apart in enumerate(change) if apart is not None and apart > 0])
    worst = [token for _, token in lost[:WORST]]
    if not worst:
        widgets.prose(f"No token is less likely under {result.title} than under dense.", "more")
        return
    values = {
        "position": worst,
        "context": [_context(tokens, token) for token in worst],
        "dense": [math.exp(change[token] - loss[token]) for token in worst],
        "method": [math.exp(-loss[token]) for token in worst],
        "factor": [math.exp(change[token]) for token in worst],
        "dense_words": chances([loss[token] for token in worst], [change[token] for token in worst]),
        "method_words": chances([loss[token] for token in worst]),
    }
    tables.table(
        COLUMNS,
        values,
        key="quality_worst",
        identity=result.run.id + result.run.created,
        label="The tokens that lose most; choose one to go there",
        selected=worst.index(locked) if locked in worst else None,
        on_row=lambda: state.choose(st.session_state, quality_token=painted.picked("quality_worst", worst)),
        release=True,
        height=250,
    )
    caption = f"The {len(worst)} tokens that lose most under {result.title}. "
    caption += "Click one, or use the arrow keys, to see its place below."
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.caption(caption)
        columns_of_all = {"position": [token for token, value in enumerate(loss) if value is not None]}
        columns_of_all["token"] = [tokens["piece"][token] for token in columns_of_all["position"]]
        columns_of_all["loss"] = [loss[token] for token in columns_of_all["position"]]
        columns_of_all["change against dense"] = [change[token] for token in columns_of_all["position"]]
        widgets.numbers(columns_of_all, "losses", "quality_losses")


def _context(tokens: dict, token: int) -> str:
    """The tokens before one of its window, and itself in brackets."""
    first = token
    while first > max(0, token - BEFORE) and tokens["window"][first - 1] == tokens["window"][token]:
        first -= 1
    before = "".join(tokens["piece"][first:token]).replace("\n", " ↵ ")
    piece = tokens["piece"][token]
    blank = piece[: len(piece) - len(piece.lstrip(" "))]
    return f"{'… ' if first else ''}{before.lstrip()}{blank}[{painted.visible(piece[len(blank) :])}]"
