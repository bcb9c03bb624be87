"""The keys that an answer under a budget missed, each in its context, of which one is put back."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.ui import fields, painted
from app.ui.reading import rows_of

# Tokens of context before and after a key.
AROUND = 2


def put_back(run: Run, prompt: dict) -> None:
    """A box to let one of the keys stay that dense attention misses most in the last method's answer."""
    chosen, rows = st.session_state, run.numbers["rows"]
    side = len(rows) - 1 - (run.request.get("put_back") is not None)
    pieces = prompt["piece"] + rows_of(cached.columns(run, "answers"), side=side)["piece"]
    missed = [row for row in run.numbers["missed"] if row["side"] == side]
    listed = {f"{row['layer']}.{row['head']}.{row['position']}": row for row in missed}

    def told(word: str) -> str:
        layer, head, place = word.split(".")
        weight = f" · {listed[word]['attention']:.2f}" if word in listed else ""
        return f"{context(pieces, int(place), AROUND)} · head {layer}.{head}{weight}"

    help = (
        "Keys of one head that had left, with the attention that dense attention gives them until the answers part. It "
        "takes the place of another key."
    )
    now, look = chosen["generate_back"], {"format_func": told, "placeholder": "a key that was missed"}
    words = list(dict.fromkeys([*listed, *filter(None, [now])]))
    fields.pick(st.selectbox, "Put one key back", words, "generate_back", now, index=None, help=help, **look)


def context(pieces: list[str], place: int, around: int) -> str:
    """A token in brackets with so many tokens before and after it; one that the text has not is named by its place."""
    if place >= len(pieces):
        return f"token {place:,}"
    before = "".join(pieces[max(0, place - around) : place])
    after = "".join(pieces[place + 1 : place + 1 + around])
    return f"{before}[{painted.visible(pieces[place])}]{after}".replace("\n", " ↵ ")
