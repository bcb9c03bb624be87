"""The methods of the equal-budget table: which setting of each counts keys, and what is set with the budget."""

from collections.abc import Callable
from dataclasses import dataclass

from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.models import Model
from analysis.studies.context import Context
from analysis.studies.groups.routers import router_for
from analysis.studies.quality.equal_budget import FIELDS, at_budget
from analysis.studies.ready.candidates import candidates

QUARTER = 4  # of a budget is the window that a method reads beside what it chooses
PAGES = 6  # pages of Quest that a budget is to hold at least
PAGE = 16  # keys of a page at most
RANDOM = "random groups"


@dataclass(frozen=True)
class Budget:
    """`target` keys of a query on average, which are `share` of the causal pairs, of a model with so many `buckets`."""

    target: float
    share: float
    buckets: int

    @property
    def part(self) -> int:
        """Keys of the window that a method reads beside what it chooses."""
        return max(1, round(self.target / QUARTER))


@dataclass(frozen=True)
class Entry:
    """One line of the table: a method, the field that is searched, and its other settings for a budget."""

    label: str
    method: str
    field: str
    settings: Callable[[Budget], dict] = lambda budget: {}

    def spec(self, value: int, budget: Budget) -> dict:
        """The method at a value of its field, in the words of `evaluate`."""
        settings = self.settings(budget)
        return at_budget({"name": self.method} | ({"settings": settings} if settings else {}), value)

    def make(self, context: Context, lm: Model, router: str, spec: dict) -> Method:
        """The method itself; random groups are those of the control that is stored beside the router."""
        if self.label == RANDOM:
            return METHODS["focus"].build(router_for(context, lm, router)[1], **spec["settings"])
        return candidates(context, lm, [spec | ({"router": router} if self.method == "focus" else {})])[0].method

    def bounds(self, context: Context, lm: Model, router: str, length: int, budget: Budget) -> tuple[int, int, int]:
        """Least and largest value of the field in windows of `length` tokens, and where to begin."""
        plain = {"name": self.method, "settings": self.settings(budget)}
        return self.make(context, lm, router, plain).budget_range(length, budget.target)


def _page(budget: Budget) -> dict:
    """No layer is left dense, and the pages are small enough that several of them make the budget."""
    page = PAGE
    while page > 1 and PAGES * page > budget.target:
        page //= 2
    return {"dense_layers": 0, "page": page}


def _sampled(budget: Budget) -> dict:
    """No layer is left dense; fewer bits where many keys are to be found."""
    bits = 10 if budget.share <= 0.1 else 8 if budget.share <= 0.25 else 6
    return {"dense_every": 0, "window": budget.part, "bits": bits}


ENTRIES = (
    Entry("StreamingLLM", "streaming_llm", "window"),
    Entry("Longformer, growing windows", "longformer", "window", lambda budget: {"n_global": 4, "widths": "growing"}),
    Entry("Focus, hard groups", "focus", "window"),
    Entry(RANDOM, "focus", "window"),
    Entry("Routing Transformer", "routing_transformer", "window"),
    Entry(
        "bucket routing", "bucket_routing", "window",
        lambda budget: {"visited": max(1, round(budget.share * budget.buckets / 2)), "n_sink": 4},
    ),
    Entry("top-k oracle", "oracle_topk", "k"),
    Entry("CSA", "csa", FIELDS["csa"]),
    Entry("Quest", "quest", "budget", _page),
    Entry("SparQ, mean reallocated", "sparq", "k", lambda budget: {"local": budget.part}),
    Entry("SparQ", "sparq", "k", lambda budget: {"local": budget.part, "reallocate": "none"}),
    Entry("MagicPIG", "magicpig", "tables", _sampled),
)  # fmt: skip
