"""Methods at one budget: the setting of each at which its queries read as many keys, on average, as all others' do."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from ...answer import Answer, doc, record
from ...commands.quality import EqualBudget
from ...errors import BadSetting
from ...methods import METHODS
from ...metrics.sparsity import ReadCounter, Reads
from ...models import Model
from ...seam.attention import apply
from ...statistics import forward
from ..context import STREAMED, Context, protocol
from ..ready.candidates import Candidate, Named, candidates
from ..text.held_out import ids_hash
from ..text.scoring import ReadShares, columns, whole_windows

# Of CSA's policy, unless one is given.
NO_CAP = 1 << 20
# Of the target: a budget farther from it is reported as not reached.
REACHED = 0.05
# Of the target: close enough to stop the search.
NEAR = 0.005
# More of it reads more.
FIELDS = {name: method.budgeted for name, method in METHODS.items() if method.budgeted}


@record
class SettledBudget(ReadShares, Named):
    """One method at the value of its budget field that comes nearest to the target."""

    field: str = doc("the setting that counts its keys")
    value: int = doc("its value")
    off: float = doc("share by which its keys miss the target: 0.01 is 1% more")
    reached: bool = doc("it comes within 5% of the target")
    reads_future: bool = doc("later tokens decide over earlier ones")


@record
class EqualBudgets(Answer):
    """Settings at which all methods read the same number of keys."""

    target: float = doc("keys of a query, mean")
    share: float = doc("the same as a share of the causal pairs")
    window: int = doc("tokens of a window")
    rows: list[SettledBudget] = doc("one per method", row=SettledBudget)
    methods: list[dict] = doc("the methods at these values, as evaluate takes them")
    notes: list[str] = doc("budgets that cannot be reached, and what was cut of the text")


def equal_budget(request: EqualBudget, *, context: Context) -> EqualBudgets:
    """The settings at which methods read `share` of the causal pairs, or `attended` keys of a query on average, over
    all layers and heads: methods as `evaluate` takes them, each with a field that sets its budget (FIELDS), whose other
    settings stay as given. Errors: BadSetting, BadText, NotFitted."""
    lm = context.model(request.model)
    reading = whole_windows(context, lm, request.text, request.window, request.long_text)
    ids = reading.windows[: request.windows]
    length = len(ids[0])
    # A causal query reads half of the window on average.
    most = (length + 1) / 2
    target = request.share * most if request.attended is None else request.attended
    if not 1 <= target <= most:
        raise BadSetting(
            f"{target:g} keys of a query were asked for, and in windows of {length:,} tokens a query reads 1 to "
            f"{most:,g} on average: choose a share or a number between them."
        )
    methods = [{"name": name} for name in FIELDS] if request.methods is None else request.methods
    rows, specs, notes = [], [], list(reading.notes)
    for index, spec in enumerate(methods):
        budget = Budget(context.within(index / len(methods), 1 / len(methods)), lm, spec, ids)
        row = budget.row(budget.nearest(target, NEAR), target)
        rows.append(row)
        specs.append(at_budget(spec, row.value))
        if not row.reached:
            notes.append(
                f"{METHODS[row.method].title} cannot reach {target:,.1f} keys of a query: the nearest is "
                f"{row.attended:,.1f}, with {row.field.replace('_', ' ')} {row.value:,}. Change its other settings."
            )
    about = {"window": length, "seed": request.seed, "kernel": STREAMED, "windows": len(ids)}
    return EqualBudgets(
        target=target,
        share=target / most,
        window=length,
        rows=rows,
        methods=specs,
        notes=notes,
        protocol=protocol("equal-budget", lm, request.text, len(ids) * length, **about),
    )


def ladder(
    context: Context, lm: Model, spec: dict, window: np.ndarray, shares: Sequence[float], indexer: bool = True
) -> list[dict]:
    """A method as `evaluate` takes one, at the values of its field that come near to each of `shares` of the causal
    pairs of one window; what was tried is kept for the next shares. Without `indexer` it chooses in place of the
    model's own one. Errors: BadSetting."""
    belongs = (lm.name, lm.revision, spec, ids_hash(window), indexer)
    budget = Budget(context, lm, spec, [window], indexer)
    budget.tried = context.once(f"reads of {budget.name}", belongs, lambda: budget.tried)
    values = [budget.nearest(share * (len(window) + 1) / 2, REACHED) for share in shares]
    return [at_budget(spec, value) for value in dict.fromkeys(values)]


