"""Which head should get how many keys? By ranks, by what is lost without a head, or evenly, as many keys in all."""

from dataclasses import replace
from typing import Any

import numpy as np

from analysis.methods.base import Dense
from analysis.metrics.budgets import FLOOR, allocate_budget
from analysis.studies.budgets.calibrate import MASS, sensitivity
from analysis.studies.budgets.cap_rows import KERNEL, Progress, counted_reads, window_losses
from analysis.studies.budgets.ranks import measure_ranks
from analysis.studies.stored.comparisons import Row, difference, holm_corrected, interval_caveat
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Setting, Windows, option
from analysis.studies.text.calibration import document_windows, split
from analysis.studies.text.held_out import ids_hash, sample_windows
from lab.budgets.query_arms import static
from lab.harness.telling import concluded, lines_of

# Of a head, on average.
KEYS = (16, 32, 64, 128)
EVEN, RANKS, ABLATION = ARMS = "evenly", "by ranks", "by ablation"
# Arm -> what it can share out by.
MEASURES = {EVEN: ("even",), RANKS: ("ranks",), ABLATION: ("zero", "mean")}
# Part of the keys that all heads get alike before the rest is shared out.
EVENLY = (0.0, 0.25, 0.5, 0.75)
CONTROLS = {"against_even": "the same number for every head", "against_ranks": "by ranks"}


class Allocation(Windows):
    """The loss under 16 to 128 keys of a head on average, with as many keys in all however they are shared out.

    On the first documents the ranks are measured, and what the loss is estimated to rise by without each head. On the
    second each arm chooses, for each number of keys, what part of them all heads get alike, and ablation what takes a
    head's place. The held-out ones report.
    """

    tables = ("rows", "tried")

    windows: int = option(48, "held-out windows of text that report", low=2, high=4096)
    calibrate: int = option(16, "windows of other documents that ranks and ablation are measured on", low=1, high=4096)
    select: int = option(12, "windows of again other documents that choose how much is shared evenly", low=1, high=4096)

    def measure(self, run: Setting) -> dict:
        first, second, _ = split(*run.texts)
        length, rows, tried = self.length, [], []
        learn = document_windows(run.lm, first, length, self.calibrate * length, "calibration text")[0]
        choose = document_windows(run.lm, second, length, self.select * length, "selection text")[0]
        shared = _shared(run, learn)
        settings = len(KEYS) * len(EVENLY) * (len(MEASURES[RANKS]) + len(MEASURES[ABLATION]))
        reports = 1 + len(KEYS) * len(ARMS)
        progress = Progress(run.context.within(0.1, 0.9), settings * len(choose) + reports * len(run.windows))
        dense = _read(run, run.windows, None, progress, "dense")["losses"]
        for keys in KEYS:
            reads: dict[str, np.ndarray] = {}
            for arm in ARMS:
                name = f"{keys} keys {arm}"
                trials: list[Row] = []
                best: dict[str, Any] = {"by": MEASURES[arm][0], "evenly": 1.0}
                for by in MEASURES[arm]:
                    for evenly in EVENLY if arm != EVEN else ():
                        budgets = budgets_of(shared[by], keys, evenly)
                        loss = float(np.mean(_read(run, choose, budgets, progress, f"{name}, selection")["losses"]))
                        trials.append({"keys": keys, "arm": arm, "by": by, "evenly": evenly, "loss": loss})
                if trials:
                    lowest = min(trials, key=lambda trial: trial["loss"])
                    best = {key: lowest[key] for key in best}
                tried += trials
                budgets = budgets_of(shared[best["by"]], keys, best["evenly"])
                read = _read(run, run.windows, budgets, progress, name)
                rows.append({"keys": keys, "arm": arm} | best | _row(run, budgets, read, dense, reads))
                reads[arm] = np.array(read["losses"])
        about = {"kernel": KERNEL, "calibrated_on": ids_hash(learn), "selected_on": ids_hash(choose)}
        return {
            "rows": holm_corrected(rows, "against_even", "against_ranks"),
            "tried": tried,
            "shared": {by: values.tolist() for by, values in shared.items()},
            "dense": float(np.exp(np.mean(dense))),
            "protocol": run.about(run.windows, **about),
        }

    def sample(self, run: Setting, numbers: dict) -> dict:
        ids, values = sample_windows(run.lm, min(256, self.length), 1), {}
        shared = _shared(replace(run, work=None), ids)
        progress = Progress(run.context.within(0.99, 0.01), len(shared))
        for by, share in shared.items():
            budgets = budgets_of(share, KEYS[0], 0.5)
            losses = window_losses(run.lm, ids, static(budgets, int(budgets.max())), progress, by)
            values[by] = [*share.ravel().tolist(), float(losses.mean())]
        return values

    def part(self, run: Setting, numbers: dict) -> dict:
        budgets = budgets_of(np.ones((run.lm.num_layers, run.lm.num_heads)), KEYS[0], 1.0)
        progress = Progress(run.context, 2 * len(run.windows))
        dense = _read(run, run.windows, None, progress, "dense")["losses"]
        row = {"keys": KEYS[0], "arm": EVEN, "by": "even", "evenly": 1.0}
        row |= _row(run, budgets, _read(run, run.windows, budgets, progress, EVEN), dense, {})
        return {"rows": [row], "dense": float(np.exp(np.mean(dense))), "protocol": {"text": ids_hash(run.windows)}}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows = numbers["rows"]
        lead = f"Dense attention has a perplexity of {numbers['dense']:.2f} on held-out documents. Loss with as many "
        compared = [row for row in rows if row["arm"] != EVEN]
        sentence = concluded(f"{lead}keys in all, ", compared, CONTROLS, "{keys} keys a head {arm}")
        axes = ("arm", "keys", "keys of a head, on average", "nats per token", "against_dense")
        chart = lines_of("Loss above dense", rows, *axes)
        return presented("allocation", sentence, [chart], interval_caveat(numbers["protocol"]))


