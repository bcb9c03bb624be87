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
    """One line of the table: a method, what tells it from another line of it, its settings for a budget, and whether
    its window is searched in place of what usually counts its keys."""

    method: str
    variant: str = ""
    settings: Callable[[Budget], dict] = lambda budget: {}
    by_window: bool = False

    @property
    def label(self) -> str:
        """The name of the line."""
        return ", ".join(filter(None, [METHODS[self.method].title, self.variant]))

    @property
    def field(self) -> str:
        """What is searched."""
        return "window" if self.by_window else FIELDS[self.method]

    def spec(self, value: int, budget: Budget) -> dict:
        """The method at a value of its field, in the words of `evaluate`."""
        settings = self.settings(budget)
        if self.by_window:
            return {"name": self.method, "settings": settings | {self.field: value}}
        return at_budget({"name": self.method} | ({"settings": settings} if settings else {}), value)

    def make(self, context: Context, lm: Model, router: str, spec: dict) -> Method:
        """The method itself; random groups are those of the control that is stored beside the router."""
        if self.variant == RANDOM:
            return METHODS["focus"].build(router_for(context, lm, router)[1], **spec["settings"])
        return candidates(context, lm, [spec | ({"router": router} if self.method == "focus" else {})])[0].method

    def bounds(self, context: Context, lm: Model, router: str, length: int, budget: Budget) -> tuple[int, int, int]:
        """Least and largest value of the field in windows of `length` tokens, and where to begin."""
        if self.by_window:
            return 1, length, round(budget.target)
        plain = {"name": self.method, "settings": self.settings(budget)}
        return self.make(context, lm, router, plain).budget_range(length, budget.target)


def _visited(budget: Budget) -> dict:
    """Half of the budget is what the buckets hold, the window the rest."""
    return {"visited": max(1, round(budget.share * budget.buckets / 2)), "n_sink": 4}


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
    Entry("streaming_llm"),
    Entry("longformer", "growing windows", lambda budget: {"n_global": 4, "widths": "growing"}),
    Entry("focus", "hard groups"),
    Entry("focus", RANDOM),
    Entry("routing_transformer"),
    Entry("bucket_routing", "", _visited, by_window=True),
    Entry("oracle_topk"),
    Entry("csa"),
    Entry("quest", "", _page),
    Entry("sparq", "mean reallocated", lambda budget: {"local": budget.part}),
    Entry("sparq", "", lambda budget: {"local": budget.part, "reallocate": "none"}),
    Entry("magicpig", "", _sampled),
)
