"""What the methods of the equal-budget table are calibrated with: one set of windows, the same for all of them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from analysis.fitted import Fitted
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.metrics.budgets import FLOOR, allocate_budget
from analysis.models import Model
from analysis.routers.buckets import buckets_for
from analysis.routers.state import RoutingState
from analysis.studies.budgets.ranks import measure_ranks
from analysis.studies.context import Context
from analysis.studies.groups.routers import router_for
from analysis.studies.routing.states import fit_prompts
from analysis.studies.routing.texts import Prompt


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

    def of(self, method: str, clusters: int | None = None) -> Fitted | RoutingState | FocusRouter | None:
        """What `METHODS[method].build` takes; None for a method that needs nothing."""
        if method == "focus":
            return self._routers[0]
        if method == "bucket_routing":
            return self._buckets
        if METHODS[method].needs != "calibration":
            return None
        key = method, clusters
        if key not in self._fitted:
            fitted_method = METHODS[method](**({} if clusters is None else {"clusters": clusters, "seed": self.seed}))
            self._fitted[key] = fitted_method.fit(self.lm, torch.as_tensor(self.windows)).fitted
        return self._fitted[key]

    @property
    def control(self) -> FocusRouter:
        """The router with random centroids that is stored beside that of Focus."""
        return self._routers[1]

    def policy(self, total: int, cap: int) -> dict:
        """The policy of CSA that shares out `total` keys by the ranks of the calibration windows."""
        budgets = allocate_budget(self._ranks, max(total, FLOOR * self._ranks.size))
        layers, heads = budgets.shape
        return {"layers": layers, "heads": heads, "policy": [*budgets.ravel().tolist(), cap]}

    def told(self, method: str, control: bool = False) -> dict:
        """On what a method, or the `control` of Focus, was calibrated: `calibrated` in words, `calibration_texts` and
        `calibration_tokens`."""
        if method == "focus":
            about = (self.control if control else self.of("focus")).about
            name = f"{self.router}, {about.get('kind', 'not trained')}"
            return {"calibrated": name, "calibration_texts": None, "calibration_tokens": int(about.get("tokens") or 0)}
        if not METHODS[method].needs:
            return {"calibrated": "nothing", "calibration_texts": 0, "calibration_tokens": 0}
        texts = len(set(self.documents.tolist()))
        name = f"{texts} texts of the corpus"
        return {"calibrated": name, "calibration_texts": texts, "calibration_tokens": int(self.windows.size)}

    @property
    def buckets(self) -> int:
        """How many buckets there are for a key-value head."""
        return max(4, buckets_for(self.windows.shape[1]))

    @cached_property
    def _fitted(self) -> dict[tuple[str, int | None], Fitted]:
        return {}

    @cached_property
    def _routers(self) -> tuple[FocusRouter, FocusRouter]:
        return router_for(self.context, self.lm, self.router)

    @cached_property
    def _ranks(self) -> np.ndarray:
        return measure_ranks(self.lm, self.windows, progress=self.context.progress).mean()

    @cached_property
    def _buckets(self) -> RoutingState:
        prompts = [Prompt(int(number), ids) for number, ids in zip(self.documents, self.windows, strict=True)]
        length = self.windows.shape[1]
        return fit_prompts(self.context, self.lm, prompts, length, self.buckets, self.seed)
