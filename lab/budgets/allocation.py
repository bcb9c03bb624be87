"""Which head should get how many keys? By ranks, by what is lost without a head, or evenly, as many keys in all."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from analysis.claims import Claim, Comparison
from analysis.methods import METHODS
from analysis.metrics.budgets import FLOOR, allocate_budget
from analysis.models import Model
from analysis.studies.budgets.calibrate import MASS, sensitivity
from analysis.studies.budgets.cap_rows import Progress, counted_reads, window_losses
from analysis.studies.budgets.ranks import measure_ranks
from analysis.studies.budgets.sweep import KERNEL
from analysis.studies.stored.comparisons import difference, holm_corrected, interval_caveat, multiplicity_note
from analysis.studies.stored.panels import chart, presented
from analysis.studies.stored.runner import Setting, Study, Windows, option
from analysis.studies.text.calibration import document_windows, split
from analysis.studies.text.held_out import check_range, ids_hash, sample_windows
from lab.budgets.query_arms import static

KEYS = (16, 32, 64, 128)  # of a head, on average
EVEN, RANKS, ABLATION = ARMS = "evenly", "by ranks", "by ablation"
MEASURES = {EVEN: ("even",), RANKS: ("ranks",), ABLATION: ("zero", "mean")}  # arm -> what it can share out by
EVENLY = (0.0, 0.25, 0.5, 0.75)  # part of the keys that all heads get alike before the rest is shared out


@dataclass(frozen=True)
class Sizes(Windows):
    """What the study can be asked for."""

    windows: int = option(48, "held-out windows of text that report")
    calibrate: int = option(16, "windows of other documents that ranks and ablation are measured on")
    select: int = option(12, "windows of again other documents that choose how much is shared evenly")

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range("The number of calibration windows", self.calibrate, 1, 4096)
        check_range("The number of selection windows", self.select, 1, 4096)


def measure(at: Setting) -> dict:
    """The loss under 16 to 128 keys of a head on average, with as many keys in all however they are shared out.

    Three sets of documents. On the first the ranks are measured, and what the loss is estimated to rise by without
    each head. On the second each arm chooses, for each number of keys, what part of them all heads get alike, and
    ablation what takes a head's place. The held-out ones report. `rows`: `keys arm by evenly total most`, what
    is read as `counted_reads`, `perplexity against_dense against_even against_ranks` (nats per token, with `_low`,
    `_high` and `_p` over documents; `by` one of MEASURES); `tried`: the loss of every setting on the second set;
    `shared`: what is shared out by, [L][H] of each measure. Errors: BadSetting, BadText.
    """
    lm, sizes = at.lm, at.sizes
    first, second, _ = split(*at.texts)
    learn, choose = (
        document_windows(lm, side, sizes.length, windows * sizes.length, what)[0]
        for side, windows, what in (
            (first, sizes.calibrate, "calibration text"),
            (second, sizes.select, "selection text"),
        )
    )
    shared = _shared(at, learn)
    settings = len(KEYS) * sum(len(_settings(shared, KEYS[0], arm)) for arm in (RANKS, ABLATION))
    reports = 1 + len(KEYS) * len(ARMS)
    told = Progress(at.context, (0.1, 1.0), settings * len(choose) + reports * len(at.windows))
    dense = _read(at, at.windows, None, told, "dense")["losses"]
    rows, tried = [], []
    for keys in KEYS:
        found = {}
        for arm in ARMS:
            ways = _settings(shared, keys, arm)
            name = f"{keys} keys {arm}"
            for one in ways if len(ways) > 1 else ():
                one["loss"] = float(np.mean(_read(at, choose, one["budgets"], told, f"{name}, selection")["losses"]))
                tried.append({key: value for key, value in one.items() if key != "budgets"})
            best = min(ways, key=lambda one: one.get("loss", 0.0))
            found[arm] = _read(at, at.windows, best["budgets"], told, name)
            rows.append(_row(at, best, found, dense))
    about = {"kernel": KERNEL, "calibrated_on": ids_hash(learn), "selected_on": ids_hash(choose)}
    return {
        "rows": holm_corrected(rows, "against_even", "against_ranks"),
        "tried": tried,
        "shared": {by: values.tolist() for by, values in shared.items()},
        "dense": float(np.exp(np.mean(dense))),
        "protocol": at.about(at.windows, **about),
    }


def shown(numbers: dict) -> dict:
    """How the study is told and drawn."""
    rows = numbers["rows"]
    at = {(row["keys"], row["arm"]): row for row in rows}
    keys = list(dict.fromkeys(row["keys"] for row in rows))
    flat = [
        {"keys": few}
        | {f"{arm}{end}": at[few, arm][f"against_dense{end}"] for arm in ARMS for end in ("", "_low", "_high")}
        for few in keys
    ]
    label = "keys of a head, on average"
    drawn = chart("Loss above dense", flat, "keys", label, "nats per token", {arm: arm for arm in ARMS})
    told = f"{_verdict(at, keys)} {' '.join(_told(at[few, ABLATION]) for few in keys)} {_evenly(at, keys)}"
    told += multiplicity_note(rows, "against_even", "against_ranks") + _at_the_edge(at, keys)
    told += f" Dense attention has a perplexity of {numbers['dense']:.2f} there."
    return presented("allocation", told, [drawn], interval_caveat(numbers["protocol"]))


def sample(at: Setting, numbers: dict) -> dict[str, list[float]]:
    """On a window of the bundled samples: what is shared out by, and the loss where half of 16 keys is shared so."""
    ids = sample_windows(at.lm, min(256, at.sizes.length), 1)
    shared = _shared(replace(at, work=None), ids)
    told, found = Progress(at.context, (0.99, 1.0), len(shared)), {}
    for by, values in shared.items():
        budgets = _budgets(values, KEYS[0], 0.5)
        found[by] = [
            *values.ravel().tolist(),
            float(window_losses(at.lm, ids, static(budgets, int(budgets.max())), told, by).mean()),
        ]
    return found


def part(at: Setting, numbers: dict) -> dict:
    """Dense attention and 16 keys for every head alike, on all held-out windows."""
    one = _settings({"even": np.ones((at.lm.num_layers, at.lm.num_heads))}, KEYS[0], EVEN)[0]
    told = Progress(at.context, (0.0, 1.0), 2 * len(at.windows))
    dense = _read(at, at.windows, None, told, "dense")["losses"]
    row = _row(at, one, {EVEN: _read(at, at.windows, one["budgets"], told, EVEN)}, dense)
    return {"rows": [row], "dense": float(np.exp(np.mean(dense))), "protocol": {"text": ids_hash(at.windows)}}


def _shared(at: Setting, windows: np.ndarray) -> dict[str, np.ndarray]:
    """Measure -> what keys are shared out by [L, H], measured on windows [n, T]: each sums to 1."""

    def make(_: Path | None) -> dict:
        parts = [at.context.within(step / 30, 1 / 30) for step in range(3)]
        ranks = measure_ranks(at.lm, windows, MASS, parts[0].progress).mean()
        found = {"even": np.ones_like(ranks), "ranks": ranks}
        for by, part in zip(MEASURES[ABLATION], parts[1:], strict=True):
            found[by] = sensitivity(part, at.lm, windows, 1.0, by)
        return {by: (values / values.sum()).tolist() for by, values in found.items()}

    decides = [at.lm.revision, str(at.lm.dtype), windows.tolist()]
    return {by: np.array(values) for by, values in at.context.part(at.work, "allocation-shared", decides, make).items()}


def _settings(shared: dict[str, np.ndarray], keys: int, arm: str) -> list[dict]:
    """The settings of an arm, `keys arm by evenly budgets`, with so many keys of a head on average."""
    asked = [(by, evenly) for by in MEASURES[arm] for evenly in (EVENLY if arm != EVEN else (1.0,))]
    return [
        {"keys": keys, "arm": arm, "by": by, "evenly": evenly, "budgets": _budgets(shared[by], keys, evenly)}
        for by, evenly in asked
    ]


def _budgets(values: np.ndarray, keys: int, evenly: float) -> np.ndarray:
    """Keys of each head [L, H], `keys` on average: the part `evenly` to all alike, the rest by their values."""
    return allocate_budget(values, keys * values.size, max(FLOOR, int(evenly * keys)))


def _read(at: Setting, windows: np.ndarray, budgets: np.ndarray | None, told: Progress, name: str) -> dict:
    """`losses`, the mean of each window [n] in nats, under budgets [L, H] (None: dense), and what
    it `reads` in all, as `counted_reads`."""

    def make(_: Path | None) -> dict:
        method = METHODS["dense"]() if budgets is None else static(budgets, int(budgets.max()))
        losses = window_losses(at.lm, windows, method, told, name).mean(1).tolist()
        reads = {} if budgets is None else counted_reads([method], at.lm.num_kv_heads, *windows.shape)
        return {"losses": losses, "reads": reads}

    decides = [at.lm.revision, str(at.lm.dtype), windows.tolist(), None if budgets is None else budgets.tolist()]
    return at.context.part(at.work, "allocation", decides, make)


def _row(at: Setting, one: dict, found: dict[str, dict], dense: list[float]) -> dict:
    """The setting that was chosen, on the held-out windows, against dense and against the arms before it."""
    losses, budgets = np.array(found[one["arm"]]["losses"]), one["budgets"]
    row = {name: one[name] for name in ("keys", "arm", "by", "evenly")}
    row |= {"total": int(budgets.sum()), "most": int(budgets.max())}
    row |= found[one["arm"]]["reads"]
    row |= {"perplexity": float(np.exp(losses.mean()))}
    against = {"against_dense": dense, "against_even": found[EVEN]["losses"]}
    against |= {"against_ranks": found[RANKS]["losses"]} if RANKS in found else {}
    for key, control in against.items():
        if control is not found[one["arm"]]["losses"]:
            row |= difference(key, losses, np.array(control), at.documents)
    return row


def _verdict(at: dict, keys: list[int]) -> str:
    """Which of ranks and ablation is better, over all numbers of keys."""
    signs = {Comparison.of(at[few, ABLATION], "against_ranks").direction for few in keys}
    held_out = "with as many keys in all, on held-out documents"
    if signs == {0}:
        return f"Ranks and ablation do not differ significantly {held_out}."
    if signs == {-1, 1}:
        return f"Neither ranks nor ablation share keys out better throughout {held_out}."
    better, other = ("Ranks", "ablation") if 1 in signs else ("Ablation", "ranks")
    where = "wherever a difference shows" if 0 in signs else "at every number of keys that was tried"
    return f"{better} share{'s' * (better == 'Ablation')} keys out better than {other} {where}, {held_out}."


def _told(row: dict) -> str:
    """Ablation against ranks at so many keys, in words."""
    return f"At {row['keys']} keys a head ablation is {Claim(Comparison.of(row, 'against_ranks')).text()}."


def _evenly(at: dict, keys: list[int]) -> str:
    """Where each of the two is better or worse than as many keys for every head."""
    said = []
    for arm in (RANKS, ABLATION):
        signs = {few: Comparison.of(at[few, arm], "against_even").direction for few in keys}
        for sign, word in ((-1, "better"), (1, "worse"), (0, "not significantly different")):
            if where := [str(few) for few, found in signs.items() if found == sign]:
                said.append(f"keys {arm} are {word} at {', '.join(where)}")
    return f"Against the same number for every head, {'; '.join(said)}."


def _at_the_edge(at: dict, keys: list[int]) -> str:
    """Which arms chose every time the most that was tried to be shared alike."""
    most = max(EVENLY)
    edge = [arm for arm in (RANKS, ABLATION) if all(at[few, arm]["evenly"] == most for few in keys)]
    return (
        f" Every time {most:.0%} shared alike was chosen {' and '.join(edge)}, the most that was tried." if edge else ""
    )


allocation = Study("allocation", __doc__, Sizes, measure, shown, sample, tables=("rows", "tried"), part=part)