class Budget:
    """Counts what a method reads of windows at values of its budget field, each value once; without `indexer`, in place
    of the model's own one. Errors: BadSetting."""

    def __init__(
        self, context: Context, lm: Model, spec: dict, windows: list[np.ndarray], indexer: bool = True
    ) -> None:
        name = spec.get("name") if isinstance(spec, dict) else spec
        if name not in FIELDS:
            raise BadSetting(
                f"{str(name)[:40]} has no setting that counts its keys, so no budget can be given to it: choose from "
                f"{', '.join(FIELDS)}."
            )
        self.context, self.lm, self.spec, self.windows, self.name = context, lm, spec, windows, name
        self.indexer = indexer
        self.tried: dict[int, tuple[Candidate, Reads]] = {}

    def attended(self, value: int) -> float:
        """Keys that a query reads on average at a value of the field."""
        if value not in self.tried:
            stage = f"{METHODS[self.name].title}, {FIELDS[self.name]} {value:,}"
            # How many tries it takes is not known, so each goes a fifth of the way that is left.
            self.context.progress(1 - 0.8 ** len(self.tried), stage)
            candidate = candidates(self.context, self.lm, [at_budget(self.spec, value)])[0]
            counter = ReadCounter(len(self.windows[0]))
            for window in self.windows:
                with torch.no_grad(), apply(self.lm, candidate.method, counter, indexer=self.indexer):
                    forward(self.lm, window)
            self.tried[value] = candidate, counter.reads(candidate.method)
        return self.tried[value][1].attended

    def nearest(self, target: float, near: float) -> int:
        """The value at which a query reads as near to `target` keys as it can."""
        method = candidates(self.context, self.lm, [self.spec])[0].method
        low, high, start = method.budget_range(len(self.windows[0]), target)
        return nearest(self.attended, low, high, target, start, near)

    def row(self, value: int, target: float) -> SettledBudget:
        """The method at a value that was tried."""
        candidate, reads = self.tried[value]
        off = reads.attended / target - 1
        return SettledBudget(
            **columns(ReadShares, reads),
            method=self.name,
            label=candidate.label,
            field=FIELDS[self.name],
            value=value,
            off=off,
            reached=abs(off) <= REACHED,
            reads_future=candidate.method.reads_future,
        )


def at_budget(spec: dict, value: int) -> dict:
    """A method as `evaluate` takes one, with this value of what counts its keys: a setting, beside which those that
    count them another way are as by default, or the total of a policy, which has no cap then unless one is given."""
    method, field = METHODS[spec["name"]], FIELDS[spec["name"]]
    if method.needs != "policy":
        settings = {name: v for name, v in (spec.get("settings") or {}).items() if name not in method.competing}
        return spec | {"settings": settings | {field: value}}
    policy = spec.get("policy") or {}
    if not isinstance(policy, dict):
        policy = {"name": policy}
    return spec | {"policy": {"cap": NO_CAP} | policy | {field: value}}


def nearest(
    read: Callable[[int], float], low: int, high: int, target: float, start: int | None = None, near: float = NEAR
) -> int:
    """The whole number in low..high at which the growing function `read` comes nearest to `target`, with few calls.

    From `start` (default `low`) it doubles, or takes a quarter, until the target lies between two numbers; then the
    next one is where a straight line meets it, and every second time the middle. It ends within `near` of the target,
    a share of it, or where nothing is left between.
    """
    values: dict[int, float] = {}

    def at(value: int) -> float:
        if value not in values:
            values[value] = read(value)
        return values[value]

    def reached() -> bool:
        return min(abs(value - target) for value in values.values()) <= near * target

    below = above = min(max(low if start is None else start, low), high)
    while at(above) < target and above < high and not reached():
        below, above = above, min(high, max(2 * above, above + 1))
    while at(below) > target and below > low and not reached():
        below, above = max(low, below // 4), below
    steps = 0
    while above - below > 1 and not reached():
        slope = (at(above) - at(below)) / (above - below)
        # A straight line alone creeps along a curve that is flat at one end: every second step halves.
        guess = (below + above) // 2
        if steps % 2 == 0 and slope > 0:
            guess = round(below + (target - at(below)) / slope)
        guess = min(max(guess, below + 1), above - 1)
        below, above = (guess, above) if at(guess) < target else (below, guess)
        steps += 1
    return min(values, key=lambda value: (abs(values[value] - target), value))
