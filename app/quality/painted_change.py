"""The text painted by what a method changes for each token, and the tokens that lose most."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import streamlit as st

from app import cached
from app.quality.steps import Step
from app.selection import state
from app.ui import painted, tables, widgets

# Times less, or more, likely.
LEVELS = ((1.5, "1.5–2"), (2.0, "2–4"), (4.0, "4–8"), (8.0, "over 8"))
WORSE, BETTER = "#D55E00", "#1F78B4"
# Per cent of the colour in the light and in the dark.
MIXES = ((16, 22), (28, 34), (42, 48), (58, 62))
# The underline says the sign too; the second one is of the last level.
WAYS = {"less": (WORSE, "solid", "double"), "more": (BETTER, "dotted", "dashed")}
# Rows of the table, tokens of context in a row.
WORST, BEFORE = 20, 8
GAVE = "probability of the true token under {}"
COLUMNS = {
    "position": tables.Column("token", "whole", help="its place in the text"),
    "context": tables.Column("in its context", wrap=True, help="the word that was to be predicted stands at the end"),
    "dense": tables.Column("dense gave it", "number", words="dense_words", help=GAVE.format("dense attention")),
    "method": tables.Column("the method gave it", "number", words="method_words", help=GAVE.format("the method")),
    "factor": tables.Column("times less likely", "number", 1, help=cached.glossary("change of loss")),
}

# Of every token of the text, None where nothing is predicted.
Losses = Sequence[float | None]


def by_change(changes: Losses) -> tuple[list[int], list[dict]]:
    """Paint for changes of loss in nats: a class per doubling of how much less (orange) or more (blue) likely the true
    token became, the strongest loss first; what changed less than 1.5 times, or is not predicted, is unpainted (-1)."""
    count, floors = len(LEVELS), [low for low, _ in LEVELS]
    paint = []
    for change in changes:
        level = bisect_right(floors, math.exp(abs(change or 0.0))) - 1
        way = count - 1 - level if (change or 0.0) > 0 else count + level
        paint.append(-1 if level < 0 else way)
    classes = [("less", level) for level in reversed(range(count))] + [("more", level) for level in range(count)]
    palette = []
    for place, (direction, level) in enumerate(classes):
        (colour, *lines), name = WAYS[direction], f"{LEVELS[level][1]} times {direction} likely"
        palette.append(painted.entry(name, paint.count(place), colour, MIXES[level], lines[level == count - 1]))
    return paint, palette


def text(step: Step) -> None:
    """The painted text of one method; a click in it marks a token."""
    tokens, change, loss = _of_text(step)
    widgets.settled("quality_token", [None, *range(len(loss))], None)
    show(
        tokens,
        change,
        loss,
        f"{step.asked.title} gave it",
        key="quality_text",
        identity=step.run.id + step.run.created,
        place=f"{st.session_state['text']}.{step.run.numbers['window']}",
        hint="Hover to see a token, click to mark it; a second click or Esc releases it.",
        locked=st.session_state["quality_token"],
        on_token=lambda: state.choose(st.session_state, quality_token=painted.clicked("quality_text", "token")),
    )


def worst(step: Step) -> None:
    """The tokens that lose most; a row marks its token in the text."""
    tokens, change, loss = _of_text(step)
    # Both hold a number at the same tokens.
    lost = [(apart, token, now) for token, (apart, now) in enumerate(zip(change, loss, strict=True)) if apart and now]
    lost = sorted((one for one in lost if one[0] > 0), key=lambda one: (-one[0], one[1]))[:WORST]
    listed, locked = [token for _, token, _ in lost], st.session_state["quality_token"]
    if not listed:
        widgets.prose(f"No token is less likely under {step.asked.title} than under dense.", "more")
        return
    values: dict[str, Sequence] = {
        "position": listed,
        "context": [_context(tokens, token) for token in listed],
        "dense": [math.exp(apart - now) for apart, _, now in lost],
        "method": [math.exp(-now) for _, _, now in lost],
        "factor": [math.exp(apart) for apart, _, _ in lost],
        "dense_words": chances([now for _, _, now in lost], [apart for apart, _, _ in lost]),
        "method_words": chances([now for _, _, now in lost]),
    }
    tables.table(
        COLUMNS,
        values,
        key="quality_worst",
        identity=step.run.id + step.run.created,
        label="The tokens that lose most; choose one to mark it",
        selected=listed.index(locked) if locked in listed else None,
        on_row=lambda: state.choose(st.session_state, quality_token=painted.picked("quality_worst", listed)),
        release=True,
        height=250,
    )
    predicted = [token for token, value in enumerate(loss) if value is not None]
    columns = {"token": tokens["piece"], "loss": loss, "change against dense": change}
    all_tokens = {name: [column[token] for token in predicted] for name, column in columns.items()}
    widgets.numbers({"position": predicted} | all_tokens, "losses", "quality_losses")


def _of_text(step: Step) -> tuple[dict, Losses, Losses]:
    """The tokens of the text that a run scored, the change of each one's loss, and its loss."""
    tokens, table = cached.columns(step.run, "tokens"), cached.columns(step.run, "losses")
    change, loss = placed(table["position"], len(tokens["piece"]), table["difference"], table["loss"])
    return tokens, change, loss


def placed(positions: Sequence[int], size: int, *values: Sequence[float]) -> list[list[float | None]]:
    """Values of predicted tokens at their places in a text of `size` tokens."""
    columns: list[list[float | None]] = [[None] * size for _ in values]
    for position, *cells in zip(positions, *values, strict=True):
        for column, cell in zip(columns, cells, strict=True):
            column[position] = cell
    return columns


def show(tokens: dict, change: Losses, loss: Losses, now: str, **look: Any) -> None:
    """The text painted by the change of each token's loss; `now` names what gave `loss`, and `look` goes to
    `painted`."""
    paint, palette = by_change(change)
    tips: list[tuple[str, Sequence]] = [
        ("dense gave it", chances(loss, change)),
        (now, chances(loss)),
        ("change of loss, nats", [None if apart is None else f"{apart:+.2f}".replace("-", "−") for apart in change]),
    ]
    legend = "the true token became … than under dense; unpainted: less than 1.5 times either way"
    painted.painted(tokens, paint, palette, tips=tips, legend=legend, **look)


def chances(losses: Losses, changes: Losses | None = None) -> list[str | None]:
    """The probabilities of the true tokens, before changes of their losses where there are such, in words."""
    words: list[str | None] = []
    # One loop, without a call for each token: this runs for every token of the text at each move of a slider.
    for loss, change in zip(losses, changes or [0.0] * len(losses), strict=True):
        share = None if loss is None else math.exp((change or 0.0) - loss)
        words.append(None if share is None else f"{share:.1%}" if share >= 0.001 else "under 0.1%")
    return words


def _context(tokens: dict, token: int) -> str:
    """The tokens before one of its window, and itself in brackets."""
    first = token
    while first > max(0, token - BEFORE) and tokens["window"][first - 1] == tokens["window"][token]:
        first -= 1
    before = "".join(tokens["piece"][first:token]).replace("\n", " ↵ ")
    piece = tokens["piece"][token]
    blank = piece[: len(piece) - len(piece.lstrip(" "))]
    return f"{'… ' if first else ''}{before.lstrip()}{blank}[{painted.visible(piece[len(blank) :])}]"
