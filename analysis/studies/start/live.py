"""What a report holds to think with: queries and keys of a text's first tokens in float16, of the heads that fit."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...commands.text import Report
from ...errors import BadModel
from ...statistics.states import States
from ..context import Context, read
from ..text.states import fits, states_of, window_of
from .start import FirstLook

# Tokens of a window that a browser computes with, and bytes of queries and keys; in base64 they are a third more.
TOKENS, BYTES = 1024, 10_500_000
LARGEST = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class Live:
    """Queries and keys as `reading.js` takes them. `read`: its object without both; `scope`: what they cover."""

    read: dict[str, Any]
    queries: bytes
    keys: bytes
    scope: str


@torch.no_grad()
def live(context: Context, request: Report, first: FirstLook) -> Live:
    """Of the first window at most TOKENS tokens, and of its groups of heads those that read most from afar, as many as
    BYTES hold. Errors: BadModel."""
    lm = context.model(request.model)
    ids = window_of(read(context, lm, request.text, "windows"), 0)[1]
    length = min(len(ids), TOKENS)
    while not fits(lm, length):
        length //= 2
    distance = max(1, min(first.min_distance, (length - 1) // 2))
    states = states_of(context, lm, ids[:length], lm.layer_numbers[0])
    heads: list[dict[str, Any]] = []
    queries: list[torch.Tensor] = []
    keys: list[torch.Tensor] = []
    for layer, group in _held(states, distance):
        state = states[layer]
        each = len(state.query) // len(state.key)
        for head in range(group * each, (group + 1) * each):
            places = {"size": state.query.shape[-1], "q": _count(queries), "k": _count(keys)}
            about = {"scaling": state.scaling, "cap": state.softcap, "window": state.window}
            heads.append({"name": f"{layer}.{head}", **places, **about})
            queries.append(state.query[head])
        keys.append(state.key[group])
    shape = {"length": length, "distance": distance, "width": lm.num_heads}
    tokens = f"first {length:,} of {len(first.tokens):,} tokens" if length < len(first.tokens) else f"{length:,} tokens"
    count = lm.num_layers * lm.num_heads
    of_all = f"the {len(heads)} of {count} heads that read farthest" if len(heads) < count else f"all {count} heads"
    scope = f"{tokens} · {of_all} of {lm.name}, queries and keys in float16 · this file asks nobody for anything"
    return Live({**shape, "heads": heads}, _halves(queries), _halves(keys), scope)


def _held(states: dict[int, States], distance: int) -> list[tuple[int, int]]:
    """(layer, group) of the key-value heads that BYTES hold, those whose heads read most from afar; of layers whose
    queries read all that their window shows. Errors: BadModel."""
    found: list[tuple[float, int, int, int]] = []
    for layer, state in states.items():
        if state.visible is not None:
            continue
        length = state.length
        far = torch.arange(length)[:, None] - torch.arange(length) >= distance
        # The first token takes attention that means nothing.
        far[:, 0] = False
        weights = (state.scores(head, 0, length).softmax(-1).cpu() for head in range(len(state.query)))
        by_group = torch.stack([(p * far).sum() for p in weights]).reshape(len(state.key), -1).sum(1)
        size = 2 * (state.query.numel() + state.key.numel()) // len(state.key)
        found += [(float(share), layer, group, size) for group, share in enumerate(by_group)]
    if not found:
        raise BadModel(
            "Which keys a query of this model reads is chosen by its own indexer, or by a mask of its own, so no "
            "report can compute its attention anew: choose another model."
        )
    room = BYTES
    chosen: list[tuple[int, int]] = []
    for _, layer, group, size in sorted(found, key=lambda one: -one[0]):
        room -= size
        if room >= 0 or not chosen:
            chosen.append((layer, group))
    return sorted(chosen)


def _count(parts: list[torch.Tensor]) -> int:
    return sum(part.numel() for part in parts)


def _halves(parts: list[torch.Tensor]) -> bytes:
    """float16 numbers. Errors: BadModel where one is too large."""
    array = torch.cat([part.cpu().flatten() for part in parts])
    if float(array.abs().max()) > LARGEST:
        raise BadModel(f"A query or key of this model is larger than {LARGEST:,.0f}, the most that float16 holds.")
    return array.to(torch.float16).numpy().tobytes()
