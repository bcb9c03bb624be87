"""How much of the text the quality tab reads: one word of the URL."""

import streamlit as st

from app import cached
from app.selection import state
from app.ui import widgets

FIRST = 1024  # tokens read of a long text when nothing was chosen: a pass of the bundled model takes a second
SHORT = 2048  # a text of so many tokens is read whole when nothing was chosen
SIZES = tuple(1 << power for power in range(7, 18))


def what_is_read(tokens: int, longest: int) -> dict:
    """The choice of what is read, as arguments of `evaluate`; `tokens` in the text, `longest` in a context."""
    fits = [size for size in SIZES if size <= min(tokens, longest)]
    spelled = {f"{size}": f"the first {size:,} tokens" for size in fits}
    spelled["all"] = f"the whole text, {tokens:,} tokens"
    spelled |= {f"{size}w": f"the whole text in windows of {size:,}" for size in fits if 2 * size <= tokens}
    default = f"{FIRST}" if SHORT < tokens and FIRST in fits else "all"
    if st.session_state["quality_read"] in {f"{size}{kind}" for size in SIZES for kind in ("", "w")} - set(spelled):
        state.choose(st.session_state, quality_read=default)  # it was right for another text
    widgets.settled("quality_read", list(spelled), default)
    help = cached.glossary("window (context)")
    st.selectbox("Read", list(spelled), format_func=spelled.get, key="quality_read", width=290, help=help)
    return reading_of(st.session_state["quality_read"])


def reading_of(choice: str) -> dict:
    """`1024` the first window of 1,024 tokens, `1024w` all of them, `all` the fewest windows of equal length."""
    if choice == "all":
        return {"window": None, "long_text": "windows"}
    return {"window": int(choice.rstrip("w")), "long_text": "windows" if choice.endswith("w") else "first"}


def window_of(reading: dict, tokens: int, longest: int) -> int:
    """How many tokens a window of the reading has, as `evaluate` cuts a text."""
    return min(reading["window"], tokens) if reading["window"] else tokens // -(-tokens // longest)


def tokens_read(reading: dict, tokens: int) -> int:
    """How many of the text's `tokens` are read, which is what it costs."""
    return min(reading["window"], tokens) if reading["long_text"] == "first" else tokens
