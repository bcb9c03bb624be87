"""Methods at one budget: the setting of each at which its queries read as many keys, on average, as all others' do."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import torch

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.metrics.sparsity import ReadCounter, Reads
from analysis.models import Model
from analysis.runs import Result
from analysis.seam.attention import apply
from analysis.statistics import forward
from analysis.studies.context import STREAMED, Context, check_seed, protocol
from analysis.studies.ready.candidates import Candidate, candidates
from analysis.studies.text.scoring import whole_windows

NO_CAP = 1 << 20  # of CSA's policy, unless one is given
REACHED = 0.05  # farther from the target than this is said
NEAR = 0.005  # of the target: near enough to stop looking
FIELDS = {name: method.budgeted for name, method in METHODS.items() if method.budgeted}  # more of it reads more


def equal_budget(
    model: str = "demo",
    text: str = "",
    methods: list[dict] | None = None,
    share: float = 0.25,
    attended: float | None = None,
    window: int | None = None,
    long_text: str = "windows",
    windows: int = 1,
    seed: int = 0,
    *,
    context: Context,
) -> Result:
    """The settings at which `methods` read `share` of the causal pairs, or `attended` keys of a query on average.

    `methods` as `evaluate` takes them, each with a field that sets its budget (FIELDS; all of these unless given),
    whose other settings stay as given. Reads are counted on the first `windows` windows of the text, over all layers
    and heads.
    numbers: `target` keys of a query; `rows`: method, label, field, value, attended, off (0.01: 1% more than the
    target), reached, reads_causal, per key-value head reads_kv and attended_kv, kv_read, sharing, reads_future;
    `methods` as `evaluate` takes them at these values; `notes`
    about budgets that cannot be reached. table `rows`. Errors: BadSetting, BadText, NotFitted.
    """
    check_seed(seed)
    lm = context.model(model)
    reading = whole_windows(context, lm, text, window, long_text)
    ids = reading.windows[: max(1, windows)]
    length = len(ids[0])
    target = attended if attended is not None else share * (length + 1) / 2
    if not 1 <= target <= (length + 1) / 2:
        raise BadSetting(
            f"{target:g} keys of a query were asked for, and in windows of {length:,} tokens a query reads 1 to "
            f"{(length + 1) / 2:,g} on average: choose a share or a number between them."
        )
    asked = [{"name": name} for name in FIELDS] if methods is None else methods
    rows, specs, notes = [], [], []
    for at, one in enumerate(asked):
        row, spec = _settle(context.within(at / len(asked), 1 / len(asked)), lm, one, ids, target)
        rows.append(row)
        specs.append(spec)
        if not row["reached"]:
            end, title = "least" if row["off"] > 0 else "most", METHODS[row["method"]].title
            notes.append(
                f"{title} cannot reach {target:,.1f} keys of a query: it reads {row['attended']:,.1f} at the {end}, "
                f"with {row['field'].replace('_', ' ')} {row['value']:,}. Change its other settings to reach it."
            )
    about = {"window": length, "seed": seed, "kernel": STREAMED, "windows": len(ids)}
    numbers = {
        "target": target,
        "share": target / ((length + 1) / 2),
        "window": length,
        "rows": rows,
        "methods": specs,
        "notes": [*reading.notes, *notes],
        "protocol": protocol("equal-budget", lm, text, len(ids) * length, **about),
    }
    return Result(numbers, {"rows": pd.DataFrame(rows)})


def ladder(context: Context, lm: Model, asked: dict, window: np.ndarray, shares: Sequence[float]) -> list[dict]:
    """A method as `evaluate` takes one, at the values of its field that come near to each of `shares` of the causal
    pairs of one window. Errors: BadSetting."""
    read, _ = _reading(context, lm, asked, [window])
    values = []
    for target in (share * (len(window) + 1) / 2 for share in shares):
        low, high, start = candidates(context, lm, [asked])[0].method.budget_range(len(window), target)
        values.append(nearest(read, low, high, target, start, REACHED))
    return [at_budget(asked, value) for value in dict.fromkeys(values)]


def _reading(
    context: Context, lm: Model, asked: dict, ids: list[np.ndarray]
) -> tuple[Callable[[int], float], dict[int, tuple[Candidate, Reads]]]:
    """(keys that a query reads on average at a value of the method's field, what was read at each value so far)."""
    name = asked.get("name") if isinstance(asked, dict) else asked
    if name not in FIELDS:
        raise BadSetting(
            f"{str(name)[:40]} has no setting that counts its keys, so no budget can be given to it: choose from "
            f"{', '.join(FIELDS)}."
        )
    seen: dict[int, tuple[Candidate, Reads]] = {}

    def read(value: int) -> float:
        if value not in seen:
            context.progress(1 - 0.8 ** len(seen), f"{METHODS[name].title}, {FIELDS[name]} {value:,}")
            chosen, counter = candidates(context, lm, [at_budget(asked, value)])[0], ReadCounter(len(ids[0]))
            for window in ids:
                with torch.no_grad(), apply(lm, chosen.method, watch=counter):
                    forward(lm, window)
            seen[value] = chosen, counter.reads(chosen.method)
        return seen[value][1].attended

    return read, seen


def _settle(context: Context, lm: Model, asked: dict, ids: list[np.ndarray], target: float) -> tuple[dict, dict]:
    """One method's row, and its spec, at the nearest value of its field."""
    read, seen = _reading(context, lm, asked, ids)
    name = asked["name"]
    low, high, start = candidates(context, lm, [asked])[0].method.budget_range(len(ids[0]), target)
    value = nearest(read, low, high, target, start)
    chosen, reads = seen[value]
    row = {"method": name, "label": chosen.label, "field": FIELDS[name], "value": value, "attended": reads.attended}
    row |= {"off": reads.attended / target - 1, "reached": abs(reads.attended / target - 1) <= REACHED}
    row |= {"reads_causal": reads.reads_causal, "reads_kv": reads.reads_kv, "attended_kv": reads.attended_kv}
    row |= {"kv_read": reads.kv_read, "sharing": reads.sharing, "reads_future": chosen.method.reads_future}
    return row, at_budget(asked, value)


def at_budget(asked: dict, value: int) -> dict:
    """A method as `evaluate` takes one, with this value of what counts its keys: a setting, beside which those that
    count them another way are as by default, or the total of a policy, which has no cap then unless one is given."""
    field = FIELDS[asked["name"]]
    if METHODS[asked["name"]].needs != "policy":
        other = METHODS[asked["name"]].competing
        given = {name: one for name, one in (asked.get("settings") or {}).items() if name not in other}
        return asked | {"settings": given | {field: value}}
    given = asked.get("policy") or {}
    given = given if isinstance(given, dict) else {"name": given}
    return asked | {"policy": {"cap": NO_CAP} | given | {field: value}}


def nearest(
    read: Callable[[int], float], low: int, high: int, target: float, start: int | None = None, near: float = NEAR
) -> int:
    """The whole number in low..high at which the growing function `read` comes nearest to `target`, with few calls.

    From `start` (default `low`) it doubles, or takes a quarter, until the target lies between two numbers; then the
    next one is where a straight line meets it, and every second time the middle. It ends within `near` of the target,
    a share of it, or where nothing is left between.
    """
    found: dict[int, float] = {}

    def at(value: int) -> float:
        if value not in found:
            found[value] = read(value)
        return found[value]

    def reached() -> bool:
        return min(abs(value - target) for value in found.values()) <= near * target

    below = above = min(max(low if start is None else start, low), high)
    while at(above) < target and above < high and not reached():
        below, above = above, min(high, max(2 * above, above + 1))
    while at(below) > target and below > low and not reached():
        below, above = max(low, below // 4), below
    steps = 0
    while above - below > 1 and not reached():
        slope = (at(above) - at(below)) / (above - below)
        guess = round(below + (target - at(below)) / slope) if steps % 2 == 0 and slope > 0 else (below + above) // 2
        guess = min(max(guess, below + 1), above - 1)
        below, above = (guess, above) if at(guess) < target else (below, guess)
        steps += 1
    return min(found, key=lambda value: (abs(found[value] - target), value))
