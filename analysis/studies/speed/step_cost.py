"""What one training step costs: Focus through each form of its gate against a dense step, in turns, with memory."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

from analysis.corpus import sample_texts, token_stream
from analysis.groups.gates import GATES
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.speed.bench import processor
from analysis.studies.text.held_out import check_range, corpus_hash, places, write
from analysis.timing import Timing, clock, peak_bytes
from analysis.training.focus import copy_of
from analysis.training.run import Run
from analysis.training.settings import RouterTraining

TOLERANCE = 0.25  # of memory, from one run to the next
TARGETS = {"log": 2.5, "literal": 4.0, "memory": 2.5}  # times a dense step


def step_cost(
    model: str = "demo",
    length: int = 1024,
    repeats: int = 5,
    window: int | None = None,
    n_sink: int | None = None,
    seed: int = 0,
    output: str | None = None,
    *,
    context: Context,
) -> Result:
    """Time one optimiser step on one sequence of `length` tokens of the bundled samples, and its peak memory.

    Every step is forward, backward and AdamW. Dense trains all parameters of a copy of the model; Focus trains the
    router alone (phase 1) or with the copy (phase 2), at this `window` (default 16), through each form of the gate.
    numbers: `rows` (`step gate phase seconds low high times times_low times_high bytes memory_times`; `times` are the
    median and range of the ratios to the dense step of the same round), `targets`, `met`, `sentence`, `path`.
    table: `rows`.
    """
    check_seed(seed)
    lm = context.model(model)
    check_range("A sequence", length, 16, lm.max_positions)
    check_range("The number of rounds", repeats, 1, 1000)
    path, folder = places(context, lm, "step-cost", output, None)
    sizes = {"window": 16 if window is None else window, "n_sink": 4 if n_sink is None else n_sink, "length": length}
    sizes |= {"tokens_per_step": length, "seed": seed, "calibration_windows": 1, "check_windows": 0}
    own = copy_of(lm)
    steps = _steps(own, sizes, folder)
    times = clock(steps, repeats, context.progress)
    rows = [_row(name, times, peak_bytes(run, own.device)) for name, run in steps.items()]
    for row in rows:
        row["memory_times"] = row["bytes"] / rows[0]["bytes"] if row["bytes"] and rows[0]["bytes"] else None
    most = {gate: max(row["times"] for row in rows if row["gate"] == gate) for gate in ("log", "literal")}
    most["memory"] = max((row["memory_times"] or 0.0 for row in rows), default=None)
    numbers = {
        "sentence": (
            f"At {length:,} tokens a step through the log gate takes {most['log']:.2f} times a dense step, the literal "
            f"one {most['literal']:.2f} times, with up to {most['memory']:.2f} times the memory."
        ),
        "rows": rows,
        "targets": TARGETS,
        "met": {name: most[name] <= target for name, target in TARGETS.items()},
    }
    command = (
        f"python -m analysis study step-cost --model {lm.name} --length {length} --repeats {repeats} --window "
        f"{sizes['window']} --sinks {sizes['n_sink']}"
    )
    numbers["protocol"] = protocol(
        "study step-cost", lm, corpus_hash(_texts()), length, window=length, seed=seed, repeats=repeats,
        command=command, kernel="gate on the scores", dense_kernel=lm.lm.config._attn_implementation,
        dtype="float32", processor=processor(str(lm.device)), training=sizes,
    )  # fmt: skip
    write(path, numbers)
    return Result(numbers | {"path": str(path)}, {"rows": pd.DataFrame(rows)})


def recheck(stored: dict, *, context: Context) -> dict[str, tuple]:
    """Memory of two stored steps, which unlike their time should come again: step -> (what is stored, what is now)."""
    steps = _steps(copy_of(context.model(stored["protocol"]["model"])), stored["protocol"]["training"], Path())
    kept = {row["step"]: row["bytes"] for row in stored["rows"]}
    found = {}
    for name in ("dense", "log, phase 1"):
        steps[name]()
        found[name] = (kept[name], peak_bytes(steps[name], torch.device(stored["protocol"]["device"])))
    return found


def _texts() -> list[str]:
    return [text for _, text in sample_texts().values()]


def _steps(own: Model, sizes: dict, folder: Path) -> dict[str, Callable]:
    """Step by name: dense, then every form of the gate in both phases."""
    length = sizes["length"]
    ids = np.resize(token_stream(own.tokenizer, _texts()), 4 * length)
    steps = {"dense": _dense(own, ids[:length], sizes)}
    for gate in GATES:
        for phase in (1, 2):
            plan = RouterTraining(**sizes, gate=gate, phase=phase)
            steps[f"{gate}, phase {phase}"] = _focus(own, ids, plan, folder / "no checkpoint")
    return steps


def _dense(model, ids: np.ndarray, sizes: dict):
    """A step of the model alone on one sequence [T]."""
    plan = RouterTraining(**sizes)
    parameters = list(model.lm.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=0.0, betas=(0.9, 0.95), eps=1e-12, weight_decay=0.0)
    batch = torch.as_tensor(ids, device=model.device)[None]

    def step():
        model.lm.requires_grad_(True)
        optimiser.zero_grad()
        logits = model.lm(batch, use_cache=False).logits[0, :-1].float()
        F.cross_entropy(logits, batch[0, 1:]).backward()
        torch.nn.utils.clip_grad_norm_(parameters, plan.clip)
        optimiser.step()
        optimiser.zero_grad()

    return step


def _focus(model, ids: np.ndarray, plan: RouterTraining, nowhere):
    """A step of training as `Run` does it, on the same model; no rate, so that it stays as it is."""
    run = Run(model, None, ids, plan, nowhere, None)
    for position, (_, parameters) in enumerate(run.rated):
        run.rated[position] = (0.0, parameters)

    def step():
        model.lm.requires_grad_(plan.phase == 2)
        run.step(0)
        run.optimiser.zero_grad()

    return step


def _row(name: str, times: dict[str, Timing], size: int | None) -> dict:
    gate, _, phase = name.partition(", phase ")
    mine, dense = times[name], times["dense"]
    ratio = Timing.of([a / b for a, b in zip(mine.seconds, dense.seconds, strict=True)])
    return {
        **{"step": name, "gate": gate if phase else None, "phase": int(phase) if phase else None},
        **{"seconds": mine.median, "low": mine.low, "high": mine.high},
        **{"times": ratio.median, "times_low": ratio.low, "times_high": ratio.high, "bytes": size},
    }
