"""Search for a setting: the smallest budget that loses less than a given share, over the chosen methods."""

from collections.abc import Sequence

import streamlit as st

from app import cached
from app.quality import charts
from app.quality.controls import LOSE
from app.quality.words import Asked
from app.ui import jobs, widgets

CUTS, AFTER = 32, 128  # stretches of text, half choose and half report; tokens of each that are scored
STEPS, PASSES = 7, 2.5  # settings of a method; stretches that each reads in the mean, of the first two on
SETTLING = 2  # further passes of a method that saves reads for each setting: its shares are looked for first
FIRST, ENOUGH, FEWEST = 1024, 8, 4  # tokens of a prompt; stretches that a text should give, and those that it must
LEAST = {"reads": 64, "memory": 128, "prefill": 512}  # tokens of a prompt: beside a window, or some blocks of 128
WHAT = {
    "reads": "share of the causal pairs that is read",
    "memory": "KV cache held, share of dense",
    "prefill": "share of the prompt's blocks that is read",
}


def section(saves: str, asked: Sequence[Asked], prefix: int, tokens: int, context: int) -> None:
    """The control, the button with its price, and what was found, for prompts of `prefix` or 1,024 tokens, fewer where
    the text has few `tokens` or the model reads few at once."""
    asked = [one for one in asked if saves != "reads" or (one.about["budget"] and not one.about["ceiling"])]
    if not asked:
        return
    prefix = fitting(saves, max(prefix, min(FIRST, context - AFTER)), tokens)
    st.subheader("The smallest budget that is good enough", anchor=False, help=cached.glossary("interval"))
    if tokens < FEWEST * (prefix + AFTER):
        widgets.prose(
            f"A search needs {FEWEST} stretches of {prefix + AFTER:,} tokens and this text has {tokens:,} tokens: "
            "choose a longer text.",
            "quiet",
        )
        return
    look = {"format_func": "less than {}%".format, "required": True}
    st.segmented_control("Perplexity may rise by", LOSE, key="quality_lose", **look)
    args = request(saves, asked, prefix)
    passes = PASSES + SETTLING * (saves == "reads")
    work = int(len(asked) * STEPS * passes + CUTS) * (prefix + AFTER)
    jobs.run_button("Search for a setting", "search", args, "quality_search", work)
    run = cached.store().find("search", args)
    if run is None:
        widgets.prose(
            f"Every chosen method is tried at {STEPS} settings on a little of this text; the better half goes on to "
            f"more of it, in stretches of {prefix + AFTER:,} tokens. Half of the text chooses, the other half judges "
            "the winner. It goes on where it was stopped.",
            "more",
        )
        return
    numbers = run.numbers
    widgets.prose(numbers["sentence"])
    widgets.source(run)
    rows = numbers["rows"]
    widgets.chart(
        charts.searched(rows, numbers["frontier"], numbers["lose"], WHAT[saves]),
        {name: [row[name] for row in rows] for name in ("label", "budget", "difference", "stretches", "left")},
        title="What was tried",
        key="quality_searched",
        alt="Change of perplexity against the budget of every setting that was tried, the frontier as a line",
        help=cached.glossary("quality against speed"),
    )
    st.caption("On the half of the text that chooses. Dotted: the loss that was allowed. Hollow: dropped early.")


def fitting(saves: str, prefix: int, tokens: int) -> int:
    """A prompt of `prefix` tokens, halved until a text of so many gives enough stretches, or it is as short as these
    methods can be told apart by."""
    while prefix > LEAST[saves] and tokens < ENOUGH * (prefix + AFTER):
        prefix //= 2
    return prefix


def request(saves: str, asked: Sequence[Asked], prefix: int) -> dict:
    """The arguments of `search` for the methods that are chosen."""
    chosen = st.session_state
    args = {"model": chosen["model"], "texts": [chosen["text"]], "saves": saves, "prefix": prefix}
    args |= {"methods": [one.spec for one in asked], "lose": chosen["quality_lose"] / 100}
    return args | {"continuation": AFTER, "cuts": CUTS, "seed": 0}
