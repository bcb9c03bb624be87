"""What one training step costs: Focus through each form of its gate against a dense step, in turns, with memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from analysis.corpus import natural_samples, token_stream
from analysis.groups.gates import GATES
from analysis.models import Model
from analysis.studies.stored.comparisons import Row
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import TIMES, Setting, Study, option
from analysis.studies.text.held_out import check_range, corpus_hash
from analysis.timing import clock, processor
from analysis.timing.memory import peak_bytes
from analysis.training.run import Run
from analysis.training.settings import RouterTraining
from analysis.training.steps import copy_of, window_loss

TARGETS = {"log": 2.5, "literal": 4.0, "memory": 2.5}  # times a dense step


class StepCost(Study):
    """One optimiser step on one sequence of the bundled samples: its time, and its peak memory.

    Every step is forward, backward and AdamW. Dense trains all parameters of a copy of the model; Focus trains the
    router alone (phase 1) or with the copy (phase 2), through each form of the gate. `times` are the median and range
    of the ratios to the dense step of the same round.
    """

    tolerance = 0.25
    whole = TIMES

    length: int = option(1024, "tokens in the sequence")
    repeats: int = option(5, "number of rounds, with dense and sparse in alternation", low=1, high=1000)
    window: int = option(16, "number of recent tokens that are always read")
    n_sink: int = option(4, "number of first tokens that are always read")

    def check(self, lm: Model) -> None:
        check_range("A sequence", self.length, 16, lm.max_positions)

    def measure(self, run: Setting) -> dict:
        plan = {"window": self.window, "n_sink": self.n_sink, "length": self.length, "tokens_per_step": self.length}
        plan |= {"seed": self.seed, "calibration_windows": 1, "check_windows": 0}
        copy = copy_of(run.lm)
        rows: list[Row] = []
        steps = _steps(copy, plan, run.folder)
        times = clock(steps, self.repeats, run.context.progress)
        for name, step in steps.items():
            gate, _, phase = name.partition(", phase ")
            time, ratio, size = times[name], times[name].over(times["dense"]), peak_bytes(step, copy.device)
            row: Row = {"step": name, "gate": gate if phase else None, "phase": int(phase) if phase else None}
            row |= {"seconds": time.median, "low": time.low, "high": time.high, "times": ratio.median}
            row |= {"times_low": ratio.low, "times_high": ratio.high, "bytes": size}
            dense = rows[0]["bytes"] if rows else size
            rows.append(row | {"memory_times": size / dense if size and dense else None})
        highest = _highest(rows)
        text = corpus_hash(list(natural_samples().values()))
        about = {"text": text, "tokens": self.length, "window": self.length, "repeats": self.repeats, "training": plan}
        about |= {"kernel": "gate on the scores", "dense_kernel": run.lm.stock_attention, "dtype": "float32"}
        about |= {"processor": processor(str(run.lm.device))}
        met = {name: highest[name] <= target for name, target in TARGETS.items()}
        return {"rows": rows, "targets": TARGETS, "met": met, "protocol": about}

    def sample(self, run: Setting, numbers: dict) -> dict:
        steps, peaks = _steps(copy_of(run.lm), numbers["protocol"]["training"], Path()), {}
        for name in ("dense", "log, phase 1"):
            steps[name]()
            peaks[name] = peak_bytes(steps[name], torch.device(numbers["protocol"]["device"]))
        return peaks

    @staticmethod
    def shown(numbers: dict) -> dict:
        highest, protocol = _highest(numbers["rows"]), numbers["protocol"]
        gates = ", ".join(f"the {gate} gate {highest[gate]:.2f} times" for gate in ("log", "literal"))
        sentence = (
            f"On the machine named below, at {protocol['window']:,} tokens, in its slower phase a step takes, of a "
        )
        sentence += f"dense one: {gates}; up to {highest['memory']:.2f} times the memory."
        note = (
            f"Times a dense step are medians of {protocol['repeats']} rounds, with the lowest and the highest round in "
        )
        return presented("step-cost", sentence, None, f"{note}brackets.")


def _highest(rows: list[dict]) -> dict[str, float]:
    """The most that a step through each gate takes, of a dense one, and the most memory."""
    times = {gate: max(row["times"] for row in rows if row["gate"] == gate) for gate in ("log", "literal")}
    return times | {"memory": max(row["memory_times"] or 0.0 for row in rows)}


def _steps(copy: Model, sizes: dict[str, Any], folder: Path) -> dict[str, Callable[[], None]]:
    """Step by name: dense, then every form of the gate in both phases."""
    length = sizes["length"]
    ids = np.resize(token_stream(copy.tokenizer, list(natural_samples().values())), 4 * length)
    steps = {"dense": _dense(copy, ids[:length], RouterTraining(**sizes))}
    for gate in GATES:
        for phase in (1, 2):
            plan = RouterTraining(**sizes, gate=gate, phase=phase)
            steps[f"{gate}, phase {phase}"] = _focus(copy, ids, plan, folder / "no checkpoint")
    return steps


def _dense(model: Model, ids: np.ndarray, plan: RouterTraining) -> Callable[[], None]:
    """A step of the model alone on one sequence [T]."""
    parameters = list(model.lm.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=0.0, betas=(0.9, 0.95), eps=1e-12, weight_decay=0.0)

    def step() -> None:
        model.lm.requires_grad_(True)
        optimiser.zero_grad()
        window_loss(model, ids).backward()
        torch.nn.utils.clip_grad_norm_(parameters, plan.clip)
        optimiser.step()
        optimiser.zero_grad()

    return step


def _focus(model: Model, ids: np.ndarray, plan: RouterTraining, nowhere: Path) -> Callable[[], None]:
    """A step of training as `Run` does it, on the same model; no rate, so that it stays as it is."""
    run = Run(model, None, ids, plan, nowhere, None)
    run.rated = [(0.0, parameters) for _, parameters in run.rated]

    def step() -> None:
        model.lm.requires_grad_(plan.phase == 2)
        run.step(0)
        run.optimiser.zero_grad()

    return step
