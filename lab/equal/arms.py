"""The methods of the equal-budget table: which setting of each counts keys, and which others are searched with it."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import torch

from analysis.groups.controls import shuffled
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.focus import Focus
from analysis.studies.quality.equal_budget import FIELDS, NO_CAP
from analysis.studies.stored.measured import DRAWS
from lab.equal.states import States

PARTS = (8, 4, 2)  # a budget by these is the window that a method reads beside what it chooses
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


def _grid(**axes: list) -> list[dict]:
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


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
            return METHODS["focus"].build(states.control, **settings)
        if self.variant == SAME_SIZES:
            return Dealt.build(states.of("focus"), dealt=seed, **settings)
        if self.method == "magicpig":
            settings["seed"] = seed
        state = states.of(self.method, settings.pop("clusters", None))
        return METHODS[self.method].build(state, **settings)

    def told(self, states: States) -> dict:
        """On what it was calibrated, as `States.told`."""
        return states.told(self.method, self.variant == RANDOM)

    def bounds(self, states: States, settings: dict, length: int, budget: Budget) -> tuple[int, int, int]:
        """Least and largest value of the field in windows of `length` tokens, and where to begin."""
        if self.by_window:
            return 1, length, max(1, round(budget.target / 2))
        return self.make(states, settings).budget_range(length, budget.target)


@dataclass
class Dealt(Focus):
    """Focus with its memberships dealt to the tokens by chance: as many groups of exactly the same sizes."""

    dealt: int = 0

    def token_features(self, layer: int, hidden: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor:
        groups = super().token_features(layer, hidden, real)
        seed = 1000 * self.dealt + layer
        return torch.stack([shuffled(one, seed) for one in groups])


def _buckets(budget: Budget) -> list[dict]:
    """One bucket, two, four, up to as many as hold the budget by themselves."""
    most = max(1, round(budget.share * budget.buckets))
    visited = [1 << power for power in range(most.bit_length()) if 1 << power <= most]
    return _grid(visited=visited, n_sink=budget.sinks[-2:])


def _pages(budget: Budget) -> list[dict]:
    """No layer is left dense, and three pages fit the budget."""
    fit = [page for page in (1, 2, 4, 8, 16, 32) if 3 * page <= budget.target] or [1]
    return _grid(dense_layers=[0], page=fit[-3:])


def _hashes(budget: Budget) -> list[dict]:
    """No layer is left dense; the tables meet the budget."""
    return _grid(dense_every=[0], window=budget.parts, bits=[6, 8, 10], n_sink=[4])


ENTRIES = (
    Entry("streaming_llm", free=lambda budget: _grid(n_sink=budget.sinks)),
    Entry(
        "streaming_llm",
        "cache positions",
        lambda budget: _grid(n_sink=budget.sinks, positions=["cache"]),
        rotary=True,
    ),
    Entry("longformer", "growing windows", lambda budget: _grid(n_global=budget.sinks, widths=["growing"])),
    Entry("focus", "hard groups", lambda budget: _grid(n_sink=budget.sinks)),
    Entry("focus", RANDOM, lambda budget: _grid(n_sink=budget.sinks)),
    Entry("focus", SAME_SIZES, lambda budget: _grid(n_sink=budget.sinks), seeds=DRAWS),
    Entry(
        "routing_transformer",
        free=lambda budget: _grid(clusters=[8, 16, 32, 64], rotary=["kept", "undone"], n_sink=[4]),
    ),
    Entry("bucket_routing", free=_buckets, by_window=True),
    Entry("oracle_topk"),
    Entry("csa", free=lambda budget: _grid(cap=[NO_CAP, 2 * round(budget.target), 4 * round(budget.target)])),
    Entry("quest", free=_pages),
    Entry("sparq", "mean reallocated", lambda budget: _grid(local=budget.parts)),
    Entry("sparq", "", lambda budget: _grid(local=budget.parts, reallocate=["none"])),
    Entry("magicpig", free=_hashes, seeds=DRAWS),
    Entry(
        "magicpig",
        "means of blocks",
        lambda budget: [one | {"centre": "blocks"} for one in _hashes(budget)],
        seeds=DRAWS,
        short=True,
    ),
)
