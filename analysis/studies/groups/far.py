"""One reading of a text for Start, Attention heads, Token groups and Long-range pairs: what is read from afar, routing
vectors, and on the way the statistics of all heads."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from ...groups.controls import random_tokens
from ...groups.pairs import PAIR_COLUMNS, FarShares, PairCollector
from ...groups.router import FocusRouter
from ...methods import METHODS
from ...models import Model
from ...seam.attention import apply
from ...statistics import FarLinks, FarReading, attention_inputs, forward
from ...statistics.reader import Watch
from ..context import Context, Reading
from ..text.kept import Readings, Tensors
from ..text.one_pass import KIND, USUAL, one_pass
from .routers import assigned, memberships

ROUTER, CENTROIDS, TOKENS, SHUFFLED = "this router", "random centroids", "random tokens", "shuffled text"
ARMS = (ROUTER, CENTROIDS, TOKENS)
# Strongest pairs of content words that are kept.
LISTED = 100
VECTORS = "routing the text"
FAR = "far reading and links"
# Tokens of each window that are no keys: the attention sink.
SKIPPED = 1
TOTALS = ("far", "far_uniform", "sink", "queries")  # of a FarReading
PER_TOKEN_OR_BIN = ("received", "expected", "mass", "uniform")
OF_LINKS = ("place", "head", "share")


@dataclass(frozen=True)
class Far:
    """What dense attention reads from afar: `reading` of all tokens, the `links` of each, `shares` of the ARMS, and
    `listed`, the LISTED strongest pairs of content words in one group, as `PairCollector.table` gives them. `fresh`:
    tokens that were read for it, none where all was kept."""

    reading: FarReading
    links: FarLinks
    shares: FarShares
    listed: pd.DataFrame
    fresh: int


def routing_vectors(
    context: Context, model: Model, reading: Reading, router: FocusRouter, seed: int | None = None
) -> list[torch.Tensor]:
    """What a router compares with its centroids, L tensors [T, d_s], of a text; with `seed` of its shuffled tokens."""
    windows = reading.windows if seed is None else reading.shuffled(seed)
    kind = VECTORS if seed is None else "routing the shuffled text"

    def make() -> Tensors:
        depth = model.num_layers * len(windows)
        layers_done = itertools.count()

        def project(layer: int, hidden: torch.Tensor) -> torch.Tensor:
            context.at(next(layers_done) / depth, f"{kind}, layer {layer + 1} of {model.num_layers}")
            return router.project(layer, hidden)

        with torch.no_grad():
            inputs = attention_inputs(model, windows, lambda done: context.progress(done, kind), project)
            return {"vectors": torch.stack(inputs)}

    return list(Readings(context, model, windows).made(kind, [router.projection], make)["vectors"])


def chance_members(model: Model, tokens: int, router: FocusRouter, seed: int) -> list[torch.Tensor]:
    """Per layer as many random groups per token as the router gives, bool [T, K]."""
    return [random_tokens(tokens, router.K, router.top, seed * 1000 + layer) for layer in range(model.num_layers)]


def far(
    context: Context,
    model: Model,
    reading: Reading,
    content: torch.Tensor,
    router: FocusRouter,
    control: FocusRouter,
    min_distance: int,
    seed: int = 0,
) -> Far:
    """The Far of a text: one pass, the first time, which leaves the routing vectors and the statistics of all heads
    too. Where they were kept of the first windows, only the others are read: equal to a pass over all of them.
    `content` bool [T]: tokens of content words."""
    tokens, readings, fresh = len(reading.tokens), Readings(context, model, reading.windows), 0
    read = FarReading(tokens, min_distance)
    links = FarLinks(tokens, model.num_heads, min_distance, model.layer_numbers)
    # What decides over the numbers, so that another router or distance is read anew.
    about = [min_distance, seed, router.top, *_state(router), *_state(control)]

    def make() -> Tensors:
        """What enters a layer decides its tokens' groups, which are filled in as the pass goes."""
        nonlocal fresh
        shape = model.num_layers, tokens
        vectors = {router: torch.zeros(*shape, router.d_s) for router in (router, control)}
        affinity = torch.zeros(*shape, router.K)
        members = {router: torch.zeros(*shape, router.K, dtype=torch.bool) for router in (router, control)}
        chance = chance_members(model, tokens, router, seed)
        arms: dict[str, Any] = dict(zip(ARMS, (*members.values(), chance), strict=True))
        collector = PairCollector(arms, affinity, min_distance=min_distance, top=LISTED, content=content)
        earlier, tokens_before = None, 0
        if (begun := _begun(readings, reading, content, about, list(vectors))) is not None:
            count, beginning, (far_before, heads_before, *vectors_before) = begun
            earlier, tokens_before = (count, heads_before), vectors_before[0]["vectors"].shape[1]
            _restore(read, links, far_before)
            collector.go_on(far_before["sums"], _pairs(far_before))
            for own, part in zip(vectors.values(), vectors_before, strict=True):
                own[:, :tokens_before] = part["vectors"]
        fresh = tokens - tokens_before

        def enter(start: int, layer: int, hidden: torch.Tensor) -> None:
            span = slice(start, start + len(hidden))
            # On the CPU, as in `routing_vectors`: the next page is to find the very same numbers.
            states = hidden.float().cpu()
            for sorter in vectors:
                own = vectors[sorter][layer, span] = sorter.project(layer, states)
                soft, members[sorter][layer, span] = assigned(sorter, layer, own)
                if sorter is router:
                    affinity[layer, span] = soft

        watchers = [feed(collector), read.window, links.window]
        with torch.no_grad():
            one_pass(context, model, reading, watchers, enter, earlier=earlier)
        for sorter, own in vectors.items():
            readings.keep(VECTORS, [sorter.projection], {"vectors": own})
            if begun is not None:
                beginning.drop(VECTORS, [sorter.projection])
        numbers = {name: torch.from_numpy(getattr(read, name)) for name in PER_TOKEN_OR_BIN}
        numbers["totals"] = torch.tensor([getattr(read, name) for name in TOTALS], dtype=torch.float64)
        numbers |= {f"links.{name}": getattr(links, name) for name in OF_LINKS}
        numbers |= {f"pairs.{name}": torch.from_numpy(collector.rows[name].copy()) for name in PAIR_COLUMNS}
        return numbers | {"sums": _stacked(collector)}

    tensors = readings.made(FAR, [content, *about], make)
    _restore(read, links, tensors)
    listed = pd.DataFrame(_pairs(tensors))
    return Far(read, links, _shares(ARMS, min_distance, tensors["sums"]), listed, fresh)


