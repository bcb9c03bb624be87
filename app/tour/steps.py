"""The five stops of the tour: each is the address of a screen and one sentence; another text is another STORY."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st

from analysis.commands.budgets import ReadsText
from analysis.commands.heads import Head
from analysis.commands.temperature import Temperature
from analysis.commands.text import Start
from analysis.declaration import in_address
from analysis.declaration.command import Command
from analysis.runs import Run
from app import cached
from app.budgets.budget_words import share, signed
from app.selection import state
from app.selection.look import TOUR_STEPS
from app.selection.sparsify import READ_SHARES, SOFTMAX
from app.ui import asking, foot, widgets
from app.ui.painted import part

_ASIDE = part("aside", "<span hidden></span>")


@dataclass(frozen=True)
class Story:
    """The text of the tour. `sample`: which bundled one; `query`, `key`: tokens of a far pair in its first window, one
    of those that Links lists; `finder`: the (layer, head) that finds it; `spreader`: the (layer, head, query) of one
    that reads many words near by; `t`: the temperature that sharpens it; `share`: of the causal pairs that is left to
    read."""

    sample: int
    query: int
    key: int
    finder: tuple[int, int]
    spreader: tuple[int, int, int]
    t: float = 0.5
    share: float = 0.1

    def request(self, step: str, text: str) -> Command:
        """The stored example that a stop speaks of, for the hash of the text."""
        common: dict[str, Any] = {"model": "demo", "text": text, "long_text": "windows"}
        if step == "token":
            return Start(router="k8-top1", **common)
        if step in ("head", "pair"):
            layer, head = self.finder
            return Head(layer=layer, head=head, without_first=False, part=0, query=self.query, **common)
        if step == "sharpen":
            layer, head, query = self.spreader
            return Temperature(layer=layer, head=head, t=list(SOFTMAX), part=0, query=query, **common)
        return ReadsText(policy="policy", shares=list(READ_SHARES), window=None, seed=0, **common)

    def leads_to(self, step: str) -> tuple[str, dict]:
        """(page, controls in its URL) of a stop."""
        layer, head = self.finder
        match step:
            case "token":
                return "text", {}
            case "head":
                return "map", {"query": self.query, "layer": layer, "head": head}
            case "pair":
                return "links", {"pair": state.pair_key(layer, head, self.query, self.key)}
            case "sharpen":
                layer, head, query = self.spreader
                return "temperature", {"query": query, "layer": layer, "head": head, "softmax": self.t}
            case _:
                return "budgets", {"budgets": "reads", "budget_reads": self.share}


STORY = Story(sample=0, query=1805, key=1028, finder=(5, 1), spreader=(2, 7, 1750))


def stop(step: str) -> tuple[str, dict[str, str]]:
    """(page, parameters of its URL) of a stop, on the text of the tour."""
    page, controls = STORY.leads_to(step)
    text = cached.samples()[STORY.sample][0]
    return page, {name: in_address(value) for name, value in {"text": text, "step": step, **controls}.items()}


def strip() -> None:
    """On top of a screen while the tour is on: its sentence, and the ways back, on and out."""
    step, names = st.session_state["step"], list(TOUR_STEPS)
    if step is None:
        return
    place = names.index(step)
    run = asking.ask(STORY.request(step, cached.samples()[STORY.sample][0]), "Reading the text of the tour")
    with st.container(key="tour", horizontal=True, vertical_alignment="center", gap="small"):
        widgets.prose(f"{place + 1} of {len(names)} · {SAID[step](run, cached.columns(run, 'tokens'))}", "said")
        if place:
            foot.link(*_way("Back", names[place - 1]), icon="arrow_back")
        if step != names[-1]:
            foot.link(*_way("Next", names[place + 1]))
        st.button("End", key="tour_end", type="tertiary", on_click=partial(state.choose, st.session_state, step=None))
        _ASIDE(key="tour_aside", data={"step": step}, width="content", height="content")


def _way(label: str, step: str) -> tuple[str, str, dict[str, str]]:
    page, controls = stop(step)
    return page, label, controls


def token(run: Run, tokens: dict) -> str:
    """The text as the model sees it."""
    return (
        f"The model reads {len(tokens['piece']):,} tokens; the stronger the colour, the more a token is read again "
        f"from {run.numbers['min_distance']:,} or more tokens later. Touch one."
    )


def head(run: Run, tokens: dict) -> str:
    """What one head reads from one token."""
    numbers, query, row = run.numbers, run.numbers["query"], cached.array(run, "row")
    best = max(range(query + 1), key=lambda key: row[key])
    return (
        f"At “{tokens['word'][query]}”, head {numbers['layer']}.{numbers['head']} puts "
        f"{share(round(float(row[best]), 2))} of its attention on a single token {query - best:,} tokens back. Try "
        "another head of the map."
    )


def pair(run: Run, tokens: dict) -> str:
    """Why it reads there: what followed the same token the last time, where that is so."""
    query, key = STORY.query, STORY.key
    words, pieces = ([tokens[name][place].strip() for place in (query, key)] for name in ("word", "piece"))
    # Inside one word only its pieces tell what is read.
    word, read = words if words[0] != words[1] else pieces
    return found(word, read, tokens["piece"][key - 1].strip() == pieces[0], query - key)


def found(word: str, read: str, follows: bool, distance: int) -> str:
    """What the head finds, in a sentence; `follows`: whether `read` stood behind the `word` before."""
    if follows:
        return (
            f"There it finds “{read}”, which followed “{word}” the last time, {distance:,} tokens earlier: the head "
            "looks up how the name goes on."
        )
    return f"There it finds “{read}”: two places {distance:,} tokens apart, joined by one head."


def sharpen(run: Run, tokens: dict) -> str:
    """What a lower softmax temperature does to another head."""
    numbers = run.numbers
    places = [numbers["t"].index(t) for t in (1.0, STORY.t)]
    before, after = (numbers["reads"][row]["effective_support"] for row in places)
    return (
        f"Head {numbers['layer']}.{numbers['head']} spreads its attention as if over {before:.0f} tokens; a softmax "
        f"temperature of {STORY.t:g} sharpens that to {after:.0f}. Move the slider."
    )


def cut(run: Run, tokens: dict) -> str:
    """What reading a small share of the pairs costs."""
    row = next(row for row in run.numbers["rows"] if row["share"] == STORY.share)
    return (
        f"If all heads together read only the best {share(row['share'])} of the pairs, perplexity changes by "
        f"{signed(row['difference'])} on average, and by {signed(row['worst_bin_difference'])} where it hurts most. "
        "Move the slider."
    )


SAID: dict[str, Callable[[Run, dict], str]] = {
    "token": token,
    "head": head,
    "pair": pair,
    "sharpen": sharpen,
    "cut": cut,
}
