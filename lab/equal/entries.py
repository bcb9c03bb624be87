"""The methods of the equal-budget table: which setting of each counts keys, which others are searched with it, and what
they are calibrated with: one set of windows, the same for all of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch

from analysis.groups.controls import shuffled
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.focus import Focus
from analysis.metrics.budgets import FLOOR, allocate_budget
from analysis.models import Model
from analysis.routers.buckets import buckets_for
from analysis.studies.budgets.ranks import measure_ranks
from analysis.studies.context import Context
from analysis.studies.groups.routers import router_for
from analysis.studies.quality.equal_budget import FIELDS, NO_CAP
from analysis.studies.routing.states import fit_prompts
from analysis.studies.routing.texts import Prompt
from analysis.studies.stored.measured import DRAWS

# A budget by these is the window that a method reads beside what it chooses.
PARTS = (8, 4, 2)
RANDOM, SAME_SIZES = "random groups", "the same sizes at random"


@dataclass(frozen=True)
class Budget:
    """`target` keys of a query on average, which are `share` of the causal pairs, of a model with so many `buckets`."""

    target: float
    share: float
    buckets: int

    @property
    def parts(self) -> list[int]:
        """Windows worth trying for a method that reads one beside what it chooses."""
        return sorted({max(1, round(self.target / part)) for part in PARTS})

    @property
    def sinks(self) -> list[int]:
        """Numbers of first tokens worth trying: at most half of the budget."""
        return [few for few in (1, 4, 16) if few <= self.target / 2] or [1]


@dataclass
class States:
    """The fitted state of every method, each made when it is asked for.

    `windows` int64 [n, T] of the calibration texts and `documents` [n], which text each is of. `router` names the
    router of Focus, which is not calibrated here: it was trained.
    """

    context: Context
    lm: Model
    windows: np.ndarray
    documents: np.ndarray
    router: str
    seed: int = 0

    def of(self, method: str, clusters: int | None = None) -> Any:
        """What `METHODS[method].build` takes; None for a method that needs nothing."""
        if method == "focus":
            return self.routers[0]
        if method == "bucket_routing":
            return self._buckets
        if METHODS[method].needs != "calibration":
            return None
        if (method, clusters) not in self._fitted:
            chosen = {} if clusters is None else {"clusters": clusters, "seed": self.seed}
            fitted = METHODS[method](**chosen).fit(self.lm, torch.as_tensor(self.windows))
            self._fitted[method, clusters] = vars(fitted)["fitted"]
        return self._fitted[method, clusters]

    def policy(self, total: int, cap: int) -> dict:
        """The policy of CSA that shares out `total` keys by the ranks of the calibration windows."""
        budgets = allocate_budget(self._ranks, max(total, FLOOR * self._ranks.size))
        layers, heads = budgets.shape
        return {"layers": layers, "heads": heads, "policy": [*budgets.ravel().tolist(), cap]}

    def told(self, method: str, control: bool = False) -> dict[str, Any]:
        """On what a method, or the control of Focus, was calibrated: `calibrated` in words, `calibration_texts` and
        `calibration_tokens`."""
        if method == "focus":
            about = self.routers[control].about
            name, tokens = f"{self.router}, {about.get('kind', 'not trained')}", int(about.get("tokens") or 0)
            return {"calibrated": name, "calibration_texts": None, "calibration_tokens": tokens}
        if not METHODS[method].needs:
            return {"calibrated": "nothing", "calibration_texts": 0, "calibration_tokens": 0}
        texts, tokens = len(set(self.documents.tolist())), int(self.windows.size)
        return {"calibrated": f"{texts} texts of the corpus", "calibration_texts": texts, "calibration_tokens": tokens}

    @property
    def buckets(self) -> int:
        """How many buckets there are for a key-value head."""
        return max(4, buckets_for(self.windows.shape[1]))

    @cached_property
    def routers(self) -> tuple[FocusRouter, FocusRouter]:
        """That of Focus, and the one with random centroids that is stored beside it."""
        return router_for(self.context, self.lm, self.router)

    @cached_property
    def _fitted(self) -> dict[tuple[str, int | None], Any]:
        return {}

    @cached_property
    def _ranks(self) -> np.ndarray:
        return measure_ranks(self.lm, self.windows, progress=self.context.progress).mean()

    @cached_property
    def _buckets(self) -> Any:
        prompts = [Prompt(int(number), ids) for number, ids in zip(self.documents, self.windows, strict=True)]
        return fit_prompts(self.context, self.lm, prompts, self.windows.shape[1], self.buckets, self.seed)


@dataclass
class Dealt(Focus):
    """Focus with its memberships dealt to the tokens by chance: as many groups of exactly the same sizes."""

    dealt: int = 0

    def token_features(self, layer: int, hidden: torch.Tensor, not_padding: torch.Tensor | None) -> torch.Tensor:
        groups = super().token_features(layer, hidden, not_padding)
        assert groups is not None, "every layer has groups"
        return torch.stack([shuffled(of_text, 1000 * self.dealt + layer) for of_text in groups])


@dataclass(frozen=True)
class Entry:
    """One line of the table: a method, what tells it from another line of it, and `free`, the settings that are tried
    at a budget beside the one that counts keys. `by_window`: the window is set to meet the budget, in place of what
    usually counts the method's keys. `seeds`: how many draws are averaged. `rotary`: only for rotary positions.
    `short`: only in the shorter context, where a pass takes long."""

    method: str
    variant: str = ""
    free: Callable[[Budget], list[dict]] = lambda budget: [{}]
    by_window: bool = False
    seeds: int = 1
    rotary: bool = False
    short: bool = False

    @property
    def label(self) -> str:
        """The name of the line."""
        return ", ".join(filter(None, [METHODS[self.method].title, self.variant]))

    @property
    def field(self) -> str:
        """The setting that is set to meet the budget."""
        return "window" if self.by_window else FIELDS[self.method]

    def make(self, states: States, settings: dict, seed: int = 0) -> Method:
        """The method with these settings and what `states` calibrated."""
        settings = dict(settings)
        if self.method == "csa":
            total, cap = settings.pop("total", 0), settings.pop("cap")
            return METHODS["csa"].build(states.policy(total, cap), **settings)
        if self.variant == RANDOM:
            return METHODS["focus"].build(states.routers[1], **settings)
        if self.variant == SAME_SIZES:
            return Dealt.build(states.of("focus"), dealt=seed, **settings)
        if self.method == "magicpig":
            settings["seed"] = seed
        state = states.of(self.method, settings.pop("clusters", None))
        return METHODS[self.method].build(state, **settings)

    def bounds(self, states: States, settings: dict, length: int, budget: Budget) -> tuple[int, int, int]:
        """Least and largest value of the field in windows of `length` tokens, and where to begin."""
        if self.by_window:
            return 1, length, max(1, round(budget.target / 2))
        return self.make(states, settings).budget_range(length, budget.target)


def _grid(**axes: list) -> list[dict]:
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def _sinks(**fixed: Any) -> Callable[[Budget], list[dict]]:
    return lambda budget: [{"n_sink": few} | fixed for few in budget.sinks]


def _buckets(budget: Budget) -> list[dict]:
    """One bucket, two, four, up to as many as hold the budget by themselves."""
    fewest = max(1, round(budget.share * budget.buckets))
    visited = [1 << power for power in range(fewest.bit_length()) if 1 << power <= fewest]
    return _grid(visited=visited, n_sink=budget.sinks[-2:])


def _pages(budget: Budget) -> list[dict]:
    """No layer is left dense, and three pages fit the budget."""
    fit = [page for page in (1, 2, 4, 8, 16, 32) if 3 * page <= budget.target] or [1]
    return _grid(dense_layers=[0], page=fit[-3:])


def _hashes(**fixed: Any) -> Callable[[Budget], list[dict]]:
    """No layer is left dense; the tables meet the budget."""

    def grid(budget: Budget) -> list[dict]:
        return [
            grid_point | fixed
            for grid_point in _grid(dense_every=[0], window=budget.parts, bits=[6, 8, 10], n_sink=[4])
        ]

    return grid


def _sparq(**fixed: Any) -> Callable[[Budget], list[dict]]:
    return lambda budget: [{"local": part} | fixed for part in budget.parts]


CLUSTERS: dict[str, list] = {"clusters": [8, 16, 32, 64], "rotary": ["kept", "undone"], "n_sink": [4]}
ENTRIES = (
    Entry("streaming_llm", free=_sinks()),
    Entry("streaming_llm", "cache positions", _sinks(positions="cache"), rotary=True),
    Entry("longformer", "growing windows", lambda budget: _grid(n_global=budget.sinks, widths=["growing"])),
    Entry("focus", "hard groups", _sinks()),
    Entry("focus", RANDOM, _sinks()),
    Entry("focus", SAME_SIZES, _sinks(), seeds=DRAWS),
    Entry("routing_transformer", free=lambda budget: _grid(**CLUSTERS)),
    Entry("bucket_routing", free=_buckets, by_window=True),
    Entry("oracle_topk"),
    Entry("csa", free=lambda budget: _grid(cap=[NO_CAP, 2 * round(budget.target), 4 * round(budget.target)])),
    Entry("quest", free=_pages),
    Entry("sparq", "mean reallocated", _sparq()),
    Entry("sparq", "", _sparq(reallocate="none")),
    Entry("magicpig", free=_hashes(), seeds=DRAWS),
    Entry("magicpig", "means of blocks", _hashes(centre="blocks"), seeds=DRAWS, short=True),
)
