"""One head token by token: what every token of a window reads most, and which later tokens read it most."""

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...errors import BadSetting
from ...statistics.both_ways import BothWays
from ...statistics.states import BLOCK_BYTES, States
from ..context import Context, protocol, read
from ..text.states import check_head, states_of, window_of
from ..text.text import named, quoted, token_table
from .head import KERNEL, sink_notes

TOP = 5  # keys and readers of every token


@record
class HeadTokens(Worded):
    """What every token of a window reads through one head, and what reads it. Arrays: see `BothWays`."""

    offset: int = doc("first token of the window in the text")
    length: int = doc("tokens of the window")
    strongest: pd.DataFrame = doc("per token its strongest key and reader, as tokens of the text, and their shares")
    keys: np.ndarray = doc("places in the window of the keys that each token reads most")
    given: np.ndarray = doc("the shares that it gives them")
    readers: np.ndarray = doc("places of the later tokens that read it most")
    received: np.ndarray = doc("the shares that they give it")


def head_tokens(
    model: str = "demo",
    text: str = "",
    layer: int = 0,
    head: int = 0,
    top: int = TOP,
    without_first: bool = False,
    part: int = 0,
    long_text: str = "windows",
    *,
    context: Context,
) -> HeadTokens:
    """The `top` keys that every token of window `part` reads most through one head, and its `top` strongest later
    readers. `without_first` leaves the window's first token out and renormalises. Errors: BadSetting."""
    lm = context.model(model)
    check_head(lm, layer, head)
    if not 1 <= top <= 100:
        raise BadSetting(f"Up to 100 keys and readers of each token are found: {top:,} were asked for.")
    reading = read(context, lm, text, long_text)
    offset, ids = window_of(reading, part)
    words = token_table(reading)
    states = states_of(context, lm, ids, layer)[layer]
    context.progress(0.5, f"layer {layer}, head {head}")
    arrays = _both_ways(states, head, top, without_first).arrays()
    table = words.iloc[offset : offset + len(ids)][["position", "piece"]].reset_index(drop=True)
    for name, share in (("key", "given"), ("reader", "received")):
        table[share] = arrays[share][:, 0]
        table[name] = np.where(table[share] > 0, offset + arrays[f"{name}s"][:, 0], -1)
    about = {"layer": layer, "head": head, "part": part, "window": len(ids), "without_first": without_first}
    return HeadTokens(
        offset=offset,
        length=len(ids),
        sentence=_sentence(table, words, layer, head),
        notes=[*reading.notes, *sink_notes(without_first)],
        strongest=table,
        **arrays,
        protocol=protocol("head-tokens", lm, text, len(ids), kernel=KERNEL, **about),
    )


@torch.no_grad()
def _both_ways(states: States, head: int, top: int, without_first: bool) -> BothWays:
    length = states.length
    reading, size = BothWays(length, top), max(1, BLOCK_BYTES // 4 // length)
    for start in range(0, length, size):
        scores = states.scores(head, start, min(start + size, length)).cpu()
        if without_first:
            scores[:, 0] = float("-inf")
        reading.add(scores.softmax(-1).nan_to_num_(0.0), start)
    return reading


def _sentence(table: pd.DataFrame, words: pd.DataFrame, layer: int, head: int) -> str:
    if table["received"].max() <= 0:
        return f"Through head {head} of layer {layer} no token is read by a later one."
    best = table.loc[table["received"].idxmax()]
    reader, read_ = (quoted(named(words, int(best[name]))) for name in ("reader", "position"))
    back = int(best["reader"] - best["position"])
    return (
        f"Through head {head} of layer {layer}, {reader} reads {read_} most of all tokens: {best['received']:.0%} of "
        f"its attention, {back:,} token{'s' * (back != 1)} back."
    )
