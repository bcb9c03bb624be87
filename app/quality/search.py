"""Search for a setting: the smallest budget that loses less than the limit, over the chosen methods."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from analysis.commands.quality import Search
from app import cached
from app.quality.asked import Asked
from app.quality.curves import AXES
from app.quality.steps import Subject, nearest
from app.ui import jobs, plots, widgets
from app.ui.charts import line, safe
from app.ui.plots import against_dense

# Stretches of text, half choose and half report; tokens of each that are scored.
CUTS, AFTER = 32, 128
# Settings of a method; stretches that each reads in the mean, of the first two on.
STEPS, PASSES = 7, 2.5
# Further passes of a method that saves reads for each setting: its shares are looked for first.
SETTLING = 2
# Tokens of a stretch, of methods that save reads; stretches that a text should give, and those that it must.
FIRST, ENOUGH, FEWEST = 1024, 8, 4
# Such a stretch is not halved below it.
LEAST = 64
# Setting -> so many of it in a prompt: else all tie.
LEAST_OF = {"memory": ("window", 8), "prefill": ("block", 4)}


def request(subject: Subject, choices: Sequence[Asked], tokens: int) -> tuple[Search | None, str]:
    """The search for the prompts that the page shows, of a text of so many `tokens`; None where it or the prompt is too
    short, and then why. Methods that save reads have no prompt: their stretches have up to 1,024 tokens."""
    if subject.instead:
        return None, "A search keeps the model's own indexer: leave it in its place to search."
    able = [choice.free() for choice in choices if not choice.free().fixed and not choice.about["ceiling"]]
    if not able:
        return None, "A search needs a method whose share can be chosen: choose one."
    prefix = subject.size if subject.saves != "reads" else fitting(min(FIRST, subject.size), tokens)
    # What a method always keeps or reads is a part of the shortest prompt in which different methods differ; of methods
    # that save reads it is searched for.
    name, times = LEAST_OF.get(subject.saves, ("", 0))
    size, title = max((choice.settings.get(name, 0), choice.title) for choice in able)
    shortest = times * size
    same = f" In prompts of fewer than {times} {name}s of {title}, {size:,} tokens each, all methods read the same."
    why = same if shortest else ""
    stretch = max(prefix, shortest) + AFTER
    if tokens < FEWEST * stretch:
        other = ", or a shorter prompt" if prefix > shortest > 0 else ""
        needs = f"A search needs {FEWEST} stretches of {stretch:,} tokens and this text has {tokens:,} tokens"
        return None, f"{needs}: choose a longer text{other}.{why}"
    if prefix < shortest:
        return None, f"A search needs prompts of {shortest:,} tokens: choose a longer one.{why}"
    about = {"model": st.session_state["model"], "texts": [st.session_state["text"]], "saves": subject.saves}
    lose, methods = st.session_state["quality_lose"] / 100, [choice.spec for choice in able]
    sizes = {"prefix": prefix, "continuation": AFTER, "cuts": CUTS}
    return cached.request(Search, **about, **sizes, methods=methods, lose=lose, seed=0), ""


def button(asked: Search) -> None:
    """Starts a search that is not stored, at its price."""
    if cached.store().find(asked) is None:
        passes = PASSES + SETTLING * (asked.saves == "reads")
        work = int(len(asked.methods or ()) * STEPS * passes + CUTS) * ((asked.prefix or 0) + AFTER)
        jobs.run_button("Search for me", asked, "quality_search", work)


def result(asked: Search | None, lacking: str, moved: Callable[[str, int], None]) -> None:
    """What a search found and what it tried, or why there is none. `moved` brings a method and a share in front: that
    of the best setting, or of the nearest miss."""
    run = cached.store().find(asked) if asked else None
    if run is None:
        half = f"Each method is tried at {STEPS} shares. Half of the text chooses, the other half judges the winner."
        widgets.prose(lacking or half, "quiet")
        return
    widgets.prose(run.numbers["sentence"])
    widgets.notes(run)
    if found := run.numbers["chosen"] or run.numbers.get("nearest"):
        share = nearest(found["budget"])
        label = f"Show {cached.catalogue()[found['method']]['title']} at {share}%"
        look: dict[str, Any] = {"type": "tertiary", "icon": ":material/show_chart:", "key": "quality_search_show"}
        st.button(widgets.plain(label), on_click=moved, args=(found["method"], share), **look)
    rows, data = run.numbers["rows"], []
    for method in dict.fromkeys(row["method"] for row in rows):
        part = sorted((row for row in rows if row["method"] == method), key=lambda row: row["budget"])
        about = cached.catalogue()[method]
        colour = Asked(method, about, None, {}, {}, list(cached.saving(about["saves"])).index(method) - 1).colour
        x, y = [row["budget"] for row in part], [row["difference"] for row in part]
        labels = [f"{safe(row['label'])}, {row['stretches']} stretches" for row in part]
        hover = "%{text}<br>%{x:.0%}: %{y:+.1%}"
        symbols = ["circle" if row["left"] else "circle-open" for row in part]
        trace = line(safe(about["title"]), x, y, colour, "solid", "circle", hover, 1.5, text=labels)
        data.append(trace | {"marker": trace["marker"] | {"symbol": symbols}})
    figure = against_dense(
        data, AXES[run.numbers["saves"]][0], run.numbers["lose"], xaxis={"tickformat": ".0%", "rangemode": "tozero"}
    )
    plots.draw(figure, rows, "What was tried, on the half that chooses", "quality_searched", "quality against speed")
    st.caption("Hollow: dropped early. Dotted: the limit.")
    widgets.source(run)


def fitting(prefix: int, tokens: int) -> int:
    """Stretches of `prefix` tokens, halved until a text of so many gives enough of them, or they are short."""
    while prefix > LEAST and tokens < ENOUGH * (prefix + AFTER):
        prefix //= 2
    return prefix
