"""Indexers beside bucket routers: fitted on the documents that calibrate, held against the attention of the others at
equal keys read; the best that one selection for a layer, a group or a head could find; the heads that sharing starves.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...answer import doc, record
from ...commands.routing import STEPS
from ...errors import BadSetting
from ...fitted import FOLDER
from ...indexers import INDEXERS
from ...indexers.base import Indexer, Inputs
from ...indexers.fit import FittedIndexer, Look, reachable, spread_rows
from ...indexers.reading import Fittings, read_layers, targets
from ...indexers.sizes import Sizes
from ...indexers.state import METHOD, packed
from ...kernels.parts import now
from ...models import Model
from ..context import Context
from ..text.held_out import storing
from .cells import Cell
from .passes import rotated_layers
from .rows import at_budget
from .score import Curves
from .texts import Prompt

# The null that learns the targets of another document.
SHUFFLED = "_shuffled"
# What any choice of so many keys could find, where a layer, a key-value group or a head makes one.
BOUNDS = {"oracle_layer": "layer", "oracle_group": "group", "oracle_head": "head"}
RECENT = "recent_keys"
# How `route` trains them.
TRAINING: dict[str, Any] = {"steps": STEPS, "rate": 3e-3}
# Queries of a test prompt that are held against their attention.
TESTED = 96


@record
class IndexerRow:
    """One indexer over all layers."""

    kind: str
    shares: str = doc("who reads by one selection: a layer, a key-value group or a head")
    recall: float = doc("share of the far attention in the keys read, mean over heads")
    whole: float = doc("share of all attention, where the nearer keys and the first ones left out are read too")
    cached: float = doc("bytes that it caches of a token in a layer, in 16 bits")
    multiplied: float = doc("multiply-adds for a query and a key")
    seconds: float = doc("to fit all layers")
    curve: list[dict] = doc("step, and nats of divergence on selection documents, mean over layers")


@dataclass
class Indexed:
    """Fitted indexers by (place of the layer, name), seconds by name, and where they were tested `whole` [documents, N,
    p]: shares of all attention as `Curves.recall` is of the far one, and `far` [documents, N], how much that is."""

    fitted: dict[tuple[int, str], FittedIndexer]
    seconds: dict[str, float]
    whole: dict[str, np.ndarray] = field(default_factory=dict)
    far: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))


def kind_of(name: str) -> str:
    """The kind of an indexer or of its null."""
    return name.removesuffix(SHUFFLED)


# Of a layer's place, its hidden states [T, d] and the places of queries [n]: scores of every key, [S, n, T].
Scorer = Callable[[int, Tensor, Tensor], Tensor]


def targets_of(
    context: Context, lm: Model, prompts: list[Prompt], names: Iterable[str], sizes: Sizes, seed: int = 0
) -> Fittings:
    """What indexers of all layers learn from prompts that calibrate, by (place of the layer, name): one pass over each.
    Errors: BadSetting for an unknown name."""
    names = list(dict.fromkeys(names))
    if strange := [name for name in names if kind_of(name) not in INDEXERS]:
        raise BadSetting(f"There is no indexer {strange[0][:40]!r}; there are: {', '.join(INDEXERS)}.")
    if any(INDEXERS[kind_of(name)].reads == "plain" for name in names) and len(set(rotated_layers(lm))) > 1:
        raise BadSetting(
            "Some layers of this model rotate nothing, and what seer reads before a rotation is not told apart there: "
            "leave seer out."
        )

    def texts() -> Iterator[np.ndarray]:
        for number, prompt in enumerate(prompts):
            context.progress(number / len(prompts), f"targets of prompt {number + 1}")
            yield prompt.ids

    return targets(lm, texts(), {name: kind_of(name) for name in names}, sizes, seed)


def trained(context: Context, fittings: Fittings) -> Indexed:
    """Every indexer fitted to its targets."""
    fitted, seconds = {}, dict.fromkeys((name for _, name in fittings), 0.0)
    for number, ((layer, name), fitting) in enumerate(sorted(fittings.items())):
        context.progress(number / len(fittings), f"indexer {name}, layer {layer}")
        start = now()
        fitted[layer, name] = fitting.fit(progress=_shown(context, name, layer))
        seconds[name] += now() - start
    return Indexed(fitted, seconds)


def fit_indexers(
    context: Context, lm: Model, prompts: list[Prompt], names: Iterable[str], sizes: Sizes, seed: int = 0
) -> Indexed:
    """Indexers of all layers from prompts that calibrate. Errors: as `targets_of`."""
    fittings = targets_of(context.within(0.0, 0.3), lm, prompts, names, sizes, seed)
    return trained(context.within(0.3, 0.7), fittings)


def _shown(context: Context, name: str, layer: int) -> Callable[[Look], None]:
    """Shows the learning curve of one layer as it grows."""
    looks: list[Look] = []

    def look(new: Look) -> None:
        looks.append(new)
        context.show({"step": [x.step for x in looks], f"{name}, layer {layer}": [x.selection for x in looks]})

    return look


def score_indexers(
    context: Context,
    lm: Model,
    prompts: list[Prompt],
    indexed: Indexed,
    cell: Cell,
    curves: Curves,
    others: Mapping[str, Scorer] | None = None,
) -> None:
    """Adds indexers, `others`, the best selections and the newest keys to the curves of a cell, all heads: at every
    kept budget l of C buckets they read the share l / C of the far keys. Some evenly spaced queries of each prompt are
    tested."""
    names = sorted({name for _, name in indexed.fitted})
    shares = torch.tensor(curves.points) / curves.buckets
    documents = 1 + max(prompt.document for prompt in prompts)
    shape = documents, len(curves.heads), len(curves.points)
    sums = {part: defaultdict[str, np.ndarray](lambda: np.zeros(shape)) for part in ("recall", "selectivity", "whole")}
    queries, masses = (np.zeros((documents, len(curves.heads), 1)) for _ in range(2))
    sizes = Sizes(min_distance=cell.min_distance, sinks=cell.sinks)
    held: dict[str, Inputs] = {}

    def take(layer: int, inputs: dict[str, Inputs]) -> None:
        held.clear()
        held.update(inputs)

    def watch(layer: int, rows: Tensor, attention: Tensor) -> None:
        some = torch.isin(rows, spread_rows(cell.tokens_needed - 1, attention.shape[-1], TESTED).to(rows.device))
        rows, attention = rows[some], attention[:, some]
        allowed = reachable(rows, attention.shape[-1], sizes)
        far = attention * allowed  # [H, n, T]
        mass, count = far.sum(-1, keepdim=True), allowed.sum(-1, keepdim=True)
        budget = (count * shares.to(far) - 1e-4).ceil().long().clamp(min=1)  # [n, p]
        place = slice(layer * lm.num_heads, (layer + 1) * lm.num_heads)
        valid = (mass > 1e-30).to(far)
        queries[document, place] += valid.sum(1).cpu().numpy()
        masses[document, place] += mass.sum(1).cpu().numpy()

        def add(name: str, scores: Tensor) -> None:
            """Of scores [S, n, T]."""
            order = scores.masked_fill(~allowed, -torch.inf).sort(stable=True, dim=-1, descending=True).indices
            sorted_mass = far.gather(-1, order.repeat_interleave(len(far) // len(order), 0)).cumsum(-1)
            found = sorted_mass.gather(-1, (budget - 1).expand(len(far), -1, -1))  # [H, n, p]
            parts = {
                "recall": found / mass.clamp(min=1e-30),
                "selectivity": (budget / count).expand_as(found) * valid,
                "whole": 1 - mass + found,
            }
            for part, values in parts.items():
                sums[part][name][document, place] += (values * valid).sum(1).double().cpu().numpy()

        for name in names:
            add(name, token_scores(indexed.fitted[layer, name].indexer, held, rows, attention.shape[-1]))
        for name, scorer in (others or {}).items():
            add(name, scorer(layer, held[""].hidden, rows))
        for name, shared in BOUNDS.items():
            selections = {"layer": 1, "group": lm.num_kv_heads, "head": lm.num_heads}[shared]
            add(name, far.unflatten(0, (selections, -1)).sum(1))
        add(RECENT, torch.arange(attention.shape[-1], device=far.device).expand(1, len(rows), -1).float())

    for number, prompt in enumerate(prompts):
        context.progress(number / len(prompts), f"indexers on test prompt {number + 1}")
        document = prompt.document
        read_layers(lm, prompt.ids, {"", *(INDEXERS[kind_of(name)].reads for name in names)}, take, watch)
    with np.errstate(invalid="ignore"):
        for part, target in (("recall", curves.recall), ("selectivity", curves.selectivity)):
            target[cell] |= {name: (x / queries).astype(np.float32) for name, x in sums[part].items()}
        indexed.whole |= {name: x / queries for name, x in sums["whole"].items()}
        indexed.far = (masses / queries)[..., 0]


def keep_indexers(context: Context, lm: Model, indexed: Indexed, about: dict) -> list[str]:
    """Store the indexers, without their nulls, for the method of this name; the note beside the tensors says how they
    were made. Returns sentences about the runs that used earlier ones."""
    useful = {key: fitted for key, fitted in indexed.fitted.items() if key[1] in INDEXERS}
    folder = context.state_dirs(lm)[0] / FOLDER
    with storing("indexers", folder):
        packed(useful, model=lm.name, revision=lm.revision, protocol=about).save(folder)
    return context.forget("method", METHOD, lm)


def token_scores(indexer: Indexer, inputs: dict[str, Inputs], rows: Tensor, tokens: int) -> Tensor:
    """What an indexer gives every key of a text, [S, n, T], for queries at places `rows`: of a block the score of the
    block, and of an own block that has none yet the highest, since it is read meanwhile."""
    features = indexer.features(inputs[indexer.reads], rows)
    tables = indexer.tables(torch.arange(tokens, device=rows.device))
    scores = indexer.scores(features, tables.at(rows), tables, rows)
    scores = scores.masked_fill(indexer.unseen(rows, tokens), 1e9)
    return scores.repeat_interleave(indexer.unit, -1)[..., :tokens]


def indexer_rows(lm: Model, indexed: Indexed, curves: Curves, cell: Cell, visited: float) -> list[IndexerRow]:
    """One row per indexer at a budget, the one that finds most first."""
    rows = []
    for name in {name for _, name in indexed.fitted}:
        kind, of_layers = kind_of(name), [x for (_, other), x in indexed.fitted.items() if other == name]
        sizes, shape = of_layers[0].sizes, (lm.num_heads, lm.num_kv_heads, lm.head_dim)
        found = [
            np.nanmean(at_budget(x, curves.points, visited)) for x in (curves.recall[cell][name], indexed.whole[name])
        ]
        rows.append(
            IndexerRow(
                kind=name,
                shares=INDEXERS[kind].shares,
                recall=float(found[0]),
                whole=float(found[1]),
                cached=sizes.cached(kind, *shape[1:]),
                multiplied=sizes.multiplied(kind, *shape),
                seconds=indexed.seconds.get(name, 0.0),
                curve=_mean_curve([x.curve for x in of_layers]),
            )
        )
    return sorted(rows, key=lambda row: -row.recall)


def _mean_curve(curves: list[list[Look]]) -> list[dict]:
    """Over layers; a layer that stopped counts on with its best look."""
    steps = sorted({look.step for curve in curves for look in curve})
    best = [[min(x.selection for x in curve if x.step <= step) for curve in curves if curve] for step in steps]
    return [{"step": step, "selection": float(np.mean(row))} for step, row in zip(steps, best, strict=True)]
