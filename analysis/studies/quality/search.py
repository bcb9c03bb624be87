"""Search for a setting: the smallest budget that loses less than a given share, over methods and settings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from analysis.errors import BadSetting, BadText
from analysis.methods import METHODS
from analysis.metrics.paired import perplexity_change
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.quality.following import NOTHING, follow
from analysis.studies.ready.candidates import Candidate, candidates
from analysis.studies.text.calibration import document_windows, text_keys
from analysis.studies.text.held_out import check_range, ids_hash, make_folder

STEPS = (5, 10, 15, 25, 35, 50, 75)  # of `Method.at_step`: per cent of the keys that are kept, or a rule's own scale
FIRST = 2  # stretches of text on which every setting is tried
FEWEST = 3  # settings that are left for all of the stretches
SAVES = ("memory", "prefill")
COLUMNS = "label budget difference stretches left".split()


@dataclass
class Arm:
    """A method at one setting, with what it lost so far: `losses` of stretches [n, positions], and the `budgets` of
    each: the share of the KV cache that it held, or of the blocks that it read."""

    candidate: Candidate
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


def search(
    model: str = "demo",
    texts: list[str] | None = None,
    saves: str = "memory",
    methods: list[dict] | None = None,
    lose: float = 0.05,
    prefix: int | None = None,
    continuation: int = 128,
    cuts: int = 32,
    seed: int = 0,
    *,
    context: Context,
) -> Result:
    """The smallest budget that raises perplexity by less than `lose`, over methods that save `saves`, at seven settings
    each, by successive halving.

    Of the stretches of `texts` (hashes), a prompt of `prefix` tokens and the `continuation` after it, half choose and
    half report: whole texts where there are several, else the halves of one. All settings read two stretches; the
    better half goes on to twice as many, until three are left or all of the choosing half is read. Better is a smaller
    budget among those that lose less than `lose`, and a smaller loss among the others. The winner alone is judged on
    the reporting half: it holds where the one-sided 95% limit of its loss stays below `lose`.

    numbers: `rows` (`method label settings budget difference stretches left`), `frontier` (labels of rows that no other
    beats in both), `chosen` (`label method settings budget difference low high upper holds units unit`, measured on the
    reporting half; None where nothing was near), `lose`, `sentence`, `notes`. table: `rows`. It goes on where it was
    stopped. Errors: BadSetting, BadText.
    """
    check_seed(seed)
    check_range("The number of stretches", cuts, 2 * FIRST, 256)
    check_range("The length of the continuation", continuation, 2, 1 << 16)
    if saves not in SAVES or not 0 < lose <= 1:
        raise BadSetting(f"{saves[:20]!r} and {lose:g}: what is saved is memory or prefill, the loss between 0 and 1.")
    lm = context.model(model)
    longest = lm.max_positions - continuation
    prefix = min(1024, longest) if prefix is None else prefix
    check_range("The length of the prefix", prefix, 8, longest)
    named = [context.text(key) for key in texts or []]
    if not named:
        raise BadSetting("A search needs at least one text: name one.")
    size = prefix + continuation
    windows, documents = document_windows(lm, named, size, cuts * size, "text")
    choosing, reporting = split(documents)
    if min(len(choosing), len(reporting)) < FIRST:
        raise BadText(
            f"The texts give {len(windows)} stretches of {size:,} tokens and a search needs {2 * FIRST}: give more "
            "text, or choose a shorter prompt."
        )
    folder = context.state_dirs(lm)[0] / "work"
    make_folder(folder)
    read = Reader(context, lm, folder, windows, prefix)
    arms = _arms(context, lm, saves, methods)
    dense = Arm(candidates(context, lm, [{"name": "dense"}])[0])
    left = halving(arms, dense, choosing, lose, read)
    able = [arm for arm in left if arm.change(dense) <= lose]
    best = min(able, key=lambda arm: arm.budget) if able else None
    rows = [_row(arm, dense, arm in left) for arm in arms]
    chosen = None if best is None else _judged(best, read, reporting, documents, lose)
    about = {"prefix": prefix, "continuation": continuation, "cuts": len(windows), "texts": text_keys(named)}
    about |= {"seed": seed, "window": size, "kernel": "each method's own kernel where it has one"}
    numbers = {
        **{"rows": rows, "frontier": frontier(rows), "chosen": chosen, "lose": lose, "saves": saves},
        "sentence": _sentence(chosen, rows, lose, saves),
        "notes": [f"{len(choosing)} stretches chose, {len(reporting)} others report."],
        "protocol": protocol("search", lm, (texts or [None])[0], int(windows.size), **about),
    }
    return Result(numbers, {"rows": pd.DataFrame([{name: row[name] for name in COLUMNS} for row in rows])})


@dataclass
class Reader:
    """Reads stretches of text under a method and keeps what it found, so that a stopped search goes on."""

    context: Context
    lm: Model
    folder: Path
    windows: np.ndarray
    prefix: int

    def __call__(self, arm: Arm, stretches: Sequence[int], done: float) -> None:
        """Add what `arm` loses on some stretches, by their place in `windows`."""
        one, which = arm.candidate, self.windows[list(stretches)]

        def make(_: Path | None) -> dict:
            found = []
            for window in which:
                self.context.progress(done, one.label)
                found.append(follow(self.lm, one.method, torch.as_tensor(window), self.prefix, NOTHING))
            shares = [part.keys / self.prefix if part.blocks is None else part.blocks for part in found]
            return {"losses": [part.losses.tolist() for part in found], "budgets": shares}

        decides = [self.lm.revision, str(self.lm.dtype), one.label, one.settings, self.prefix, ids_hash(which)]
        found = self.context.part(self.folder, f"search-{one.name}", decides, make)
        arm.losses += found["losses"]
        arm.budgets += found["budgets"]


def split(documents: np.ndarray) -> tuple[list[int], list[int]]:
    """(stretches that choose, stretches that report): the first half of the documents and the rest; of one document its
    halves."""
    known = np.unique(documents)
    if len(known) > 1:
        first = np.isin(documents, known[: len(known) // 2])
    else:
        first = np.arange(len(documents)) < len(documents) // 2
    return np.flatnonzero(first).tolist(), np.flatnonzero(~first).tolist()


def halving(arms: list[Arm], dense: Arm, stretches: list[int], lose: float, read: Reader) -> list[Arm]:
    """The arms that are left, the best first: all read the first stretches, and the better half twice as many."""
    left, seen, goal = list(arms), 0, FIRST
    while True:
        goal = min(goal, len(stretches))
        for at, arm in enumerate([dense, *left]):
            read(arm, stretches[seen:goal], 0.8 * (seen + (goal - seen) * at / (1 + len(left))) / len(stretches))
        left.sort(key=lambda arm: rank(arm.change(dense), arm.budget, lose))
        if goal == len(stretches):
            return left
        left = left[: max(FEWEST, -(-len(left) // 2))]
        seen, goal = goal, len(stretches) if len(left) <= FEWEST else 2 * goal


def rank(change: float, budget: float, lose: float) -> tuple[bool, float]:
    """Smaller is better: first those that lose less than `lose`, by their budget; then the others, by their loss."""
    return (False, budget) if change <= lose else (True, change)


def frontier(rows: list[dict]) -> list[str]:
    """Labels of the rows beside which no other has a smaller budget and loses no more, the cheapest first."""
    found: list[dict] = []
    for row in sorted(rows, key=lambda row: (row["budget"], row["difference"])):
        if not found or row["difference"] < found[-1]["difference"]:
            found.append(row)
    return [row["label"] for row in found]


def _arms(context: Context, lm: Model, saves: str, methods: list[dict] | None) -> list[Arm]:
    """Every method at every step, other settings as they are given; settings that come out alike count once."""
    asked = [{"name": one.name} for one in candidates(context, lm, None, (saves,))] if methods is None else methods
    if not asked:
        raise BadSetting("A search needs at least one method: name one.")
    found: dict[str, Arm] = {}
    for one in asked:
        candidates(context, lm, [one], (saves,))  # refuses one of another family
        for step in STEPS:
            settings = {**(one.get("settings") or {}), **METHODS[one["name"]].at_step(step)}
            made = candidates(context, lm, [one | {"settings": settings}], (saves,))[0]
            found.setdefault(f"{made.name} {made.settings}", Arm(made))
    return list(found.values())


def _row(arm: Arm, dense: Arm, left: bool) -> dict:
    about = {"method": arm.candidate.name, "label": arm.candidate.label, "settings": arm.candidate.settings}
    about |= {"budget": arm.budget, "difference": arm.change(dense)}
    return about | {"stretches": len(arm.losses), "left": left}


def _judged(best: Arm, read: Reader, stretches: list[int], documents: np.ndarray, lose: float) -> dict:
    """The winner on the half that reports."""
    own = Arm(best.candidate)
    dense = Arm(candidates(read.context, read.lm, [{"name": "dense"}])[0])
    for arm in (dense, own):
        read(arm, stretches, 0.9)
    mine = documents[stretches]
    several = mine if len(set(mine.tolist())) > 1 else None
    found = perplexity_change(np.array(own.losses), np.array(dense.losses), several)
    holds = None if found.upper is None else found.upper <= lose
    about = {"method": own.candidate.name, "label": own.candidate.label, "settings": own.candidate.settings}
    about |= {"budget": own.budget, "difference": found.change, "low": found.low, "high": found.high}
    return about | {"upper": found.upper, "holds": holds, "units": found.units, "unit": found.unit}


def _sentence(chosen: dict | None, rows: list[dict], lose: float, saves: str) -> str:
    part = "of the KV cache" if saves == "memory" else "of the prompt's blocks"
    if chosen is None:
        best = min(rows, key=lambda row: row["difference"])
        said = f"No setting loses less than {lose:.0%}: the nearest, {best['label']}, keeps {best['budget']:.0%} {part}"
        return f"{said} and changes perplexity by {best['difference']:+.1%}.".replace("-", "−")
    verdict = {True: "holds", False: "does not hold", None: "cannot be judged on so few"}[chosen["holds"]]
    upper = "" if chosen["upper"] is None else f", at most {chosen['upper']:+.1%} (one-sided 95%)"
    return (
        f"{chosen['label']} keeps {chosen['budget']:.0%} {part}. On text that did not choose it, it changes perplexity "
        f"by {chosen['difference']:+.1%}{upper}: “less than {lose:.0%}” {verdict} ({chosen['units']} {chosen['unit']})."
    ).replace("-", "−")
