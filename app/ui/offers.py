"""What is offered where something costs more than it should: the same with less to do, each with its own price."""

import html
import math
from dataclasses import dataclass, field

import streamlit as st
from streamlit.runtime.scriptrunner_utils.exceptions import StopException

from analysis.runs.price import Price, free_memory, spell
from app.selection import state

SHORTEST = 256  # tokens of a text that is offered in part
PART = 4  # a text is offered to its first quarter


class Waiting(StopException):
    """This part of the page has nothing to show until its Run button is pressed."""


@dataclass(frozen=True)
class Scope:
    """Less to do: what in words, the controls to set, and the share of the work that is left (None: unknown). `part`:
    the share of the text that is kept, as a text of its own."""

    words: str
    controls: dict = field(default_factory=dict)
    share: float | None = None
    part: float | None = None


def smaller(verb: str, args: dict, tokens: int, most: int | None) -> list[Scope]:
    """The smaller scopes of a request; `tokens` in its text, of which the model reads `most` at once (None: unknown).
    A control is offered only where the request has its value, so that setting it changes this very request."""
    chosen, found = st.session_state, []
    if verb == "probe" and len(args["probes"]) == 1:
        found = _probe(args, chosen)
    elif verb == "train-router" and args["steps"] > 40:
        fewer = args["steps"] // 4
        found = [Scope(f"{fewer:,} steps", {"train_steps": fewer}, 0.25)]
    elif verb == "bench" and args.get("lengths"):
        found = _bench(args["lengths"])
    elif verb == "calibrate":
        fewer = max(args["tokens"] // 4, 1024)
        if fewer < args["tokens"]:
            found = [Scope(f"{fewer:,} tokens", {"budget_tokens": fewer}, fewer / args["tokens"])]
        if args["caps"]:
            found.append(Scope("no sweep of caps", {"budget_sweep": False}, 1 / (1 + len(args["caps"]))))
    elif verb == "cap-sweep" and len(args["caps"]) > 1:
        fewer = args["caps"][: len(args["caps"]) // 2]
        share = (1 + len(fewer)) / (1 + len(args["caps"]))
        found = [Scope(f"{len(fewer)} caps", {"budget_caps": ", ".join(map(str, fewer))}, share)]
    elif verb == "route" and args["mlp"]:
        found = [Scope("without the MLP router", {"route_mlp": False})]
    if verb in ("bench", "launch") and chosen["tab"] == "speed" and args["repeats"] == chosen["speed_rounds"] > 2:
        found.append(Scope("2 rounds", {"speed_rounds": 2}, 6 / (4 + args["repeats"])))
    return found + _of_text(args, tokens, most)


def _probe(args: dict, chosen) -> list[Scope]:
    found = []
    if args["items"] > 4:
        found.append(Scope("4 questions in a cell", {"probe_items": 4}, 4 / args["items"]))
    if args["methods"]:
        found.append(Scope("dense attention only", {"probe_methods": "none"}, 1 / (1 + len(args["methods"]))))
    if chosen["probe_reach"] and chosen["probe_reach"] > 256:
        half = chosen["probe_reach"] // 2
        found.append(Scope(f"prompts up to {half:,} tokens", {"probe_reach": half}, 0.5))
    return found


def _bench(lengths: list[int]) -> list[Scope]:
    fewer = sorted(lengths)[:-1]
    if not fewer:
        return []
    share = sum(length**2 for length in fewer) / sum(length**2 for length in lengths)
    return [Scope(f"up to {fewer[-1]:,} tokens", {"speed_lengths": ", ".join(map(str, fewer))}, share)]


def _of_text(args: dict, tokens: int, most: int | None) -> list[Scope]:
    if args.get("text") != st.session_state["text"] or not args.get("text"):
        return []
    found = []
    if most and tokens > most and args.get("long_text") == st.session_state["long_text"] == "windows":
        found.append(Scope("the first window only", {"long_text": "first"}, most / tokens))
    if tokens >= SHORTEST:
        found.append(Scope("the first quarter of the text", share=1 / PART, part=1 / PART))
    return found


def offer(scopes: list[Scope], price: Price, key: str, store) -> None:
    """A button for each smaller scope, with its price; `key` begins their keys, `store` takes a shorter text."""
    if not scopes:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption("Smaller:")
        for place, scope in enumerate(scopes):
            about = "" if scope.share is None else f", about {spell(price.seconds * scope.share)}"
            st.button(
                f"{scope.words}{about}", key=f"{key}_smaller_{place}", type="tertiary", icon=":material/compress:",
                on_click=_take, args=(scope, store),
            )  # fmt: skip


def _take(scope: Scope, store) -> None:
    chosen = dict(scope.controls)
    if scope.part is not None:
        name, text = store.text(st.session_state["text"])
        kept = store.put_text(text[: math.ceil(len(text) * scope.part)], f"{name} (first quarter)")
        chosen |= {"text": kept, "pair": None, "quality_token": None, "query": None, "tile": None}
    state.choose(st.session_state, **chosen)


def ask_first(doing: str, price: Price, scopes: list[Scope], key: str, store, on_cpu: bool) -> None:
    """Before a request that takes long or much memory: its Run button, the price and smaller scopes. Returns when the
    button was pressed, and else raises Waiting."""
    over = price.over(free_memory() if on_cpu else None)
    if not price.slow and over is None:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        pressed = st.button("Run", key=f"run_{key}", type="primary", icon=":material/play_arrow:", help=doing)
        said = f"{doing}. {price.sentence}." + (f" {over}." if over else "")
        st.html(f'<p class="fs-quiet">{html.escape(said)}</p>')
    offer(scopes, price, f"run_{key}", store)
    if not pressed:
        raise Waiting
