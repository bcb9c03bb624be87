"""Which heads read like one head: all others by how alike their attention is, at queries spread over a window."""

import math
from typing import Any

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...commands.heads import Alike
from ...errors import BadSetting
from ...metrics.intervals import BLOCKS, interval
from ...statistics.alike import likeness
from ...statistics.states import States
from ..context import Context, protocol, read
from ..text.states import check_head, scope, states_of, windows_of
from .head import KERNEL, sink_notes

# Stretches of the window, and neighbouring queries of each.
PLACES, NEAR = 16, 8
COLUMNS = ["layer", "head", "likeness", "low", "high"]
# (first query, past the last) of each.
Stretches = list[tuple[int, int]]


@record
class AlikeHeads(Worded):
    """The heads that read like one head."""

    even: float = doc("likeness to a head that reads all visible keys alike")
    median: float = doc("median likeness of all other heads")
    queries: int = doc("queries that were compared")
    scope: str = doc("what of the text was read, in words")
    heads: pd.DataFrame = doc("layer head likeness low high, the most alike first")


@torch.no_grad()
def alike(request: Alike, *, context: Context) -> AlikeHeads:
    """The heads whose attention is most like that of one head, in window `part` of a text or in all (null): the mean of
    `statistics.alike.likeness` over up to 16 stretches of 8 neighbouring queries spread over a window, with its
    interval over them. Errors: BadSetting."""
    lm, layer, head = context.model(request.model), request.layer, request.head
    check_head(lm, layer, head)
    reading = read(context, lm, request.text, request.long_text)
    # The first token sees nothing but itself, which tells no head from another.
    first = 1 + request.without_first
    windows = windows_of(reading, request.part, first + 1)
    if not windows:
        raise BadSetting("A text of one or two tokens tells no head from another: give a longer one.")
    # Layer, head and likeness of each stretch.
    rows: list[tuple[int, int, float]] = []
    even, queries = [], 0
    for index, (_, ids) in enumerate(windows):
        stretches = spread(first, len(ids))
        scores = _scores(states_of(context, lm, ids, layer)[layer], head, stretches, request.without_first)
        attention = [block.softmax(-1) for block in scores]
        for place, other in enumerate(lm.layer_numbers):
            context.progress((index + place / lm.num_layers) / len(windows), f"layer {other}")
            states = states_of(context, lm, ids, other)[other]
            for rival in range(lm.num_heads):
                if (other, rival) != (layer, head):
                    rival_scores = _scores(states, rival, stretches, request.without_first)
                    rows += [(other, rival, value) for value in _likenesses(attention, rival_scores)]
        even += _likenesses(attention, [torch.where(block.isinf(), block, 0.0) for block in scores])
        queries += sum(map(len, attention))
    by_head = pd.DataFrame(rows, columns=["layer", "head", "likeness"]).groupby(["layer", "head"])["likeness"]
    ends = {cell: interval(values, fewest=BLOCKS)[:3] for cell, values in by_head}
    table = pd.DataFrame([(*cell, *of_cell) for cell, of_cell in ends.items()], columns=COLUMNS)
    listed = table.sort_values("likeness", ascending=False, kind="stable", ignore_index=True).head(request.top)
    count = sum(len(ids) for _, ids in windows)
    about: dict[str, Any] = {"layer": layer, "head": head, "part": request.part, "window": count}
    about |= {"without_first": request.without_first, "kernel": KERNEL}
    even_likeness = float(np.mean(even))
    sentence = "The model has no other head."
    if len(listed):
        best = listed.iloc[0]
        sentence = (
            f"Head {int(best['layer'])}.{int(best['head'])} reads most like {layer}.{head}: "
            f"likeness {best['likeness']:.0%}, and {even_likeness:.0%} for a head that reads all tokens alike."
        )
    return AlikeHeads(
        even=even_likeness,
        median=float(table["likeness"].median()),
        queries=queries,
        scope=scope(reading, request.part),
        sentence=sentence,
        notes=[*reading.notes, *sink_notes(request.without_first)],
        heads=listed,
        protocol=protocol("alike", lm, request.text, count, **about),
    )


def spread(first: int, length: int) -> Stretches:
    """Up to PLACES stretches of NEAR queries in first..length, apart where they fit."""
    near = min(NEAR, length - first)
    places = max(1, min(PLACES, (length - first) // near))
    return [(int(start), int(start) + near) for start in np.linspace(first, length - near, places)]


def _scores(states: States, head: int, stretches: Stretches, without_first: bool) -> list[torch.Tensor]:
    """The scores of a head, [queries, keys] of every stretch, -inf where a key is not read."""
    blocks = [states.scores(head, *stretch).cpu() for stretch in stretches]
    if without_first:
        for block in blocks:
            block[:, 0] = -math.inf
    return blocks


def _likenesses(attention: list[torch.Tensor], scores: list[torch.Tensor]) -> list[float]:
    """The likeness of attention to what other scores give, of each stretch."""
    pairs = zip(attention, scores, strict=True)
    return [float(likeness(weights, block.softmax(-1)).mean()) for weights, block in pairs]
