"""Queries and keys of a window in float16: what a browser needs to compute attention at any temperature by itself."""

from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

from ...answer import Worded, doc, record
from ...commands.temperature import QueriesKeys
from ...errors import BadModel, BadSetting
from ...statistics.states import States
from ..context import Context, protocol, read
from ..text.states import check_head, fits, states_of, window_of
from ..text.text import token_table
from .sharpness import PAPER

# Temperatures at which the effect of the rounding is said: dense attention, and where a live slider ends.
DENSE, LOWEST = 1.0, 0.1
KERNEL = "queries and keys in float16"


@record
class Live(Worded):
    """Queries and keys of a window of a text, rounded to float16."""

    layers: list[int] = doc("the layers that are held")
    scaling: list[float] = doc("of the product of query and key, per layer")
    softcap: list[float | None] = doc("of the scaled score, per layer")
    window: list[int | None] = doc("keys that a query of the layer sees, itself included; null sees all")
    places: list[int] = doc("queries of the window that stand for all of them, spread over it")
    length: int = doc("tokens of the window")
    offset: int = doc("first token of the window in the text")
    support: dict = doc(
        "temperature -> tokens of equal weight with the same entropy, mean over those queries and heads"
    )
    rounding: dict = doc("temperature -> most that float16 moves a weight of those queries")
    tokens: pd.DataFrame = doc("tokens of the text")
    query: np.ndarray = doc("float16 [layers, heads, tokens, numbers]")
    key: np.ndarray = doc("float16 [layers, key heads, tokens, numbers]")


@torch.no_grad()
def queries_keys(request: QueriesKeys, *, context: Context) -> Live:
    """Queries and keys of window `part` of a text as they meet, of all layers or of one, with `queries` of them spread
    over the window, and what rounding them to float16 changes. Of a text whose queries and keys pass 256 MB one layer
    is to be named. Errors: BadSetting."""
    lm = context.model(request.model)
    first = lm.layer_numbers[0] if request.layer is None else request.layer
    check_head(lm, first, 0)
    reading = read(context, lm, request.text, request.long_text)
    offset, ids = window_of(reading, request.part)
    if request.layer is None and not fits(lm, len(ids)):
        raise BadSetting(
            f"Queries and keys of {lm.num_layers} layers and {len(ids):,} tokens are too many: name a layer."
        )
    states = states_of(context, lm, ids, first)
    layers = list(lm.layer_numbers) if request.layer is None else [request.layer]
    if any(states[layer].visible is not None for layer in layers):
        raise BadModel(
            "Which keys a query of this model reads is chosen by its own indexer, or by a mask of its own, so no "
            "browser can redo its attention while a slider moves: open Every head under Study, or choose another model."
        )
    places = np.unique(np.linspace(0, len(ids) - 1, min(request.queries, len(ids))).round().astype(int)).tolist()
    held = [rounded(states[layer]) for layer in layers]
    rounding, support = {}, {}
    for t in (DENSE, PAPER, LOWEST):
        exact = [_rows(states[layer], places, t) for layer in layers]
        moved = [(a - b).abs().max() for a, b in zip(exact, (_rows(layer, places, t) for layer in held), strict=True)]
        rounding[f"{t:g}"] = float(max(moved))
        support[f"{t:g}"] = float(torch.special.entr(torch.stack(exact).double()).sum(-1).exp().mean())
    about: dict[str, Any] = {"part": request.part, "window": len(ids), "kernel": KERNEL, "queries": len(places)}
    return Live(
        layers=layers,
        scaling=[layer.scaling for layer in held],
        softcap=[layer.softcap for layer in held],
        window=[layer.window for layer in held],
        places=places,
        length=len(ids),
        offset=offset,
        support=support,
        rounding=rounding,
        sentence=f"At temperature {PAPER:g} a head reads as if {support[f'{PAPER:g}']:,.0f} tokens had equal weight, "
        f"and {support['1']:,.0f} in dense attention.",
        notes=reading.notes,
        tokens=token_table(reading),
        query=_stacked([layer.query for layer in held]),
        key=_stacked([layer.key for layer in held]),
        protocol=protocol("queries-keys", lm, request.text, len(ids), **about),
    )


def _stacked(layers: list[torch.Tensor]) -> np.ndarray:
    """float16 [layers, heads, tokens, numbers] of [heads, tokens, numbers] each. Where a layer has fewer numbers, zeros
    follow, which change no product; where it has fewer heads, each comes more often."""
    heads, size = max(map(len, layers)), max(layer.shape[-1] for layer in layers)
    even = [layer.repeat_interleave(heads // len(layer), 0) for layer in layers]
    return torch.stack([F.pad(layer, (0, size - layer.shape[-1])) for layer in even]).numpy().astype(np.float16)


def rounded(states: States) -> States:
    """The same layer from queries and keys that were rounded to float16. Errors: BadSetting for numbers beyond it."""
    query, key = (side.cpu().half().float() for side in (states.query, states.key))
    if query.isinf().any() or key.isinf().any():
        raise BadSetting("Queries or keys of this model are beyond float16, so no browser can show them: take another.")
    return States(query, key, states.scaling, states.softcap, states.window)


def _rows(states: States, places: list[int], t: float) -> torch.Tensor:
    """Attention of all heads from some queries, [heads, places, tokens], zeros where nothing is visible."""
    weights = torch.zeros(len(states.query), len(places), states.length)
    for head in range(len(weights)):
        for row, place in enumerate(places):
            weights[head, row, : place + 1] = states.scores(head, place, place + 1, t)[0].softmax(-1).cpu()
    return weights
