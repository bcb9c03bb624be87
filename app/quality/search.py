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


def section(saves: str, asked: Sequence[Asked], prefix: int) -> None:
    """The control, the button with its price, and what was found."""
    st.subheader("The smallest budget that is good enough", anchor=False, help=cached.glossary("interval"))
    look = {"format_func": "less than {}%".format, "required": True}
    st.segmented_control("Perplexity may rise by", LOSE, key="quality_lose", **look)
    args = request(saves, asked, prefix)
    work = int(len(asked) * STEPS * PASSES + CUTS) * (prefix + AFTER)
    jobs.run_button("Search for a setting", "search", args, "quality_search", work)
    run = cached.store().find("search", args)
    if run is None:
        widgets.prose(
            f"Every chosen method is tried at {STEPS} settings on a little of this text; the better half goes on to "
            "more of it. Half of the text chooses, the other half judges the winner. It goes on where it was stopped.",
            "more",
        )
        return
    numbers = run.numbers
    widgets.prose(numbers["sentence"])
    widgets.source(run)
    what = "KV cache held, share of dense" if saves == "memory" else "share of the prompt's blocks that is read"
    rows = numbers["rows"]
    widgets.chart(
        charts.searched(rows, numbers["frontier"], numbers["lose"], what),
        {name: [row[name] for row in rows] for name in ("label", "budget", "difference", "stretches", "left")},
        title="What was tried",
        key="quality_searched",
        alt="Change of perplexity against the budget of every setting that was tried, the frontier as a line",
        help=cached.glossary("quality against speed"),
    )
    st.caption("On the half of the text that chooses. Dotted: the loss that was allowed. Hollow: dropped early.")


def request(saves: str, asked: Sequence[Asked], prefix: int) -> dict:
    """The arguments of `search` for the methods that are chosen."""
    chosen = st.session_state
    args = {"model": chosen["model"], "texts": [chosen["text"]], "saves": saves, "prefix": prefix}
    args |= {"methods": [one.spec for one in asked], "lose": chosen["quality_lose"] / 100}
    return args | {"continuation": AFTER, "cuts": CUTS, "seed": 0}
