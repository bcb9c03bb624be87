"""The film of an answer under a budget: a step to look at, and the keys that were missed, of which one is put back."""

from typing import Any

import streamlit as st

from analysis.runs import Run
from app import cached
from app.generate.answers import stated
from app.selection import state
from app.ui import painted, widgets
from app.ui.reading import rows_of

# Tokens of context before and after a key.
AROUND = 2


def scrubber(count: int) -> None:
    """The step of the answer that is painted, the last one unless another was chosen."""
    chosen = st.session_state
    widgets.settled("generate_at", [None, *range(1, count + 1)], None)
    chosen["generate_at_pick"] = chosen["generate_at"] or count

    def moved() -> None:
        state.choose(chosen, generate_at=chosen["generate_at_pick"])

    st.slider("New token: what the KV cache still holds", 1, max(2, count), key="generate_at_pick", on_change=moved)


def put_back(run: Run, prompt: dict) -> None:
    """A box to let one of the keys stay that dense attention misses most in the last method's answer."""
    chosen, rows = st.session_state, run.numbers["rows"]
    side = len(rows) - 1 - (run.request.get("put_back") is not None)
    pieces = prompt["piece"] + rows_of(cached.columns(run, "answers"), side=side)["piece"]
    missed = [row for row in run.numbers["missed"] if row["side"] == side]
    listed = {f"{row['layer']}.{row['head']}.{row['position']}": row for row in missed}
    chosen["generate_back_pick"] = chosen["generate_back"]

    def picked() -> None:
        state.choose(chosen, generate_back=chosen["generate_back_pick"])

    def told(word: str) -> str:
        layer, head, place = word.split(".")
        weight = f" · {listed[word]['attention']:.2f}" if word in listed else ""
        return f"{_context(pieces, int(place))} · head {layer}.{head}{weight}"

    help = (
        "Keys of one head that had left, with the attention that dense attention gives them until the answers part. It "
        "takes the place of another key."
    )
    look: dict[str, Any] = {"format_func": told, "on_change": picked, "placeholder": "a key that was missed"}
    words = list(dict.fromkeys([*listed, *filter(None, [chosen["generate_back"]])]))
    st.selectbox("Put one key back", words, index=None, key="generate_back_pick", help=help, **look)


def recovered(run: Run, prompt: str) -> str:
    """Whether a key that was put back mends the answer; nothing where none was, or nothing was to mend."""
    answer = stated(prompt, run.request["question"])
    if run.request.get("put_back") is None or answer is None:
        return ""
    dense, *_, without, back = (" ".join(row["text"].split()).startswith(answer) for row in run.numbers["rows"])
    if not dense or without:
        return ""
    return f"One key put back, and the answer is {f'right again: “{answer}”' if back else 'still wrong'}"


def _context(pieces: list[str], place: int) -> str:
    if place >= len(pieces):
        return f"token {place:,}"
    before = "".join(pieces[max(0, place - AROUND) : place])
    after = "".join(pieces[place + 1 : place + 1 + AROUND])
    return f"{before}[{painted.visible(pieces[place])}]{after}".replace("\n", " ↵ ")
