"""Calibrating bucket routers on prompts, all heads in one stream: buckets first, then the routers of every cell."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ...errors import TooLarge
from ...files import clear, write_whole
from ...kernels.parts import now
from ...models import Model
from ...routers import EPS, ROUTERS
from ...routers.base import Router
from ...routers.buckets import SAMPLE, make_buckets
from ...routers.mlp import LEARNED, MOST, SaapMLP
from ...routers.moments import Moments
from ...seam.attention import Block
from ..context import Context
from ..text.held_out import storing
from .cells import RAW, Cell, LayerView, Partition, cell_masses
from .passes import read_prompt
from .texts import Prompt

OF_MASS = ("static_prior", "gwr_linear", "gwr_linear_intercept")  # streamed, one per cell
PLAIN = ("random", "recency", "kmeans", "oracle")  # nothing is fitted
OWN = ("whitening", "gwr_geometric")  # can have a partition of their own
MAIN, *ABLATIONS = (kind.kind for kind in LEARNED)  # trained step by step; ablations in the first setting alone


@dataclass
class Fitted:
    """Everything that was fitted: `partitions` by name, `routers[cell][layer][kind]`, `seconds` to fit each kind (the
    work of all heads), `counts` of calibration keys in each bucket of the raw keys, [P, C] per layer."""

    heads: dict[int, list[int]]
    rotated: list[bool]
    partitions: dict[str, Partition]
    routers: dict[Cell, dict[int, dict[str, Router]]]
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: dict[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Parts:
    """One file per setting, layer and learned router in `folder`; `stamp` names model, texts and sizes, so that parts
    of another run are never taken for these. Without a folder nothing is kept."""

    folder: Path | None = None
    stamp: str = ""

    def find(self, cell: Cell, layer: int, kind: str) -> tuple[dict[str, Tensor], float] | None:
        """The weights of a layer's learned router and the seconds it took; None where it is not trained yet."""
        try:
            tensors = load(self._path(cell, layer, kind).read_bytes()) if self.folder else None
            return tensors and ({name: tensors[name] for name in ROUTERS[kind].NAMES}, float(tensors["seconds"]))
        except (OSError, KeyError, ValueError, SafetensorError):
            return None

    def keep(self, cell: Cell, layer: int, router: SaapMLP, seconds: float) -> None:
        """Write a trained router, put in place whole. Errors: BadSetting for a folder that cannot be written."""
        if self.folder is None:
            return
        tensors = {name: tensor.cpu().contiguous() for name, tensor in router.tensors().items()}
        with storing("routers", self.folder), write_whole(self._path(cell, layer, router.kind)) as place:
            place.write_bytes(save(tensors | {"seconds": torch.tensor(seconds, dtype=torch.float64)}))

    def clear(self) -> None:
        """Remove the parts of this run, once it is done."""
        if self.folder is not None:
            for path in self.folder.glob(f"routing-{self.stamp}-*.safetensors"):
                clear(path)

    def _path(self, cell: Cell, layer: int, kind: str) -> Path:
        where = f"d{cell.min_distance}-s{cell.sinks}-{layer}"
        return self.folder / f"routing-{self.stamp}-{where}-{kind}.safetensors"


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
    parts: Parts | None = None,
) -> Fitted:
    """Buckets of the raw keys (and of OWN routers where a cell asks for them) and all routers of all `cells`.

    Two passes over the prompts: keys and second moments, then masses. `mlp`: also those that are trained step by step,
    the MLP in every cell and its ablations in the first. Their queries are kept, all of them up to 65,536 of a head,
    evenly spaced beyond; one that is among `parts` is taken from there. Errors: TooLarge where they would not fit
    memory.
    """
    _check_memory(model, prompts, heads, cells, buckets, mlp)
    seconds: dict[str, float] = defaultdict(float)
    keys, of_queries, of_keys = _first_pass(context, model, prompts, heads, rotated, buckets)
    shared = {
        layer: [head * model.num_kv_heads // model.num_heads for head in layer_heads]
        for layer, layer_heads in heads.items()
    }
    common: dict[int, dict[str, Router]] = {}
    centroids = {}
    for number, layer in enumerate(heads):
        context.progress(0.15 + 0.05 * number / len(heads), f"buckets of layer {layer}")
        start = now()
        centroids[layer] = make_buckets(keys[layer], buckets, seed + layer)
        seconds["buckets"] += now() - start
        per_head = centroids[layer][shared[layer]]
        common[layer] = {kind: ROUTERS[kind](per_head, seed + layer) for kind in PLAIN}
        for kind in OWN:
            start = now()
            moments = of_queries[layer].mean(EPS), of_keys[layer].mean(EPS)[shared[layer]]
            common[layer][kind] = ROUTERS[kind](per_head, seed + layer).fit(*moments)
            seconds[kind] += now() - start
    partitions = {RAW: Partition(RAW, centroids)}
    for kind in sorted({cell.partition for cell in cells} - {RAW}):
        partition = partitions[kind] = Partition(
            kind, {}
        )  # of the keys as a router turns them, for each chosen query head
        for layer, routers in common.items():
            partition.of_queries[layer], partition.of_keys[layer] = routers[kind].of_queries_, routers[kind].of_keys_
            turned = keys[layer][shared[layer]] @ partition.of_keys[layer]
            partition.centroids[layer] = make_buckets(turned, buckets, seed + layer)
    fitted = Fitted(heads, rotated, partitions, {}, seconds)
    for cell in cells:
        fitted.routers[cell] = {layer: _routers(cell, partitions, common[layer], layer, seed) for layer in heads}
    parts = parts or Parts()
    raw = [cell for cell in cells if cell.partition == RAW]
    to_train = [(cell, layer, kind) for cell in raw for layer in heads for kind in _learned(cell, cells)] if mlp else []
    trained = {place: parts.find(*place) for place in to_train}
    pairs = _second_pass(
        context, model, prompts, fitted, {place[:2] for place, weights in trained.items() if weights is None}
    )
    for number, ((cell, layer, kind), weights) in enumerate(trained.items()):
        context.progress(0.45 + 0.25 * number / len(trained), f"learned router {kind}, {cell.name}, layer {layer}")
        partition, start = ROUTERS[kind](common[layer]["kmeans"].centroids, seed + layer), now()
        if weights is None:
            partition.fit(*(torch.cat(rows, 1) for rows in zip(*pairs[cell, layer], strict=True)))
            parts.keep(cell, layer, partition, now() - start)
        else:
            partition.restore({name: tensor.to(model.device) for name, tensor in weights[0].items()})
        seconds[kind] += weights[1] if weights else now() - start
        fitted_routers = fitted.routers[cell][layer] | {kind: partition}
        fitted.routers[cell][layer] = {name: fitted_routers[name] for name in ROUTERS if name in fitted_routers}
        if kind == _learned(cell, cells)[-1]:
            pairs.pop((cell, layer), None)
    return fitted


def _learned(cell: Cell, cells: list[Cell]) -> list[str]:
    """The routers that are trained step by step for a cell."""
    return [MAIN, *(ABLATIONS if cell == cells[0] else ())]


def queries_of(prompts: list[Prompt], cell: Cell) -> int:
    """How many queries of a head calibrate the routers of a cell: those with keys far enough back."""
    return sum(max(0, len(prompt.ids) - cell.min_distance - cell.sinks) for prompt in prompts)


def _first_pass(
    context: Context, model: Model, prompts: list[Prompt], heads: dict, rotated: list[bool], buckets: int
) -> tuple[dict[int, Tensor], dict[int, Moments], dict[int, Moments]]:
    """Keys for k-means [G, m, D], and second moments of queries (per chosen head) and keys, per layer."""
    quota = -(-SAMPLE * buckets // len(prompts))
    keys, of_queries, of_keys = defaultdict(list), defaultdict(Moments), defaultdict(Moments)

    def take(layer: int, q: Tensor, k: Tensor) -> None:
        if layer in heads:
            of_queries[layer].add(q[heads[layer]])
            of_keys[layer].add(k)
            keys[layer].append(k[:, spaced(0, k.shape[1], quota)])

    for number, prompt in enumerate(prompts):
        context.progress(0.15 * number / len(prompts), f"keys of prompt {number + 1} of {len(prompts)}")
        read_prompt(model, prompt.ids, rotated, take)
    return {layer: torch.cat(rows, 1) for layer, rows in keys.items()}, of_queries, of_keys


def _routers(
    cell: Cell, partitions: dict[str, Partition], common: dict[str, Router], layer: int, seed: int
) -> dict[str, Router]:
    if cell.partition != RAW:
        centroids = partitions[cell.partition].centroids[layer]
        named = {"random": "random", cell.partition: "kmeans", "oracle": "oracle"}
        return {name: ROUTERS[kind](centroids, seed + layer) for name, kind in named.items()}
    streamed = {kind: ROUTERS[kind](common["kmeans"].centroids, seed + layer) for kind in OF_MASS}
    return {kind: router for kind in ROUTERS if (router := {**common, **streamed}.get(kind)) is not None}


def _second_pass(context: Context, model: Model, prompts: list[Prompt], fitted: Fitted, wanted: set) -> dict:
    """Stream the masses of all cells; returns what the learned routers of `wanted` (cell, layer) are trained on: pairs
    in 16 bits for each of them."""
    quota = -(-MOST // len(prompts))
    pairs, view = defaultdict(list), {}
    # Own partitions learn nothing from masses.
    cells = [cell for cell in fitted.routers if cell.partition == RAW]
    raw = fitted.partitions[RAW]
    chosen = {}

    def take(layer: int, q: Tensor, k: Tensor) -> None:
        if layer not in fitted.heads:
            return
        view[layer] = LayerView.of(layer, fitted.heads[layer], len(q), q, k, [raw])
        member = view[layer].member[RAW].sum(1)
        fitted.counts[layer] = fitted.counts.get(layer, 0) + member

    def watch(block: Block, probabilities: Tensor) -> None:
        if block.layer not in fitted.heads:
            return
        layer_view = view[block.layer]
        queries = layer_view.queries[:, block.rows]
        for cell, mass in cell_masses(layer_view, block, probabilities[0], cells).items():
            for kind in OF_MASS:
                start = now()
                fitted.routers[cell][block.layer][kind].partial_fit(queries, mass)
                fitted.seconds[kind] += now() - start
            if (cell, block.layer) in wanted:
                sampled = torch.isin(block.rows, chosen[cell].to(block.rows.device))
                pairs[cell, block.layer].append((queries[:, sampled].half(), mass[:, sampled].half()))

    for number, prompt in enumerate(prompts):
        context.progress(0.2 + 0.25 * number / len(prompts), f"masses of prompt {number + 1} of {len(prompts)}")
        chosen.update({c: spaced(c.min_distance + c.sinks, len(prompt.ids), quota) for c in cells})
        read_prompt(model, prompt.ids, fitted.rotated, take, watch)
    return pairs


def spaced(first: int, stop: int, count: int) -> Tensor:
    """At most `count` evenly spaced whole numbers from `first` up to `stop`, int64."""
    if stop <= first:
        return torch.zeros(0, dtype=torch.long)
    return torch.linspace(first, stop - 1, min(count, stop - first)).round().long().unique()


def _check_memory(model: Model, prompts: list[Prompt], heads: dict, cells: list[Cell], buckets: int, mlp: bool) -> None:
    queries = sum(min(MOST, queries_of(prompts, cell)) for cell in cells if cell.partition == RAW) * mlp
    needed = 2 * queries * (model.head_dim + buckets) * sum(map(len, heads.values()))
    free = psutil.virtual_memory().available
    if needed > 0.7 * free:
        raise TooLarge(
            f"The learned router's calibration pairs of {sum(map(len, heads.values())):,} heads would take "
            f"{needed / 1e9:,.1f} GB and {free / 1e9:,.1f} GB are free: choose fewer heads, such as 2:0,7:0."
        )
