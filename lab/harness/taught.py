"""The ways to choose that stand in one table: indexers, bucket routers and Focus' groups, all calibrated on the same
documents and held against the same others."""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from torch import Tensor

from analysis.fitted import Fitted
from analysis.groups.router import FocusRouter
from analysis.indexers.fit import spread_rows
from analysis.indexers.sizes import Sizes
from analysis.indexers.state import METHOD, packed
from analysis.routers.buckets import buckets_for
from analysis.routers.routing_state import RoutingState
from analysis.studies.routing.cells import Cell
from analysis.studies.routing.fit import Fitted as FittedRouters, calibrate
from analysis.studies.routing.indexers import (
    BOUNDS,
    SHUFFLED,
    TESTED,
    Fittings,
    Indexed,
    kind_of,
    score_indexers,
    targets_of,
    trained,
)
from analysis.studies.routing.passes import rotated_layers
from analysis.studies.routing.rows import NAMES, at_budget
from analysis.studies.routing.score import Curves, score_routers
from analysis.studies.routing.states import state_of
from analysis.studies.routing.texts import Prompt, heads_of, prompts_of
from analysis.studies.stored.runner import Setting
from analysis.training.focus import train_router
from analysis.training.settings import RouterTraining

MAIN, *_ = TRAINED = ("dsa", "qsa", "m3", "seer")
CLOSED, PRIOR, FOCUS = "low_rank", "static_prior", "focus_groups"
FREE = (CLOSED, "moba")
INDEXERS = (*TRAINED, *FREE)
# Those that learn the attention of another document.
NULLS = tuple(f"{kind}{SHUFFLED}" for kind in (*TRAINED, CLOSED))
# Bucket routers; the last needs no calibration. The learned ones have so many queries of a head.
BUCKETS = ("mlp", "linear_cross_entropy", "gwr_linear", "kmeans", PRIOR, "random")
QUERIES = 4096
# Groups of Focus, whose shares take as many bytes of a token as an indexer's key.
GROUPS = RouterTraining(groups=16, top=2, window=64, n_sink=4, steps=150, tokens_per_step=1024)
# One far key in so many is read.
ONE_IN = 32


