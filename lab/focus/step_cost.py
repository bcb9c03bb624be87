"""What one training step costs: Focus through each form of its gate against a dense step, in turns, with memory."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from analysis.corpus import natural_samples, token_stream
from analysis.groups.gates import GATES
from analysis.models import Model
from analysis.studies.stored.panels import columns
from analysis.studies.stored.runner import TIMES, Setting, Sizes, Study, option
from analysis.studies.text.held_out import check_range, corpus_hash
from analysis.timing import clock, peak_bytes, processor
from analysis.training.run import Run
from analysis.training.settings import RouterTraining
from analysis.training.steps import copy_of

TARGETS = {"log": 2.5, "literal": 4.0, "memory": 2.5}  # times a dense step


@dataclass(frozen=True)
class Steps(Sizes):
    """What the study can be asked for."""

    length: int = option(1024, "tokens in the sequence")
    repeats: int = option(5, "number of rounds, with dense and sparse in alternation")
    window: int = option(16, "number of recent tokens that are always read")
    n_sink: int = option(4, "number of first tokens that are always read")

    def check(self, lm: Model) -> None:
        check_range("A sequence", self.length, 16, lm.max_positions)
        check_range("The number of rounds", self.repeats, 1, 1000)


def measure(at: Setting) -> dict:
    """One optimiser step on one sequence of the bundled samples: its time, and its peak memory.

    Every step is forward, backward and AdamW. Dense trains all parameters of a copy of the model; Focus trains the
    router alone (phase 1) or with the copy (phase 2), through each form of the gate.
    `rows`: `step gate phase seconds low high times times_low times_high bytes memory_times`; `times` are the median and
    range of the ratios to the dense step of the same round; `targets`, `met`.
    """
    lm, sizes = at.lm, at.sizes
    plan = {"window": sizes.window, "n_sink": sizes.n_sink, "length": sizes.length, "tokens_per_step": sizes.length}
    plan |= {"seed": sizes.seed, "calibration_windows": 1, "check_windows": 0}
    copy = copy_of(lm)
    steps = _steps(copy, plan, at.work)
    times = clock(steps, sizes.repeats, at.context.progress)
    rows = []
    for name, run in steps.items():
        gate, _, phase = name.partition(", phase ")
        time, ratio, size = times[name], times[name].over(times["dense"]), peak_bytes(run, copy.device)
        row = {"step": name, "gate": gate if phase else None, "phase": int(phase) if phase else None}
        row |= {"seconds": time.median, "low": time.low, "high": time.high}
        row |= {"times": ratio.median, "times_low": ratio.low, "times_high": ratio.high, "bytes": size}
        dense = rows[0]["bytes"] if rows else size
        rows.append(row | {"memory_times": size / dense if size and dense else None})
    highest = _most(rows)
    about = {"text": corpus_hash(_texts()), "tokens": sizes.length, "window": sizes.length, "repeats": sizes.repeats}
    about |= {"kernel": "gate on the scores", "dense_kernel": lm.stock_attention, "dtype": "float32"}
    about |= {"processor": processor(str(lm.device)), "training": plan}
    met = {name: highest[name] <= target for name, target in TARGETS.items()}
    return {"rows": rows, "targets": TARGETS, "met": met, "protocol": about}


def shown(numbers: dict) -> dict:
    """How the cost is told."""
    rows, length = numbers["rows"], numbers["protocol"]["window"]
    gates = ", ".join(f"the {gate} gate {_slower(rows, gate)}" for gate in ("log", "literal"))
    sentence = (
        f"On the machine named below, at {length:,} tokens, in its slower phase a step takes, of a dense one: {gates}; "
        f"up to {_most(rows)['memory']:.2f} times the memory."
    )
    rounds = numbers["protocol"]["repeats"]
    note = f"Times a dense step are medians of {rounds} rounds, with the lowest and the highest round in brackets."
    return {"sentence": sentence, "columns": columns("step-cost"), "notes": [note]}


def sample(run: Setting, numbers: dict) -> dict[str, int | None]:
    """Memory of two steps, which unlike their time should come again."""
    steps = _steps(copy_of(run.lm), numbers["protocol"]["training"], Path())
    peaks = {}
    for name in ("dense", "log, phase 1"):
        steps[name]()
        peaks[name] = peak_bytes(steps[name], torch.device(numbers["protocol"]["device"]))
    return peaks


def _most(rows: list[dict]) -> dict[str, float]:
    """The most that a step through each gate takes, of a dense one, and the most memory."""
    most = {gate: max(row["times"] for row in rows if row["gate"] == gate) for gate in ("log", "literal")}
    return most | {"memory": max(row["memory_times"] or 0.0 for row in rows)}


def _slower(rows: list[dict], gate: str) -> str:
    """Times a dense step of a gate's slower phase, with the range of its rounds."""
    row = max((row for row in rows if row["gate"] == gate), key=lambda row: row["times"])
    return f"{row['times']:.2f} times (phase {row['phase']}, rounds {row['times_low']:.2f} to {row['times_high']:.2f})"


def _texts() -> list[str]:
    return list(natural_samples().values())


def _steps(model_copy: Model, sizes: dict, folder: Path) -> dict[str, Callable]:
    """Step by name: dense, then every form of the gate in both phases."""
    length = sizes["length"]
    ids = np.resize(token_stream(model_copy.tokenizer, _texts()), 4 * length)
    steps = {"dense": _dense(model_copy, ids[:length], sizes)}
    for gate in GATES:
        for phase in (1, 2):
            plan = RouterTraining(**sizes, gate=gate, phase=phase)
            steps[f"{gate}, phase {phase}"] = _focus(model_copy, ids, plan, folder / "no checkpoint")
    return steps


def _dense(model: Model, ids: np.ndarray, sizes: dict) -> Callable[[], None]:
    """A step of the model alone on one sequence [T]."""
    plan = RouterTraining(**sizes)
    parameters = list(model.lm.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=0.0, betas=(0.9, 0.95), eps=1e-12, weight_decay=0.0)
    batch = torch.as_tensor(ids, device=model.device)[None]

    def step() -> None:
        model.lm.requires_grad_(True)
        optimiser.zero_grad()
        logits = model.lm(batch, use_cache=False).logits[0, :-1].float()
        F.cross_entropy(logits, batch[0, 1:]).backward()
        torch.nn.utils.clip_grad_norm_(parameters, plan.clip)
        optimiser.step()
        optimiser.zero_grad()

    return step


def _focus(model: Model, ids: np.ndarray, plan: RouterTraining, nowhere: Path) -> Callable[[], None]:
    """A step of training as `Run` does it, on the same model; no rate, so that it stays as it is."""
    run = Run(model, None, ids, plan, nowhere, None)
    for position, (_, parameters) in enumerate(run.rated):
        run.rated[position] = (0.0, parameters)

    def step() -> None:
        model.lm.requires_grad_(plan.phase == 2)
        run.step(0)
        run.optimiser.zero_grad()

    return step


step_cost = Study("step-cost", __doc__, Steps, measure, shown, sample, tolerance=0.25, whole=TIMES)
