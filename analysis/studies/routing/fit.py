"""Calibrating bucket routers on prompts, all heads in one stream: buckets first, then the routers of every cell."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import psutil
import torch
from torch import Tensor

from ...errors import TooLarge
from ...fitted import read as read_fitted, write as write_fitted
from ...kernels.parts import now
from ...models import Model
from ...routers import EPS, ROUTERS
from ...routers.base import Router
from ...routers.buckets import SAMPLE, make_buckets
from ...routers.linear import GWRLinear, StaticPrior
from ...routers.mlp import LEARNED, MOST, SaapMLP
from ...routers.moments import Moments, Turned
from ...seam.attention import Block
from ..context import Context
from ..text.held_out import storing
from .cells import RAW, Cell, LayerView, Partition, cell_masses
from .passes import read_prompt
from .texts import Prompt

OF_MASS = ("static_prior", "gwr_linear", "gwr_linear_intercept")  # streamed, one per cell
PLAIN = ("random", "recency", "kmeans", "oracle")  # nothing is fitted
# Can have a partition of their own.
OWN = ("whitening", "gwr_geometric")
# Trained step by step; ablations in the first setting alone.
MAIN, *ABLATIONS = (kind.kind for kind in LEARNED)


Streamed = GWRLinear | StaticPrior


@dataclass
class Fitted:
    """Everything that was fitted: `partitions` by name, `routers[cell][layer][kind]`, `seconds` to fit each kind (the
    work of all heads), `counts` of calibration keys in each bucket of the raw keys, [P, C] per layer."""

    heads: dict[int, list[int]]
    rotated: list[bool]
    partitions: dict[str, Partition]
    routers: dict[Cell, dict[int, dict[str, Router]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: dict[int, Tensor] = field(default_factory=dict)

    @property
    def raw_cells(self) -> list[Cell]:
        """Those of the raw keys."""
        return [cell for cell in self.routers if cell.partition == RAW]

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        """Adds the time of what is done meanwhile to the seconds of a kind."""
        start = now()
        yield
        self.seconds[kind] += now() - start


def calibrate(
    context: Context,
    model: Model,
    prompts: list[Prompt],
    heads: dict[int, list[int]],
    rotated: list[bool],
    cells: list[Cell],
    buckets: int,
    seed: int,
    mlp: bool = True,
    work: Path | None = None,
    optimiser: str = "adam",
    ablations: Sequence[str] = ABLATIONS,
    most: int = MOST,
) -> Fitted:
    """Buckets of the raw keys (and of OWN routers where a cell asks for them) and all routers of all `cells`.

    Two passes over the prompts: keys and second moments, then masses. `mlp`: also those that are trained step by step
    by the `optimiser` adam or sgd, the MLP in every cell and its `ablations` in the first. Their queries are kept, all
    of them up to `most` of a head, evenly spaced beyond. `work`: how the paths begin under which they are kept until
    all is done, so that a run that was stopped goes on; it names model, texts and sizes. Errors: TooLarge where queries
    would not fit memory.
    """
    if mlp:
        _check_memory(model, prompts, heads, cells, buckets)
    fitted = Fitted(heads, rotated, {RAW: Partition(RAW)})
    keys, of_queries, of_keys = _first_pass(context, model, prompts, fitted, buckets)
    common: dict[int, dict[str, Router]] = {}
    shared = {layer: [head * model.num_kv_heads // model.num_heads for head in heads[layer]] for layer in heads}
    for number, layer in enumerate(heads):
        context.progress(0.15 + 0.05 * number / len(heads), f"buckets of layer {layer}")
        with fitted.timed("buckets"):
            centroids = make_buckets(keys[layer], buckets, seed + layer)
        fitted.partitions[RAW].centroids[layer] = centroids
        common[layer] = {kind: ROUTERS[kind](centroids[shared[layer]], seed + layer) for kind in (*PLAIN, *OWN)}
        for kind in OWN:
            with fitted.timed(kind):
                moments = of_queries[layer].mean(EPS), of_keys[layer].mean(EPS)[shared[layer]]
                cast(Turned, common[layer][kind]).fit(*moments)
    for kind in sorted({cell.partition for cell in cells} - {RAW}):
        # Of the keys as a router turns them, for each chosen query head.
        partition = fitted.partitions[kind] = Partition(kind)
        for layer, routers in common.items():
            tensors = routers[kind].tensors()
            partition.of_queries[layer], partition.of_keys[layer] = tensors["of_queries"], tensors["of_keys"]
            turned = keys[layer][shared[layer]] @ tensors["of_keys"]
            partition.centroids[layer] = make_buckets(turned, buckets, seed + layer)
    for cell in cells:
        partition = fitted.partitions[cell.partition]
        fitted.routers[cell] = {}
        for layer in heads:
            if cell.partition == RAW:
                streamed = {kind: ROUTERS[kind](common[layer]["kmeans"].centroids, seed + layer) for kind in OF_MASS}
                fitted.routers[cell][layer] = _in_order(common[layer] | streamed)
            else:
                named = {"random": "random", cell.partition: "kmeans", "oracle": "oracle"}
                made = {name: ROUTERS[kind](partition.centroids[layer], seed + layer) for name, kind in named.items()}
                fitted.routers[cell][layer] = made
    learned: dict[tuple[Cell, int, str], Path | None] = {}
    for cell in fitted.raw_cells if mlp else ():
        for layer in heads:
            for kind in (MAIN, *ablations) if cell == cells[0] else (MAIN,):
                end = f"-d{cell.min_distance}-s{cell.sinks}-{layer}-{kind}.safetensors"
                learned[cell, layer, kind] = work and work.with_name(work.name + end)
    # Those that an earlier run of the same settings left behind are not trained again.
    trained = {place: read_fitted(path, seconds=float) if path else None for place, path in learned.items()}
    wanted = {p[:2] for p, stored in trained.items() if stored is None}
    pairs = _second_pass(context, model, prompts, fitted, wanted, -(-most // len(prompts)))
    for number, ((cell, layer, kind), stored) in enumerate(trained.items()):
        context.progress(0.45 + 0.25 * number / len(trained), f"learned router {kind}, {cell.name}, layer {layer}")
        router, start = ROUTERS[kind](common[layer]["kmeans"].centroids, seed + layer), now()
        if stored is None:
            queries, masses = (torch.cat(rows, 1) for rows in zip(*pairs[cell, layer], strict=True))
            cast(SaapMLP, router).fit(queries, masses, optimiser=optimiser)
            took, path = now() - start, learned[cell, layer, kind]
            if path is not None:
                with storing("routers", path.parent):
                    write_fitted(path, router.tensors(), seconds=took)
        else:
            tensors, took = stored
            router.restore({name: tensor.to(model.device) for name, tensor in tensors.items()})
        fitted.seconds[kind] += took
        fitted.routers[cell][layer] = _in_order(fitted.routers[cell][layer] | {kind: router})
    return fitted


def _in_order(routers: dict[str, Router]) -> dict[str, Router]:
    return {kind: routers[kind] for kind in ROUTERS if kind in routers}


def queries_of(prompts: list[Prompt], cell: Cell) -> int:
    """How many queries of a head calibrate the routers of a cell: those with keys far enough back."""
    return sum(max(0, len(prompt.ids) + 1 - cell.tokens_needed) for prompt in prompts)


def _first_pass(
    context: Context, model: Model, prompts: list[Prompt], fitted: Fitted, buckets: int
) -> tuple[dict[int, Tensor], dict[int, Moments], dict[int, Moments]]:
    """Keys for k-means [G, m, D], and second moments of queries (per chosen head) and keys, per layer."""
    # Every prompt gives as many keys, and k-means takes at most SAMPLE for a bucket.
    quota = -(-SAMPLE * buckets // len(prompts))
    of_queries: dict[int, Moments] = defaultdict(Moments)
    of_keys: dict[int, Moments] = defaultdict(Moments)
    keys = defaultdict(list)

    def take(layer: int, q: Tensor, k: Tensor) -> None:
        if layer in fitted.heads:
            of_queries[layer].add(q[fitted.heads[layer]])
            of_keys[layer].add(k)
            keys[layer].append(k[:, spaced(0, k.shape[1], quota)])

    for number, prompt in enumerate(prompts):
        context.progress(0.15 * number / len(prompts), f"keys of prompt {number + 1} of {len(prompts)}")
        read_prompt(model, prompt.ids, fitted.rotated, take)
    return {layer: torch.cat(rows, 1) for layer, rows in keys.items()}, of_queries, of_keys


def _second_pass(
    context: Context, model: Model, prompts: list[Prompt], fitted: Fitted, wanted: set, quota: int
) -> dict:
    """Stream the masses of all cells of the raw keys (own partitions learn nothing from masses); returns what the
    learned routers of `wanted` (cell, layer) are trained on: `quota` pairs of a prompt in 16 bits for each of them."""
    cells, raw = fitted.raw_cells, fitted.partitions[RAW]
    pairs = defaultdict(list)
    view: dict[int, LayerView] = {}
    sampled: dict[Cell, Tensor] = {}

    def take(layer: int, q: Tensor, k: Tensor) -> None:
        # Its blocks follow before the next layer's: members of one layer are held.
        view.clear()
        if layer in fitted.heads:
            view[layer] = LayerView.of(layer, fitted.heads[layer], q, k, [raw])
            fitted.counts[layer] = fitted.counts.get(layer, 0) + view[layer].member[RAW].sum(1)

    def watch(block: Block, probabilities: Tensor) -> None:
        if block.layer not in fitted.heads:
            return
        queries = view[block.layer].queries[:, block.rows]
        for cell, mass in cell_masses(view[block.layer], block, probabilities[0], cells).items():
            for kind in OF_MASS:
                with fitted.timed(kind):
                    cast(Streamed, fitted.routers[cell][block.layer][kind]).partial_fit(queries, mass)
            if (cell, block.layer) in wanted:
                rows = torch.isin(block.rows, sampled[cell].to(block.rows.device))
                # In 16 bits: the pairs of all heads are the largest thing that is held.
                pairs[cell, block.layer].append((queries[:, rows].half(), mass[:, rows].half()))

    for number, prompt in enumerate(prompts):
        context.progress(0.2 + 0.25 * number / len(prompts), f"masses of prompt {number + 1} of {len(prompts)}")
        sampled.update({cell: spaced(cell.tokens_needed - 1, len(prompt.ids), quota) for cell in cells})
        read_prompt(model, prompt.ids, fitted.rotated, take, watch)
    return pairs


def spaced(first: int, stop: int, count: int) -> Tensor:
    """At most `count` evenly spaced whole numbers from `first` up to `stop`, int64."""
    if stop <= first:
        return torch.zeros(0, dtype=torch.long)
    return torch.linspace(first, stop - 1, min(count, stop - first)).round().long().unique()


def _check_memory(model: Model, prompts: list[Prompt], heads: dict, cells: list[Cell], buckets: int) -> None:
    queries = sum(min(MOST, queries_of(prompts, cell)) for cell in cells if cell.partition == RAW)
    # A query and its masses, in 16 bits each.
    needed = 2 * queries * (model.head_dim + buckets) * sum(map(len, heads.values()))
    free = psutil.virtual_memory().available
    if needed > 0.7 * free:
        raise TooLarge(
            f"The learned router's calibration pairs of {sum(map(len, heads.values())):,} heads would take "
            f"{needed / 1e9:,.1f} GB and {free / 1e9:,.1f} GB are free: choose fewer heads, such as 2.0,7.0."
        )