@dataclass
class Taught:
    """What is calibrated on the training documents of a setting; nothing is before it is asked for."""

    run: Setting
    length: int
    calibrate: int
    min_distance: int

    @property
    def cell(self) -> Cell:
        """Far keys."""
        return Cell(self.min_distance, 0)

    @cached_property
    def prompts(self) -> list[Prompt]:
        """What all is calibrated on."""
        return prompts_of(self.run.lm, self.run.texts[0], self.length, self.calibrate, self.min_distance + 1)

    @cached_property
    def tested(self) -> list[Prompt]:
        """The held-out windows by document."""
        number = {document: place for place, document in enumerate(np.unique(self.run.documents))}
        pairs = zip(self.run.documents, self.run.windows, strict=True)
        return [Prompt(number[document], ids) for document, ids in pairs]

    @cached_property
    def targets(self) -> Fittings:
        """What indexers learn."""
        names = (*INDEXERS, f"{CLOSED}{SHUFFLED}")
        return targets_of(self.run.context, self.run.lm, self.prompts, names, Sizes(min_distance=self.min_distance))

    def indexers(self, seed: int, steps: dict[str, int], rate: float) -> Indexed:
        """Those of `steps`, name -> training steps at most, from the starts of a seed."""
        fittings: Fittings = {}
        for name, most in steps.items():
            base = name if name.startswith(CLOSED) else kind_of(name)
            for layer in range(self.run.lm.num_layers):
                about: dict[str, Any] = {"shuffled": name != kind_of(name), "steps": most, "rate": rate}
                fittings[layer, name] = self.targets[layer, base].again(seed + layer, **about)
        return trained(self.run.context, fittings)

    def state(self, fitted: Indexed) -> Fitted:
        """The indexers as the method takes them, kept in the folder of the work."""
        state = packed({place: fitting for place, fitting in fitted.fitted.items() if place[1] in INDEXERS})
        state.save(self.run.folder / f"indexers-{self.run.lm.revision}")
        return state

    def stored(self) -> Fitted:
        """What `state` kept."""
        return Fitted.load(self.run.folder / f"indexers-{self.run.lm.revision}" / f"{METHOD}.safetensors")

    @cached_property
    def buckets(self) -> FittedRouters:
        """Bucket routers of all heads; those that are trained step by step from some queries of every document."""
        lm = self.run.lm
        args = heads_of(lm), rotated_layers(lm), [self.cell], buckets_for(self.length), 0
        trained_too = ("linear_cross_entropy",)
        return calibrate(self.run.context, lm, self.prompts, *args, ablations=trained_too, most=QUERIES)

    @cached_property
    def routing(self) -> RoutingState:
        """The buckets as the method takes them."""
        return state_of(self.run.lm, self.buckets, self.cell, self.length, 0)

    @cached_property
    def groups(self) -> FocusRouter:
        """Focus' groups, the model frozen; a training that was stopped goes on."""
        ids = np.concatenate([prompt.ids for prompt in self.prompts])
        plan = RouterTraining(**vars(GROUPS) | {"length": self.length})
        place = self.run.folder / f"indexers-groups-{self.run.lm.revision}.checkpoint"
        return train_router(self.run.lm, ids, plan, place, self.run.context.progress)[0]

    def of_indexers(self, fitted: Indexed, groups: bool = False) -> dict[str, Any]:
        """Recall by indexer, with `groups` also by Focus' groups: mean over heads of each document, and each head's in
        every document."""
        lm, curves = self.run.lm, empty_curves(self.run.lm, self.length)
        others = {FOCUS: partial(of_groups, self.groups)} if groups else {}
        score_indexers(self.run.context, lm, self.tested, fitted, self.cell, curves, others=others)
        sizes = {name: fitting.sizes for (layer, name), fitting in fitted.fitted.items() if layer == 0}
        shape = lm.num_heads, lm.num_kv_heads, lm.head_dim
        by_name, whole = (
            {name: at_budget(values, curves.points, curves.buckets / ONE_IN).round(5) for name, values in parts.items()}
            for parts in (curves.recall[self.cell], fitted.whole)
        )
        by_head = {name: by_name[name].tolist() for name in (MAIN, *BOUNDS) if name in by_name}
        costs = {
            name: [size.cached(kind_of(name), *shape[1:]), size.multiplied(kind_of(name), *shape)]
            for name, size in sizes.items()
        }
        return {
            "documents": {name: np.nanmean(values, 1).round(5).tolist() for name, values in by_name.items()},
            "by_head": by_head | ({"whole": whole[MAIN].tolist()} if MAIN in whole else {}),
            "far": fitted.far.round(5).tolist(),
            "heads": curves.heads,
            "costs": costs | ({FOCUS: [2.0 * GROUPS.groups, float(GROUPS.groups)]} if groups else {}),
        }

    def of_buckets(self) -> dict[str, list[float]]:
        """Recall of bucket routers where they read as many keys, mean over heads of each document."""
        # Indexers read whole keys, which is a little more where few are far: buckets are read at the same mean share.
        far = spread_rows(self.min_distance, self.length, TESTED) + 1 - self.min_distance
        share = float(((far / ONE_IN).ceil() / far).mean())
        curves = score_routers(self.run.context, self.run.lm, self.tested, self.buckets)[0]
        recalls = {}
        for kind in BUCKETS:
            pairs = zip(curves.selectivity[self.cell][kind], curves.recall[self.cell][kind], strict=True)
            by_document = [[np.interp(share, s, r) for s, r in zip(*pair, strict=True)] for pair in pairs]
            recalls[kind] = np.nanmean(by_document, 1).round(5).tolist()
        return recalls


def of_groups(router: FocusRouter, layer: int, hidden: Tensor, rows: Tensor) -> Tensor:
    """How much of their groups queries at places `rows` share with every token, [1, n, T]."""
    shares = router.soft(layer, hidden, membership="causal")
    return (shares[rows] @ shares.T)[None]


def empty_curves(lm: Any, length: int) -> Curves:
    """Curves of all heads without any router, at a few budgets."""
    buckets = max(ONE_IN, length // 16)
    heads = [(layer, head) for layer in lm.layer_numbers for head in range(lm.num_heads)]
    points = [1, buckets // ONE_IN, buckets // 16, buckets // 8, buckets]
    return Curves(heads, sorted(set(points)), buckets, defaultdict(dict), defaultdict(dict), {})


def titled(way: str) -> str:
    """The name of a way to choose."""
    named = NAMES | {FOCUS: "Focus groups", "dense": "dense", "quest": "Quest", "snapkv": "SnapKV"}
    named |= {"bucket_routing": "GWR linear", "streaming_llm": "newest keys"}
    return named[kind_of(way)] + ", shuffled targets" * (way != kind_of(way))
