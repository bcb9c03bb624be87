"""What a search tries: methods at several settings, and what each loses on text, here or on other workers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from ...commands.quality import Search
from ...errors import BadSetting
from ...methods import METHODS
from ...models import Model
from ..context import Context
from ..ready.candidates import FAMILIES, Candidate, candidates
from ..text.held_out import ids_hash
from ..text.scoring import score_window
from .equal_budget import FIELDS, ladder
from .following import NOTHING, Stretches, follow

# Per cent of the keys that are kept or read, or of a rule's own scale.
STEPS = (5, 10, 15, 25, 35, 50, 75)
# What a reader asks of another worker.
PART = "search-part"
# Of a method that keeps the last tokens of a prompt: a shorter prompt is mostly window.
WINDOWS = 8


@dataclass
class Arm:
    """A method at one setting, with what it lost so far."""

    candidate: Candidate
    # The method as a study is asked for it.
    spec: dict
    losses: list[list[float]] = field(default_factory=list)  # [stretches][positions]
    # Per stretch: share of the cache, blocks or causal pairs.
    budgets: list[float] = field(default_factory=list)

    @property
    def budget(self) -> float:
        """The mean share over the stretches."""
        return float(np.mean(self.budgets))

    def change(self, dense: "Arm") -> float:
        """By how much it raises the perplexity of dense attention, on the stretches it has read."""
        differences = np.array(self.losses) - np.array(dense.losses[: len(self.losses)])
        return float(np.expm1(differences.mean()))

    def add(self, measured: dict) -> None:
        """Take in `losses` and `budgets` of more stretches."""
        self.losses += measured["losses"]
        self.budgets += measured["budgets"]


def arm(context: Context, lm: Model, spec: dict) -> Arm:
    """A method as it is asked for. Errors: as `candidates`."""
    return Arm(candidates(context, lm, [spec], FAMILIES)[0], spec)


def arms(context: Context, lm: Model, request: Search, texts: Stretches, first: int) -> list[Arm]:
    """Every method at seven settings, the others as they are given; settings that come out alike count once.

    Methods that save reads are set so that they read these shares of the causal pairs of the stretch `first`; unless
    methods are given, those that look at every key to choose are left out. Errors: BadSetting, also for a prompt in
    which the window that a method always keeps leaves nothing to choose: rules would read alike.
    """
    saves, methods = request.saves, request.methods
    if methods is None:
        able = [candidate for candidate in candidates(context, lm, None, (saves,)) if not candidate.method.dense]
        if saves == "reads":
            able = [candidate for candidate in able if candidate.name in FIELDS and not candidate.method.ceiling]
        methods = [{"name": candidate.name} for candidate in able]
    if not methods:
        raise BadSetting("A search needs at least one method: name one.")
    distinct: dict[str, Arm] = {}
    for index, spec in enumerate(methods):
        method = arm(context, lm, spec).candidate.method
        if method.saves != saves or method.dense:
            raise BadSetting(f"{method.title} does not save what is searched for, {saves}: leave it out.")
        if method.reads_future:
            raise BadSetting(f"{method.title} lets later tokens decide here, so it saves nothing: change that setting.")
        if saves == "reads":
            inner = context.within(0.1 * index / len(methods), 0.1 / len(methods))
            specs = ladder(inner, lm, spec, texts.windows[first], [step / 100 for step in STEPS])
        else:
            settings = spec.get("settings") or {}
            specs = [spec | {"settings": {**settings, **METHODS[spec["name"]].at_step(step)}} for step in STEPS]
        for stepped in specs:
            tried = arm(context, lm, stepped)
            window = tried.candidate.settings.get("window", 0)
            if saves != "reads" and texts.prefix < WINDOWS * window:
                raise BadSetting(
                    f"The prompts have {texts.prefix:,} tokens and {method.title} always keeps {window:,} of them: "
                    f"give prompts of {WINDOWS * window:,} or more tokens, or a smaller window."
                )
            distinct.setdefault(f"{tried.candidate.label} {tried.candidate.settings}", tried)
    return list(distinct.values())


@dataclass(frozen=True)
class ArmReader:
    """Reads stretches of text, by their places, under methods. Where other workers help, they are asked; else the
    measurements are stored, so that a stopped search goes on."""

    context: Context
    lm: Model
    request: Search
    texts: Stretches

    def __call__(self, tasks: Sequence[tuple[Arm, Sequence[int]]], began: float, share: float) -> None:
        """Add to every arm what it loses on its stretches; `began` and `share` of the search's progress."""
        inner = self.context.within(began, share)
        if self.context.others is None:
            for index, (tried, places) in enumerate(tasks):
                tried.add(self.measure(inner, tried.candidate, places, index / len(tasks)))
            return
        search = self.request.arguments
        requests = [search | {"method": tried.spec, "places": list(places)} for tried, places in tasks]
        answers = self.context.others(PART, requests, inner.progress)
        for (tried, _), measured in zip(tasks, answers, strict=True):
            tried.add(measured)

    def measure(self, context: Context, candidate: Candidate, places: Sequence[int], done: float = 0.0) -> dict:
        """`losses` and `budgets` of a method on some stretches."""
        windows, prefix, saves = self.texts.windows[list(places)], self.texts.prefix, self.request.saves

        def make(_: object) -> dict:
            losses, budgets = [], []
            for window in windows:
                context.progress(done, candidate.label)
                loss, budget = self._read(candidate, torch.as_tensor(window))
                losses.append(loss.tolist())
                budgets.append(budget)
            return {"losses": losses, "budgets": budgets}

        decides = [self.lm.revision, str(self.lm.dtype), candidate.label, candidate.settings, prefix, ids_hash(windows)]
        folder = context.state_dirs(self.lm)[0] / "work"
        return context.part(folder, f"search-{saves}-{candidate.name}", decides, make)

    def _read(self, candidate: Candidate, window: torch.Tensor) -> tuple[np.ndarray, float]:
        """(losses, share kept or read) of one stretch: of all its tokens for methods that save reads, else of those
        after the prompt."""
        if self.request.saves == "reads":
            losses, reads = score_window(self.lm, candidate.method, window)
            return losses, reads.reads_causal
        measured = follow(self.lm, candidate.method, window, self.texts.prefix, NOTHING)
        budget = measured.keys / self.texts.prefix if measured.blocks is None else measured.blocks
        return measured.losses, budget
