"""What a search tries: methods at several settings, and what each loses on text, here or on other workers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.models import Model
from analysis.studies.context import Context
from analysis.studies.quality.equal_budget import FIELDS, ladder
from analysis.studies.quality.following import NOTHING, follow
from analysis.studies.ready.candidates import FAMILIES, Candidate, candidates
from analysis.studies.text.held_out import ids_hash
from analysis.studies.text.scoring import score_window

STEPS = (5, 10, 15, 25, 35, 50, 75)  # per cent of the keys that are kept or read, or of a rule's own scale
PART = "search-part"  # what a reader asks of another worker


@dataclass
class Arm:
    """A method at one setting, with what it lost so far: `losses` of stretches [n, positions], and the `budgets` of
    each: the share of the KV cache that it held, of the blocks, or of the causal pairs that it read. `spec`: the method
    as a study is asked for it."""

    candidate: Candidate
    spec: dict
    losses: list[list[float]] = field(default_factory=list)
    budgets: list[float] = field(default_factory=list)

    @property
    def budget(self) -> float:
        """The mean share over the stretches."""
        return float(np.mean(self.budgets))

    def change(self, dense: "Arm") -> float:
        """By how much it raises the perplexity of dense attention, on the stretches it has read."""
        apart = np.array(self.losses) - np.array(dense.losses[: len(self.losses)])
        return float(np.expm1(apart.mean()))

    def add(self, found: dict) -> None:
        """Take in `losses` and `budgets` of more stretches."""
        self.losses += found["losses"]
        self.budgets += found["budgets"]


def arm(context: Context, lm: Model, spec: dict) -> Arm:
    """A method as it is asked for. Errors: as `candidates`."""
    return Arm(candidates(context, lm, [spec], FAMILIES)[0], spec)


def arms(context: Context, lm: Model, saves: str, methods: list[dict] | None, window: np.ndarray) -> list[Arm]:
    """Every method at seven settings, the others as they are given; settings that come out alike count once.

    Methods that save reads are set so that they read these shares of the causal pairs of `window`; unless methods are
    given, those that look at every key to choose are left out. Errors: BadSetting.
    """
    asked = _usual(context, lm, saves) if methods is None else methods
    if not asked:
        raise BadSetting("A search needs at least one method: name one.")
    found: dict[str, Arm] = {}
    for at, one in enumerate(asked):
        mine = arm(context, lm, one).candidate.method
        if mine.saves != saves or mine.dense:
            raise BadSetting(f"{mine.title} does not save what is searched for, {saves}: leave it out.")
        if mine.reads_future:
            raise BadSetting(f"{mine.title} lets later tokens decide here, so it saves nothing: change that setting.")
        if saves == "reads":
            specs = ladder(context.within(0.1 * at / len(asked), 0.1 / len(asked)), lm, one, window, _shares())
        else:
            given = one.get("settings") or {}
            specs = [one | {"settings": {**given, **METHODS[one["name"]].at_step(step)}} for step in STEPS]
        for spec in specs:
            made = arm(context, lm, spec)
            found.setdefault(f"{made.candidate.label} {made.candidate.settings}", made)
    return list(found.values())


def _usual(context: Context, lm: Model, saves: str) -> list[dict]:
    able = [one for one in candidates(context, lm, None, (saves,)) if not one.method.dense]
    if saves == "reads":
        able = [one for one in able if one.name in FIELDS and not one.method.ceiling]
    return [{"name": one.name} for one in able]


def _shares() -> list[float]:
    return [step / 100 for step in STEPS]


@dataclass(frozen=True)
class Reader:
    """Reads stretches of text, by their place in `windows` [n, T], under methods. Where other workers help, they are
    asked with `request`; else what was found is kept, so that a stopped search goes on."""

    context: Context
    lm: Model
    folder: Path
    windows: np.ndarray
    prefix: int
    saves: str
    request: dict

    def __call__(self, asked: Sequence[tuple[Arm, Sequence[int]]], began: float, share: float) -> None:
        """Add to every arm what it loses on its stretches; `began` and `share` of the search's progress."""
        own = self.context.within(began, share)
        if self.context.others is not None:
            requests = [self.request | {"method": one.spec, "stretches": list(places)} for one, places in asked]
            for (one, _), found in zip(asked, self.context.others(PART, requests, own.progress), strict=True):
                one.add(found)
            return
        for at, (one, places) in enumerate(asked):
            one.add(self.found(own, one.candidate, places, at / len(asked)))

    def found(self, context: Context, one: Candidate, places: Sequence[int], done: float) -> dict:
        """`losses` and `budgets` of a method on some stretches."""
        which = self.windows[list(places)]

        def make(_: Path | None) -> dict:
            losses, budgets = [], []
            for window in which:
                context.progress(done, one.label)
                loss, budget = self._read(one, torch.as_tensor(window))
                losses.append(loss.tolist())
                budgets.append(budget)
            return {"losses": losses, "budgets": budgets}

        decides = [self.lm.revision, str(self.lm.dtype), one.label, one.settings, self.prefix, ids_hash(which)]
        return self.context.part(self.folder, f"search-{self.saves}-{one.name}", decides, make)

    def _read(self, one: Candidate, window: torch.Tensor) -> tuple[np.ndarray, float]:
        """(losses, share kept or read) of one stretch: of all its tokens for methods that save reads, else of those
        after the prompt."""
        if self.saves == "reads":
            losses, reads = score_window(self.lm, one.method, window)
            return losses, reads.reads_causal
        found = follow(self.lm, one.method, window, self.prefix, NOTHING)
        return found.losses, found.keys / self.prefix if found.blocks is None else found.blocks
