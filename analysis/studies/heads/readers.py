"""Who reads a token: for every head the later token that gives it most; and for one head, both ways for every token."""

from typing import Any

import numpy as np
import pandas as pd
import torch

from ...answer import Answer, Worded, doc, record
from ...commands.heads import HeadTokens, Readers
from ...errors import BadSetting
from ...statistics.both_ways import BothWays
from ...statistics.states import States
from ..context import Context, protocol, read
from ..text.states import head_window, query_blocks, states_of, window_of
from ..text.text import named, quoted, token_table
from .head import KERNEL, sink_notes


@record
class TokenReaders(Worded):
    """The heads that read one token from later ones."""

    token: int = doc("the token that is read")
    later: int = doc("tokens of its window that are far enough away to read it")
    chance: float | None = doc("mean share that these would give it if they read all keys alike")
    readers: pd.DataFrame = doc("per head its strongest reader and the share it gives, and the mean of all later ones")
    tokens: pd.DataFrame = doc("tokens of the text")


def readers(request: Readers, *, context: Context) -> TokenReaders:
    """Which heads read token `token` of a text from `min_distance` or more tokens later in its window, and where from:
    the `top` heads whose strongest reader gives it the largest share. Errors: BadSetting."""
    lm, token = context.model(request.model), request.token
    reading = read(context, lm, request.text, request.long_text)
    words = token_table(reading)
    if not 0 <= token < len(words):
        raise BadSetting(f"The text has tokens 0 to {len(words) - 1:,}, and token {token:,} was asked for.")
    part = int(words["window"].iloc[token])
    offset, ids = window_of(reading, part)
    key, first = token - offset, token - offset + request.min_distance
    later = max(0, len(ids) - first)
    rows = []
    for place, layer in enumerate(lm.layer_numbers if later else ()):
        context.progress(place / lm.num_layers, f"layer {layer}")
        states = states_of(context, lm, ids, layer)[layer]
        for head in range(lm.num_heads):
            shares = received(states, head, key, first)
            best = int(shares.argmax())
            rows.append((layer, head, offset + first + best, float(shares[best]), float(shares.mean())))
    table = pd.DataFrame(rows, columns=["layer", "head", "position", "attention", "mean"])
    chance = float((1 / np.arange(first + 1, len(ids) + 1)).mean()) if later else None
    often = int((table["mean"] > 2 * (chance or 0)).sum())
    listed = table.sort_values("attention", ascending=False, kind="stable", ignore_index=True).head(request.top)
    listed["named"] = [named(words, place) for place in listed["position"]]
    listed["distance"] = listed["position"] - token
    about = {"part": part, "token": token, "min_distance": request.min_distance, "window": len(ids), "kernel": KERNEL}
    return TokenReaders(
        token=token,
        later=later,
        chance=chance,
        notes=reading.notes,
        sentence=_sentence(listed, words, token, often),
        readers=listed,
        tokens=words,
        protocol=protocol("readers", lm, request.text, len(ids), **about),
    )


@torch.no_grad()
def received(states: States, head: int, key: int, first: int) -> np.ndarray:
    """float32 [T - first]: the share of attention that each query from `first` on gives to one `key` of a window."""
    shares = np.zeros(states.length, np.float32)
    for start, stop in query_blocks(states.length):
        if stop > first:
            start = max(start, first)
            shares[start:stop] = states.scores(head, start, stop).softmax(-1)[:, key].float().cpu()
    return shares[first:]


def _sentence(table: pd.DataFrame, words: pd.DataFrame, token: int, often: int) -> str:
    name = quoted(words["word"].iloc[token])
    if table.empty:
        return f"No later token of its window is far enough away to read {name}."
    best = table.iloc[0]
    back, reader = int(best["distance"]), quoted(words["word"].iloc[best["position"]])
    return (
        f"Head {best['layer']}.{best['head']} reads {name} most: {reader}, {back:,} "
        f"token{'s' * (back != 1)} later, gives it {best['attention']:.0%} of its attention. Of the heads, {often:,} "
        "read it more than twice as often as by chance."
    )


@record
class HeadBothWays(Answer):
    """What every token of a window reads through one head, and what reads it. Arrays: see `BothWays`."""

    offset: int = doc("first token of the window in the text")
    length: int = doc("tokens of the window")
    notes: list[str] = doc("what to bear in mind")
    strongest: pd.DataFrame = doc("per token its strongest key and reader, as tokens of the text, and their shares")
    keys: np.ndarray = doc("places in the window of the keys that each token reads most")
    given: np.ndarray = doc("the shares that it gives them")
    readers: np.ndarray = doc("places of the later tokens that read it most")
    received: np.ndarray = doc("the shares that they give it")


@torch.no_grad()
def head_tokens(request: HeadTokens, *, context: Context) -> HeadBothWays:
    """The `top` keys that every token of window `part` reads most through one head, and its `top` strongest later
    readers. `without_first` leaves the window's first token out and renormalises. Errors: BadSetting."""
    window = head_window(request, context)
    length, states = len(window.ids), window.states
    context.progress(0.5, f"layer {request.layer}, head {request.head}")
    both_ways = BothWays(length, request.top)
    for start, stop in query_blocks(length):
        scores = states.scores(request.head, start, stop).cpu()
        if request.without_first:
            scores[:, 0] = float("-inf")
        both_ways.add(scores.softmax(-1).nan_to_num_(0.0), start)
    arrays = both_ways.arrays()
    table = window.words.iloc[window.offset : window.offset + length][["position", "piece"]].reset_index(drop=True)
    for name, share in (("key", "given"), ("reader", "received")):
        table[share] = arrays[share][:, 0]
        table[name] = np.where(table[share] > 0, window.offset + arrays[f"{name}s"][:, 0], -1)
    about: dict[str, Any] = {"layer": request.layer, "head": request.head, "part": request.part, "window": length}
    about |= {"without_first": request.without_first, "kernel": KERNEL}
    return HeadBothWays(
        offset=window.offset,
        length=length,
        notes=[*window.reading.notes, *sink_notes(request.without_first)],
        strongest=table,
        **arrays,
        protocol=protocol("head-tokens", window.lm, request.text, length, **about),
    )