def _shared(run: Setting, windows: np.ndarray) -> dict[str, np.ndarray]:
    """Measure -> what keys are shared out by [L, H], measured on windows [n, T]: each sums to 1."""

    def make() -> dict:
        steps = [run.context.within(step / 30, 1 / 30) for step in range(3)]
        ranks = measure_ranks(run.lm, windows, MASS, steps[0].progress).mean()
        measures = {"even": np.ones_like(ranks), "ranks": ranks}
        for by, step in zip(MEASURES[ABLATION], steps[1:], strict=True):
            measures[by] = sensitivity(step, run.lm, windows, 1.0, by)
        return {by: (values / values.sum()).tolist() for by, values in measures.items()}

    return {by: np.array(values) for by, values in run.part("allocation-shared", [windows.tolist()], make).items()}


def budgets_of(values: np.ndarray, keys: int, evenly: float) -> np.ndarray:
    """Keys of each head [L, H], `keys` on average: the part `evenly` to all alike, the rest by their values."""
    return allocate_budget(values, keys * values.size, max(FLOOR, int(evenly * keys)))


def _read(run: Setting, windows: np.ndarray, budgets: np.ndarray | None, progress: Progress, name: str) -> dict:
    """`losses`, the mean of each window [n] in nats, under budgets [L, H] (None: dense), and what it `reads` in all."""

    def make() -> dict:
        if budgets is None:
            return {"losses": window_losses(run.lm, windows, Dense(), progress, name).mean(1).tolist(), "reads": {}}
        method = static(budgets, int(budgets.max()))
        losses = window_losses(run.lm, windows, method, progress, name).mean(1).tolist()
        return {"losses": losses, "reads": counted_reads([method], run.lm.num_kv_heads, *windows.shape)}

    return run.part("allocation", [windows.tolist(), None if budgets is None else budgets.tolist()], make)


def _row(run: Setting, budgets: np.ndarray, read: dict, dense: list[float], reads: dict[str, np.ndarray]) -> Row:
    """What an arm reads of the held-out windows, against dense and against the arms before it."""
    losses = np.array(read["losses"])
    row = {"total": int(budgets.sum()), "most": int(budgets.max())} | read["reads"]
    row["perplexity"] = float(np.exp(losses.mean()))
    row |= difference("against_dense", losses, np.array(dense), run.documents)
    for key, arm in (("against_even", EVEN), ("against_ranks", RANKS)):
        if arm in reads:
            row |= difference(key, losses, reads[arm], run.documents)
    return row
