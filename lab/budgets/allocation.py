"""Which head should get how many keys? By ranks, by what is lost without a head, or evenly, as many keys in all."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from analysis.methods import METHODS
from analysis.metrics.budgets import FLOOR, allocate_budget
from analysis.models import Model
from analysis.studies.budgets.calibrate import MASS, sensitivity
from analysis.studies.budgets.cap_rows import Progress, counted_reads, window_losses
from analysis.studies.budgets.ranks import measure_ranks
from analysis.studies.budgets.sweep import KERNEL
from analysis.studies.stored.comparisons import difference, holm_corrected, interval_caveat
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Setting, Study, Windows, option
from analysis.studies.text.calibration import document_windows, split
from analysis.studies.text.held_out import check_range, ids_hash, sample_windows
from lab.budgets.query_arms import static
from lab.harness.telling import concluded, lines_of

KEYS = (16, 32, 64, 128)  # of a head, on average
EVEN, RANKS, ABLATION = ARMS = "evenly", "by ranks", "by ablation"
MEASURES = {EVEN: ("even",), RANKS: ("ranks",), ABLATION: ("zero", "mean")}  # arm -> what it can share out by
EVENLY = (0.0, 0.25, 0.5, 0.75)  # part of the keys that all heads get alike before the rest is shared out


@dataclass(frozen=True)
class Sizes(Windows):
    """Three sets of documents: those that measure, those that choose and those that report."""

    windows: int = option(48, "held-out windows of text that report")
    calibrate: int = option(16, "windows of other documents that ranks and ablation are measured on")
    select: int = option(12, "windows of again other documents that choose how much is shared evenly")

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range("The number of calibration windows", self.calibrate, 1, 4096)
        check_range("The number of selection windows", self.select, 1, 4096)


def measure(run: Setting) -> dict:
    """The loss under 16 to 128 keys of a head on average, with as many keys in all however they are shared out.

    On the first documents the ranks are measured, and what the loss is estimated to rise by without each head. On the
    second each arm chooses, for each number of keys, what part of them all heads get alike, and ablation what takes a
    head's place. The held-out ones report. Errors: BadSetting, BadText.
    """
    lm, sizes = run.lm, run.sizes
    first, second, _ = split(*run.texts)
    learn = document_windows(lm, first, sizes.length, sizes.calibrate * sizes.length, "calibration text")[0]
    choose = document_windows(lm, second, sizes.length, sizes.select * sizes.length, "selection text")[0]
    shared = _shared(run, learn)
    settings = len(KEYS) * len(EVENLY) * (len(MEASURES[RANKS]) + len(MEASURES[ABLATION]))
    reports = 1 + len(KEYS) * len(ARMS)
    progress = Progress(run.context, (0.1, 1.0), settings * len(choose) + reports * len(run.windows))
    dense = _read(run, run.windows, None, progress, "dense")["losses"]
    rows, tried = [], []
    for keys in KEYS:
        reads: dict[str, dict] = {}
        for arm in ARMS:
            name, best, lowest = f"{keys} keys {arm}", (MEASURES[arm][0], 1.0), np.inf
            for by in MEASURES[arm]:
                for evenly in EVENLY if arm != EVEN else ():
                    budgets = _budgets(shared[by], keys, evenly)
                    loss = float(np.mean(_read(run, choose, budgets, progress, f"{name}, selection")["losses"]))
                    tried.append({"keys": keys, "arm": arm, "by": by, "evenly": evenly, "loss": loss})
                    if loss < lowest:
                        best, lowest = (by, evenly), loss
            budgets = _budgets(shared[best[0]], keys, best[1])
            reads[arm] = _read(run, run.windows, budgets, progress, name)
            about = {"keys": keys, "arm": arm, "by": best[0], "evenly": best[1]}
            rows.append(about | _row(run, budgets, reads[arm], dense, reads))
    about = {"kernel": KERNEL, "calibrated_on": ids_hash(learn), "selected_on": ids_hash(choose)}
    return {
        "rows": holm_corrected(rows, "against_even", "against_ranks"),
        "tried": tried,
        "shared": {by: values.tolist() for by, values in shared.items()},
        "dense": float(np.exp(np.mean(dense))),
        "protocol": run.about(run.windows, **about),
    }


def _shared(run: Setting, windows: np.ndarray) -> dict[str, np.ndarray]:
    """Measure -> what keys are shared out by [L, H], measured on windows [n, T]: each sums to 1."""

    def make(_: Path | None) -> dict:
        steps = [run.context.within(step / 30, 1 / 30) for step in range(3)]
        ranks = measure_ranks(run.lm, windows, MASS, steps[0].progress).mean()
        measures = {"even": np.ones_like(ranks), "ranks": ranks}
        for by, step in zip(MEASURES[ABLATION], steps[1:], strict=True):
            measures[by] = sensitivity(step, run.lm, windows, 1.0, by)
        return {by: (values / values.sum()).tolist() for by, values in measures.items()}

    decides = [run.lm.revision, str(run.lm.dtype), windows.tolist()]
    return {
        by: np.array(values) for by, values in run.context.part(run.work, "allocation-shared", decides, make).items()
    }


def _budgets(values: np.ndarray, keys: int, evenly: float) -> np.ndarray:
    """Keys of each head [L, H], `keys` on average: the part `evenly` to all alike, the rest by their values."""
    return allocate_budget(values, keys * values.size, max(FLOOR, int(evenly * keys)))


def _read(run: Setting, windows: np.ndarray, budgets: np.ndarray | None, progress: Progress, name: str) -> dict:
    """`losses`, the mean of each window [n] in nats, under budgets [L, H] (None: dense), and what it `reads` in all."""

    def make(_: Path | None) -> dict:
        method = METHODS["dense"]() if budgets is None else static(budgets, int(budgets.max()))
        losses = window_losses(run.lm, windows, method, progress, name).mean(1).tolist()
        reads = {} if budgets is None else counted_reads([method], run.lm.num_kv_heads, *windows.shape)
        return {"losses": losses, "reads": reads}

    decides = [run.lm.revision, str(run.lm.dtype), windows.tolist(), None if budgets is None else budgets.tolist()]
    return run.context.part(run.work, "allocation", decides, make)


def _row(run: Setting, budgets: np.ndarray, read: dict, dense: list[float], reads: dict[str, dict]) -> dict:
    """What an arm reads of the held-out windows, against dense and against the arms before it."""
    losses = np.array(read["losses"])
    row = {"total": int(budgets.sum()), "most": int(budgets.max())} | read["reads"]
    row |= {"perplexity": float(np.exp(losses.mean()))} | difference(
        "against_dense", losses, np.array(dense), run.documents
    )
    for key, arm in (("against_even", EVEN), ("against_ranks", RANKS)):
        if arm in reads and reads[arm] is not read:
            row |= difference(key, losses, np.array(reads[arm]["losses"]), run.documents)
    return row


def sample(run: Setting, numbers: dict) -> dict[str, list[float]]:
    """On a window of the bundled samples: what is shared out by, and the loss where half of 16 keys is shared so."""
    ids = sample_windows(run.lm, min(256, run.sizes.length), 1)
    shared, values = _shared(replace(run, work=None), ids), {}
    progress = Progress(run.context, (0.99, 1.0), len(shared))
    for by, share in shared.items():
        budgets = _budgets(share, KEYS[0], 0.5)
        losses = window_losses(run.lm, ids, static(budgets, int(budgets.max())), progress, by)
        values[by] = [*share.ravel().tolist(), float(losses.mean())]
    return values


def part(run: Setting, numbers: dict) -> dict:
    """Dense attention and 16 keys for every head alike, on all held-out windows."""
    budgets = _budgets(np.ones((run.lm.num_layers, run.lm.num_heads)), KEYS[0], 1.0)
    progress = Progress(run.context, (0.0, 1.0), 2 * len(run.windows))
    dense = _read(run, run.windows, None, progress, "dense")["losses"]
    row = {"keys": KEYS[0], "arm": EVEN, "by": "even", "evenly": 1.0}
    row |= _row(run, budgets, _read(run, run.windows, budgets, progress, EVEN), dense, {})
    return {"rows": [row], "dense": float(np.exp(np.mean(dense))), "protocol": {"text": ids_hash(run.windows)}}


def shown(numbers: dict) -> dict:
    """What sharing keys out by ranks and by ablation gains over sharing them evenly, and over each other."""
    rows = numbers["rows"]
    controls = {"against_even": "the same number for every head", "against_ranks": "by ranks"}
    compared = [row for row in rows if row["arm"] != EVEN]
    lead = "With as many keys in all, on held-out documents, "
    sentence = concluded(lead, compared, controls, "{keys} keys a head {arm}".format_map)
    most = max(EVENLY)
    edge = [arm for arm in (RANKS, ABLATION) if all(row["evenly"] == most for row in rows if row["arm"] == arm)]
    if edge:
        chosen = " and ".join(edge)
        sentence += f" Every time {most:.0%} shared alike was chosen {chosen}, the most that was tried."
    sentence += f" Dense attention has a perplexity of {numbers['dense']:.2f} there."
    axes = ("arm", "keys", "keys of a head, on average", "nats per token", "against_dense")
    chart = lines_of("Loss above dense", rows, *axes)
    return presented("allocation", sentence, [chart], interval_caveat(numbers["protocol"]))


allocation = Study("allocation", __doc__, Sizes, measure, shown, sample, tables=("rows", "tried"), part=part)
