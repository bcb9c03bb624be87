"""Search for a setting: the smallest budget that loses less than a given share, over the chosen methods."""

from collections.abc import Sequence

import streamlit as st

from analysis.commands.quality import Search
from app import cached
from app.quality import quality_charts
from app.quality.asked import Asked
from app.selection.decide import MAY_LOSE
from app.ui import jobs, plots, widgets

# Stretches of text, half choose and half report; tokens of each that are scored.
CUTS, AFTER = 32, 128
# Settings of a method; stretches that each reads in the mean, of the first two on.
STEPS, PASSES = 7, 2.5
# Further passes of a method that saves reads for each setting: its shares are looked for first.
SETTLING = 2
# Tokens of a stretch; stretches that a text should give, and those that it must.
FIRST, ENOUGH, FEWEST = 1024, 8, 4
# Tokens of a stretch before those that are scored anyway, of methods that save reads.
LEAST = 64
# Setting -> so many of it in a prompt: else all tie.
LEAST_OF = {"memory": ("window", 8), "prefill": ("block", 4)}
WHAT = {
    "reads": "share of the causal pairs that is read",
    "memory": "KV cache held, share of dense",
    "prefill": "share of the prompt's blocks that is read",
}


def section(saves: str, choices: Sequence[Asked], prefix: int, tokens: int, context: int) -> None:
    """The control, the button with its price, and what was found, for the page's prompts of `prefix` tokens. Methods
    that save reads have none: their stretches have 1,024 tokens, fewer where the text has few `tokens` or the model
    reads few at once."""
    if saves == "reads":
        choices = [choice for choice in choices if choice.about["budget"] and not choice.about["ceiling"]]
    if not choices:
        return
    prefix = prefix or fitting(min(FIRST, context - AFTER), tokens)
    st.subheader("The smallest budget that is good enough", anchor=False, help=cached.glossary("interval"))
    if lacking := _lacking(saves, choices, prefix, tokens):
        widgets.prose(lacking, "quiet")
        return
    look = {"format_func": "less than {}%".format, "required": True}
    st.segmented_control("Perplexity may rise by", MAY_LOSE, key="quality_lose", **look)
    request = _request(saves, choices, prefix)
    passes = PASSES + SETTLING * (saves == "reads")
    work = int(len(choices) * STEPS * passes + CUTS) * (prefix + AFTER)
    jobs.run_button("Search for a setting", request, "quality_search", work)
    run = cached.store().find(request)
    if run is None:
        widgets.prose(
            f"Every chosen method is tried at {STEPS} settings on stretches of {prefix + AFTER:,} tokens. Half of the "
            "text chooses, the other half judges the winner. It goes on where it was stopped.",
            "more",
        )
        return
    numbers = run.numbers
    widgets.prose(numbers["sentence"])
    widgets.source(run)
    figure = quality_charts.searched(numbers["rows"], numbers["frontier"], numbers["lose"], WHAT[saves])
    plots.draw(figure, numbers["rows"], "What was tried", "quality_searched", "quality against speed")
    st.caption("On the half of the text that chooses. Dotted: the loss that was allowed. Hollow: dropped early.")


def _lacking(saves: str, choices: Sequence[Asked], prefix: int, tokens: int) -> str:
    """Why the text or the prompt is too short for a search, or nothing. What a method always keeps or reads is a part
    of the shortest prompt in which different methods differ; of methods that save reads it is searched for."""
    name, times = LEAST_OF.get(saves, ("", 0))
    size, title = max((choice.settings.get(name, 0), choice.title) for choice in choices)
    shortest = times * size
    differ = f"all methods read the same in prompts of fewer than {times} {name}s of {title}, {size:,} tokens each"
    why = f" But {differ}." if shortest else ""
    stretch = max(prefix, shortest) + AFTER
    if tokens < FEWEST * stretch:
        other = ", or a shorter prompt above" if prefix > shortest > 0 else ""
        needs = f"A search needs {FEWEST} stretches of {stretch:,} tokens and this text has {tokens:,} tokens"
        return f"{needs}: choose a longer text{other}.{why}"
    return f"A search needs prompts of {shortest:,} tokens: choose a longer one above.{why}" * (prefix < shortest)


def fitting(prefix: int, tokens: int) -> int:
    """Stretches of `prefix` tokens, halved until a text of so many gives enough of them, or they are short."""
    while prefix > LEAST and tokens < ENOUGH * (prefix + AFTER):
        prefix //= 2
    return prefix


def _request(saves: str, choices: Sequence[Asked], prefix: int) -> Search:
    chosen = st.session_state
    about = {"model": chosen["model"], "texts": [chosen["text"]], "methods": [choice.spec for choice in choices]}
    lose = chosen["quality_lose"] / 100
    return Search(**about, saves=saves, prefix=prefix, lose=lose, continuation=AFTER, cuts=CUTS, seed=0)