def _begun(
    readings: Readings, reading: Reading, content: torch.Tensor, about: list, sorters: list[FocusRouter]
) -> tuple[int, Readings, list[Tensors]] | None:
    """Of the longest beginning of a text that was read: its windows, where it is kept, and the far reading, the
    statistics of all heads and each sorter's vectors; None where there is none."""
    for count, beginning in readings.beginnings():
        size = sum(map(len, reading.windows[:count]))
        wanted: list[tuple[str, list]] = [(FAR, [content[:size], *about]), (KIND, [USUAL])]
        wanted += [(VECTORS, [sorter.projection]) for sorter in sorters]
        tensors_of = [tensors for one in wanted if (tensors := beginning.find(*one)) is not None]
        if len(tensors_of) == len(wanted):
            return count, beginning, tensors_of
    return None


def _restore(read: FarReading, links: FarLinks, tensors: Tensors) -> None:
    """Set both to what was kept of a text, or of its first windows."""
    for name in OF_LINKS:
        part = tensors[f"links.{name}"]
        getattr(links, name)[:, : part.shape[1]] = part
    for name in PER_TOKEN_OR_BIN:
        values = tensors[name].numpy()
        getattr(read, name)[: len(values)] = values
    for name, total in zip(TOTALS, tensors["totals"].tolist(), strict=True):
        setattr(read, name, total)


def _pairs(tensors: Tensors) -> dict[str, np.ndarray]:
    """Columns of the strongest pairs that were kept."""
    return {name: tensors[f"pairs.{name}"].numpy() for name in PAIR_COLUMNS}


def far_shuffled(
    context: Context,
    model: Model,
    reading: Reading,
    router: FocusRouter,
    min_distance: int,
    seed: int,
    head: int | None,
) -> FarShares:
    """The shares of the text with its tokens shuffled: what grouping by kind of token alone would give."""
    windows = reading.shuffled(seed)

    def make() -> Tensors:
        affinity, members = memberships(router, routing_vectors(context, model, reading, router, seed))
        null = PairCollector({SHUFFLED: members}, affinity, min_distance=min_distance, top=0, head=head)
        collect(context, model, windows, null)
        return {"sums": _stacked(null)}

    decides = [min_distance, head, router.top, *_state(router)]
    tensors = Readings(context, model, windows).made("far reading, shuffled", decides, make)
    return _shares((SHUFFLED,), min_distance, tensors["sums"])


def collect(context: Context, model: Model, windows: list[np.ndarray], collector: PairCollector) -> None:
    """Stream the dense attention of a text, window by window, into a collector of pairs."""
    start = 0
    for index, ids in enumerate(windows):
        stage = f"reading window {index + 1} of {len(windows)}"
        context.progress(index / len(windows), stage)
        progress_by_layer = context.by_layer(model, index / len(windows), 1 / len(windows), stage)
        with progress_by_layer, apply(model, METHODS["dense"](), watch=feed(collector)(start)):
            forward(model, ids)
        start += len(ids)


def feed(collector: PairCollector) -> Callable[[int], Watch]:
    """A pair collector as what watches the blocks of the window that begins at a token."""

    def window(start: int) -> Watch:
        return lambda block, probabilities: collector.add(block.layer, block.rows, probabilities[0], start)

    return window


def _state(router: FocusRouter) -> list[torch.Tensor]:
    return list(router.state_dict().values())


def _stacked(shares: FarShares) -> torch.Tensor:
    """[L, 1 + arms, 2, bins]: all layers see the same text, so they have the same bins."""
    return torch.stack([shares.sums[layer] for layer in sorted(shares.sums)])


def _shares(arms: tuple[str, ...], min_distance: int, sums: torch.Tensor) -> FarShares:
    return FarShares(arms, min_distance, SKIPPED, dict(enumerate(sums)))
