"""Which heads read like one head: all others by how alike their attention is, at queries spread over a window."""

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...errors import BadSetting
from ...metrics.intervals import BLOCKS, interval
from ...statistics.alike import likeness
from ...statistics.states import States
from ..context import Context, protocol, read
from ..text.states import check_head, scope, states_of, windows_of
from .head import KERNEL, sink_notes

TOP = 10  # heads that are listed
PLACES, NEAR = 16, 8  # stretches of the window, and neighbouring queries of each
HIDDEN = float("-inf")


@record
class Alike(Worded):
    """The heads that read like one head."""

    even: float = doc("likeness to a head that reads all visible keys alike")
    median: float = doc("median likeness of all other heads")
    queries: int = doc("queries that were compared")
    scope: str = doc("what of the text was read, in words")
    heads: pd.DataFrame = doc("layer head likeness low high, the most alike first")


def alike(
    model: str = "demo",
    text: str = "",
    layer: int = 0,
    head: int = 0,
    top: int = TOP,
    without_first: bool = False,
    part: int | None = 0,
    long_text: str = "windows",
    *,
    context: Context,
) -> Alike:
    """The `top` heads whose attention is most like that of one head, in window `part` of a text or in all (null).

    Likeness: `statistics.alike.likeness`, mean over up to 16 stretches of 8 neighbouring queries spread over a window;
    the interval is over the stretches. `without_first` leaves the window's first token out and renormalises. Errors:
    BadSetting.
    """
    lm = context.model(model)
    check_head(lm, layer, head)
    if not 1 <= top <= 1000:
        raise BadSetting(f"Up to 1,000 heads are listed: {top:,} were asked for.")
    reading = read(context, lm, text, long_text)
    first = 1 + without_first  # the first token sees nothing but itself, which tells no head from another
    windows = windows_of(reading, part, first + 1)
    if not windows:
        raise BadSetting("A text of one or two tokens tells no head from another: give a longer one.")
    likenesses: dict[tuple[int, int], list[float]] = {}
    even, queries = [], 0
    for index, (_, ids) in enumerate(windows):
        starts = spread(first, len(ids))
        scores = _scores(states_of(context, lm, ids, layer)[layer], head, starts, without_first)
        attention = [block.softmax(-1) for block in scores]
        for place in range(lm.num_layers):
            context.progress((index + place / lm.num_layers) / len(windows), f"layer {place}")
            states = states_of(context, lm, ids, place)[place]
            for rival in range(lm.num_heads):
                if (place, rival) != (layer, head):
                    compared = _compared(attention, _scores(states, rival, starts, without_first))
                    likenesses.setdefault((place, rival), []).extend(compared)
        even += _compared(attention, [torch.zeros_like(b).masked_fill(b == HIDDEN, HIDDEN) for b in scores])
        queries += sum(map(len, attention))
    rows = []
    for cell, values in likenesses.items():
        mean = interval(values, fewest=BLOCKS)
        rows.append((*cell, float(np.mean(values)), mean.low, mean.high))
    table = pd.DataFrame(rows, columns=["layer", "head", "likeness", "low", "high"])
    listed = table.sort_values("likeness", ascending=False, kind="stable").head(top).reset_index(drop=True)
    count = sum(len(ids) for _, ids in windows)
    about = {"layer": layer, "head": head, "part": part, "window": count, "without_first": without_first}
    return Alike(
        even=float(np.mean(even)),
        median=float(table["likeness"].median()),
        queries=queries,
        scope=scope(reading, part),
        sentence=_sentence(listed, float(np.mean(even)), layer, head),
        notes=[*reading.notes, *sink_notes(without_first)],
        heads=listed,
        protocol=protocol("alike", lm, text, count, kernel=KERNEL, **about),
    )


def spread(first: int, length: int) -> list[tuple[int, int]]:
    """(first query, past the last) of up to PLACES stretches of NEAR queries in first..length, apart where they fit."""
    near = min(NEAR, length - first)
    places = max(1, min(PLACES, (length - first) // near))
    return [(int(start), int(start) + near) for start in np.linspace(first, length - near, places)]


@torch.no_grad()
def _scores(states: States, head: int, starts: list[tuple[int, int]], without_first: bool) -> list[torch.Tensor]:
    """The scores of a head, [queries, keys] of every stretch, -inf where a key is not read."""
    blocks = [states.scores(head, *stretch).cpu() for stretch in starts]
    if without_first:
        for block in blocks:
            block[:, 0] = HIDDEN
    return blocks


def _compared(attention: list[torch.Tensor], scores: list[torch.Tensor]) -> list[float]:
    """The likeness of attention to what other scores give, of each stretch."""
    pairs = zip(attention, scores, strict=True)
    return [float(likeness(read, other_scores.softmax(-1)).mean()) for read, other_scores in pairs]


def _sentence(table: pd.DataFrame, even: float, layer: int, head: int) -> str:
    if table.empty:
        return "The model has no other head."
    best = table.iloc[0]
    return (
        f"Head {int(best['head'])} of layer {int(best['layer'])} reads most like head {head} of layer {layer}: "
        f"likeness {best['likeness']:.0%}, and {even:.0%} for a head that reads all tokens alike."
    )
