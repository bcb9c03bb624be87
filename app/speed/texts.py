"""What dense and sparse inference wrote, side by side, with the first difference marked."""

import os
import re

import streamlit as st

from analysis.runs import Run
from app import cached
from app.ui import painted, widgets

BEFORE = 160  # characters of the prompt's end that are shown


def texts(run: Run) -> None:
    """Both new texts after the end of the prompt; new words are shaded and the first one that differs stands out."""
    numbers = run.numbers
    st.subheader("What both wrote", anchor=False, help=cached.glossary("first difference"))
    difference, new = numbers["first_difference"], numbers["new_tokens"]
    sentence = (
        "All {1:,} new tokens are the same." if difference is None else "They differ from new token {0:,} of {1:,} on."
    )
    widgets.prose(
        sentence.format(difference is None or difference + 1, new) + " Greedy decoding; the shaded words are new.",
        "more",
    )
    panels = [
        {"role": "query", "title": side, "note": note, "cut_before": True, "cut_after": False, "same": []}
        | pieces(numbers["prompt_end"], numbers[f"text_{side}"], numbers[f"text_{compared}"])
        for side, compared, note in (
            ("dense", "sparse", "reads every earlier token"),
            ("sparse", "dense", "reads its groups and the window"),
        )
    ]
    painted.beside(panels, key="speed_texts", identity=run.id + run.created)


def pieces(prompt: str, text: str, compared: str) -> dict:
    """The end of the prompt and the new text, cut around the first word in which it differs from the other text (or
    the blanks before it, where these differ)."""
    begin = prompt[-BEFORE:].split(" ", 1)[-1] if len(prompt) > BEFORE else prompt
    common = len(os.path.commonprefix([text, compared]))
    if common == len(text):
        return {"pieces": [begin, text], "word": [1, 2], "hit": -1}
    start = common - len(re.search(r"\s*\S*$", text[:common])[0])
    blank, otherwise = (re.match(r"\s*", words[start:])[0] for words in (text, compared))
    end = start + len(blank if blank and blank != otherwise else re.match(r"\s*\S*", text[start:])[0])
    return {"pieces": [begin, text[:start], text[start:end], text[end:]], "word": [1, 4], "hit": 2}
