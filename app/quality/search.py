"""Search for a setting: the smallest budget that loses less than a given share, over the chosen methods."""

from collections.abc import Sequence

import streamlit as st

from app import cached
from app.quality import charts
from app.quality.words import Asked
from app.selection.decide import MAY_LOSE
from app.ui import jobs, widgets

CUTS, AFTER = 32, 128  # stretches of text, half choose and half report; tokens of each that are scored
STEPS, PASSES = 7, 2.5  # settings of a method; stretches that each reads in the mean, of the first two on
SETTLING = 2  # further passes of a method that saves reads for each setting: its shares are looked for first
FIRST, ENOUGH, FEWEST = 1024, 8, 4  # tokens of a stretch; stretches that a text should give, and those that it must
LEAST = 64  # tokens of a stretch before those that are scored anyway, of methods that save reads
LEAST_OF = {"memory": ("window", 8), "prefill": ("block", 4)}  # setting -> so many of it in a prompt: else all tie
WHAT = {
    "reads": "share of the causal pairs that is read",
    "memory": "KV cache held, share of dense",
    "prefill": "share of the prompt's blocks that is read",
}


def section(saves: str, choices: Sequence[Asked], prefix: int, tokens: int, context: int) -> None:
    """The control, the button with its price, and what was found, for the page's prompts of `prefix` tokens. Methods
    that save reads have none: their stretches have 1,024 tokens, fewer where the text has few `tokens` or the model
    reads few at once."""
    choices = [
        choice for choice in choices if saves != "reads" or (choice.about["budget"] and not choice.about["ceiling"])
    ]
    if not choices:
        return
    prefix = prefix or fitting(min(FIRST, context - AFTER), tokens)
    st.subheader("The smallest budget that is good enough", anchor=False, help=cached.glossary("interval"))
    shortest_prompt, why = shortest(saves, choices)
    stretch = max(prefix, shortest_prompt) + AFTER
    if tokens < FEWEST * stretch:
        widgets.prose(
            f"A search needs {FEWEST} stretches of {stretch:,} tokens and this text has {tokens:,} tokens: choose a "
            f"longer text{', or a shorter prompt above' * (prefix > shortest_prompt > 0)}.{why}",
            "quiet",
        )
        return
    if prefix < shortest_prompt:
        widgets.prose(f"A search needs prompts of {shortest_prompt:,} tokens: choose a longer one above.{why}", "quiet")
        return
    look = {"format_func": "less than {}%".format, "required": True}
    st.segmented_control("Perplexity may rise by", MAY_LOSE, key="quality_lose", **look)
    args = request(saves, choices, prefix)
    passes = PASSES + SETTLING * (saves == "reads")
    work = int(len(choices) * STEPS * passes + CUTS) * (prefix + AFTER)
    jobs.run_button("Search for a setting", "search", args, "quality_search", work)
    run = cached.store().find("search", args)
    if run is None:
        widgets.prose(
            f"Every chosen method is tried at {STEPS} settings on a little of this text; the better half goes on to "
            f"more of it, in {_stretches(saves, prefix)}. Half of the text chooses, the other half judges "
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


def shortest(saves: str, choices: Sequence[Asked]) -> tuple[int, str]:
    """(tokens of the shortest prompt in which these methods differ, why): what they always keep or read is a part of
    it. Of methods that save reads it is what is searched for."""
    name, times = LEAST_OF.get(saves, ("", 0))
    size, title = max((choice.settings.get(name, 0), choice.about["title"]) for choice in choices)
    tokens = times * size
    why = (
        f" In prompts of fewer than {times} {name}s of {title}, {size:,} tokens each, different methods read the same."
    )
    return tokens, why if tokens else ""


def _stretches(saves: str, prefix: int) -> str:
    sentence = f"stretches of {prefix + AFTER:,} tokens"
    return sentence if saves == "reads" else f"{sentence}, the prompt of {prefix:,} chosen above and {AFTER} after it"


def fitting(prefix: int, tokens: int) -> int:
    """Stretches of `prefix` tokens, halved until a text of so many gives enough of them, or they are short."""
    while prefix > LEAST and tokens < ENOUGH * (prefix + AFTER):
        prefix //= 2
    return prefix


def request(saves: str, choices: Sequence[Asked], prefix: int) -> dict:
    """The arguments of `search` for the methods that are chosen."""
    chosen = st.session_state
    args = {"model": chosen["model"], "texts": [chosen["text"]], "saves": saves, "prefix": prefix}
    args |= {"methods": [choice.spec for choice in choices], "lose": chosen["quality_lose"] / 100}
    return args | {"continuation": AFTER, "cuts": CUTS, "seed": 0}
