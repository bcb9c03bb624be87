"""Holding routers against the mass that is really there: recall and selectivity at every budget, streamed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...answer import doc, record
from ...kernels.parts import now
from ...metrics.routing import captured, points_for
from ...models import Model
from ...routers.base import Router
from ...routers.buckets import evenness
from ...seam.attention import Block
from ..context import Context
from .cells import Cell, LayerView, cell_counts, cell_masses
from .fit import Fitted
from .passes import read_prompt
from .texts import Prompt

# Queries, and rounds of which the median counts.
TIMED, REPEATS = 512, 5


@record
class BucketBalance:
    """How evenly the keys of one head lie in its buckets."""

    layer: int
    part: int = doc("key-value head, or chosen query head")
    side: str = doc("calibration or test")
    largest: float = doc("share of the keys in the largest bucket")
    empty: float = doc("share of the buckets without any key")
    effective: float = doc("number of equal buckets with the same entropy, as a share of all")


@record
class RouterTiming:
    """What a router costs."""

    router: str
    fit_seconds: float | None = doc("all heads of one setting, without the pass that all share")
    route_us: float | None = doc("microseconds to route one query of one head")


Kinds = dict[str, np.ndarray]


@dataclass
class Curves:
    """Recall and selectivity of routers, means over the queries of a document: `recall[cell][kind]` and
    `selectivity[cell][kind]` float32 [documents, N, p], N heads in the order of `heads` (layer, head), at the budgets
    `points` [p]; `queries[cell]` [documents, N] that had any far mass; NaN where a document had none."""

    heads: list[tuple[int, int]]
    points: list[int]
    buckets: int
    recall: dict[Cell, Kinds]
    selectivity: dict[Cell, Kinds]
    queries: dict[Cell, np.ndarray]


def score_routers(
    context: Context, model: Model, prompts: list[Prompt], fitted: Fitted, begin: float = 0.7
) -> tuple[Curves, dict[str, float], list[BucketBalance]]:
    """Every router of every cell on prompts that calibrated nothing; also microseconds to route one query of one head
    by kind (scores of all buckets and the best C / 32 of them), and the balance of the buckets."""
    cells, partitions = list(fitted.routers), list(fitted.partitions.values())
    heads = [(layer, head) for layer, layer_heads in fitted.heads.items() for head in layer_heads]
    place = {layer: [index for index, head in enumerate(heads) if head[0] == layer] for layer in fitted.heads}
    buckets = partitions[0].centroids[heads[0][0]].shape[1]
    points = points_for(buckets, 32 if buckets <= 512 else 64)
    point_tensor = torch.tensor(points)
    documents = 1 + max(prompt.document for prompt in prompts)
    sums: dict[str, dict[Cell, Kinds]] = {name: {cell: {} for cell in cells} for name in ("recall", "selectivity")}
    queries = {cell: np.zeros((documents, len(heads))) for cell in cells}
    counts: dict[int, Tensor] = {}
    view: dict[int, LayerView] = {}
    # Of the first layer: the largest block of queries, with its masses.
    timed: list[tuple[LayerView, Tensor, Tensor]] = []

    def take(layer: int, q: Tensor, k: Tensor) -> None:
        # Its blocks follow before the next layer's: members of one layer are held.
        view.clear()
        if layer in fitted.heads:
            view[layer] = LayerView.of(layer, fitted.heads[layer], q, k, partitions)
            counts[layer] = counts.get(layer, 0) + view[layer].member[partitions[0].name].sum(1)

    def watch(block: Block, probabilities: Tensor) -> None:
        if block.layer not in fitted.heads:
            return
        layer_view, rows = view[block.layer], place[block.layer]
        masses = cell_masses(layer_view, block, probabilities[0], cells)
        counts_of = cell_counts(layer_view, block, cells)
        scores_of: dict[tuple, Tensor] = {}
        for cell, mass in masses.items():
            # A query without any far mass says nothing of recall, and must not count for selectivity.
            valid = (mass.sum(-1, keepdim=True) > 0).to(mass)  # [h, n, 1]
            share = layer_view.per_head(counts_of[cell])
            queries[cell][document, rows] += valid.sum((1, 2)).cpu().numpy()
            for kind, router in fitted.routers[cell][block.layer].items():
                key = (cell.partition, kind, id(router))
                # Routers that read nothing of the text score alike in every cell that they serve.
                if router.reads or key not in scores_of:
                    scores_of[key] = route_scores(router, layer_view, block.rows, cell, mass, fitted)
                captured_sums = captured(scores_of[key], point_tensor.to(mass.device), mass, share * valid)
                for of_cells, values in zip(sums.values(), captured_sums, strict=True):
                    sums_of = of_cells[cell].setdefault(kind, np.zeros((documents, len(heads), len(points))))
                    sums_of[document, rows] += values.sum(1).double().cpu().numpy()
        if block.layer == heads[0][0] and (not timed or len(block.rows) > len(timed[0][1])):
            timed[:] = [(layer_view, block.rows, masses[cells[0]])]

    for number, prompt in enumerate(prompts):
        context.progress(begin + (0.98 - begin) * number / len(prompts), f"test prompt {number + 1} of {len(prompts)}")
        document = prompt.document
        read_prompt(model, prompt.ids, fitted.rotated, take, watch)
    # Of a document without any far mass nothing is known: 0 / 0 is NaN.
    with np.errstate(invalid="ignore"):
        for of_cells in sums.values():
            for cell, kinds in of_cells.items():
                for kind, values in kinds.items():
                    kinds[kind] = (values / queries[cell][:, :, None]).astype(np.float32)
    numbers = model.layer_numbers
    named = [(numbers[layer], head) for layer, head in heads]
    curves = Curves(named, points, buckets, sums["recall"], sums["selectivity"], queries)
    balance = []
    for side, counts_by_layer in (("calibration", fitted.counts), ("test", counts)):
        for layer, parts in counts_by_layer.items():
            balance += [BucketBalance(numbers[layer], part, side, **evenness(keys)) for part, keys in enumerate(parts)]
    return curves, _timed(fitted, cells[0], *timed[0]), balance


def route_scores(
    router: Router, view: LayerView, rows: Tensor, cell: Cell, mass: Tensor | None, fitted: Fitted
) -> Tensor:
    """Scores [h, n, C] of the queries at places `rows` of a prompt, with what the router reads and nothing else."""
    queries, turned = view.queries[:, rows], fitted.partitions[cell.partition].of_queries
    queries = queries @ turned[view.layer] if turned else queries
    extra: dict[str, Any] = {"mass": mass} if "mass" in router.reads else {}
    if "labels" in router.reads:
        labels = view.per_head(view.labels[cell.partition]).clone()
        labels[:, : cell.sinks] = -1
        extra |= {"positions": rows, "labels": labels, "min_distance": cell.min_distance}
    return router.scores(queries, **extra)


def _timed(fitted: Fitted, cell: Cell, view: LayerView, rows: Tensor, mass: Tensor) -> dict[str, float]:
    rows, mass = rows[:TIMED], mass[:, :TIMED]
    wanted = max(1, mass.shape[-1] // 32)
    microseconds = {}
    for kind, router in fitted.routers[cell][view.layer].items():
        rounds = []
        for _ in range(REPEATS):
            start = now()
            route_scores(router, view, rows, cell, mass, fitted).topk(wanted, -1)
            rounds.append(now() - start)
        microseconds[kind] = 1e6 * float(np.median(rounds)) / (mass.shape[0] * mass.shape[1])
    return microseconds
