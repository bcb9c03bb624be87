"""What do long texts take beside a model's weights, and with which power of their length does it grow?"""

import copy
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from analysis.corpus import natural_samples, token_stream
from analysis.errors import BadSetting
from analysis.groups.router import FocusRouter
from analysis.methods.windows import StreamingLLM
from analysis.models import Model, load_model
from analysis.shapes import make_shape
from analysis.statistics import HeadReading
from analysis.studies.stored.measured import Bench, trained_arm
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Setting, Study, option
from analysis.studies.text.scoring import against_dense
from analysis.timing import exponent, processor
from analysis.timing.memory import peak_bytes
from analysis.training.run import Run
from analysis.training.settings import RouterTraining
from analysis.training.steps import copy_of
from lab.harness.telling import lines_of

WHOLE = "they are the peaks of a machine's memory"
# Of the methods and the router.
WINDOW, MASS, GROUPS = 128, 0.9, 8
SAMPLE = 64  # tokens
Work = Callable[[Model, np.ndarray], object]


class MemoryGrowth(Study):
    """Peak memory beside the weights of a known shape with random weights, made for it and removed afterwards: scoring
    a window densely and with a sliding window as `evaluate` does, `statistics` of every head, an arm of `lengths`, and
    one step of a router's training; beside what [T, vocabulary] and [T, T] would take in float32."""

    whole = WHOLE

    shape: str = option("Qwen2.5-0.5B", "a known shape, such as Qwen2.5-0.5B")
    lengths: str = option("2048,4096,8192", "lengths in tokens, each longer than the one before")

    @property
    def every_length(self) -> list[int]:
        """The lengths in order. Errors: BadSetting."""
        try:
            lengths = sorted({int(length) for length in self.lengths.split(",")})
        except ValueError:
            lengths = []
        if len(lengths) < 2 or lengths[0] < SAMPLE:
            raise BadSetting(f"Growth is between two lengths of {SAMPLE} tokens or more, not {self.lengths[:40]!r}.")
        return lengths

    def check(self, lm: Model) -> None:
        _ = self.every_length

    def measure(self, run: Setting) -> dict:
        context = copy.copy(run.context)
        with tempfile.TemporaryDirectory() as folder:
            made = make_shape(self.shape, str(Path(folder) / "model"), context.progress)
            lm = load_model(made.path, context.device)
        ids = stream(lm, self.every_length[-1])
        rows = grown(lm, ids, self.every_length, context.progress, partial(run.part, "memory-growth"))
        about = {"text": None, "tokens": self.every_length[-1], "window": WINDOW, "kernel": "see the rows"}
        about |= {"dtype": lm.precision, "device": str(lm.device), "processor": processor(str(lm.device))}
        return {"rows": rows, "parameters": lm.parameters, "protocol": about}

    def sample(self, run: Setting, numbers: dict) -> dict:
        # In float32 whatever type the machine prefers.
        lm = copy_of(run.lm)
        return {"loss": float(scored(lm, stream(lm, SAMPLE))[0].mean())}

    @staticmethod
    def shown(numbers: dict) -> dict:
        last = {row["what"]: row for row in numbers["rows"]}
        length = numbers["rows"][-1]["length"]
        parts = [f"{what} {row['bytes'] / 1e9:.2f} GB" for what, row in last.items()]
        row = numbers["rows"][-1]
        beside = f"[T, vocabulary] alone would be {row['logits'] / 1e9:.2f} GB, [T, T] {row['square'] / 1e9:.2f} GB"
        said = f"Beside the weights, {length:,} tokens take at their peak: {', '.join(parts)}; {beside}."
        rows = [{**row, "gigabytes": row["bytes"] / 1e9} for row in numbers["rows"]]
        drawn = lines_of("Peak beside the weights", rows, "what", "length", "tokens", "GB", "gigabytes")
        sizes = {what: [(row["length"], row["bytes"]) for row in rows if row["what"] == what] for what in last}
        powers = [f"{what} {exponent(points):.2f}" for what, points in sizes.items()]
        note = f"Fitted power of the length with which the peak grows: {', '.join(powers)}. 1 is linear, 2 [T, T]."
        return presented("memory-growth", said, [drawn], note)


def stream(lm: Model, length: int) -> np.ndarray:
    """The bundled texts, repeated to so many tokens."""
    return np.resize(token_stream(lm.tokenizer, list(natural_samples().values())), length)


def scored(lm: Model, ids: np.ndarray) -> tuple[np.ndarray, ...]:
    """What `evaluate` does with a window [T]: dense attention, and a sliding window against it."""
    return against_dense(lm, StreamingLLM(window=WINDOW), torch.as_tensor(ids).long())


def _lengths(lm: Model, ids: np.ndarray) -> None:
    router = FocusRouter(lm.num_layers, lm.width, groups=GROUPS).to(lm.device)
    quiet: Any = type("Quiet", (), {"progress": staticmethod(lambda fraction, stage="": None)})()
    Bench(lm, router, ids[None], 0, None, quiet).measure(trained_arm("trained", router, WINDOW))


def _step(lm: Model, ids: np.ndarray) -> None:
    lm.lm.requires_grad_(False)
    plan = RouterTraining(length=len(ids), tokens_per_step=len(ids), calibration_windows=1, check_windows=0)
    run = Run(lm, None, np.resize(ids, 2 * len(ids)), plan, Path("none"), None)
    run.step(0)


WORK: dict[str, Work] = {
    "evaluate": scored,
    "statistics": lambda lm, ids: HeadReading(lm.num_layers, lm.num_heads, MASS, WINDOW).read(lm, ids),
    "lengths": _lengths,
    "router step": _step,
}


def grown(
    lm: Model,
    ids: np.ndarray,
    lengths: list[int],
    report: Callable[[float, str], None],
    part: Callable[[list, Callable[[], dict]], dict] = lambda decides, make: make(),
) -> list[dict]:
    """A row for each work and length: its peak, and what a token more took since the length before. `part` keeps a peak
    by what decides it, so that one who was stopped goes on."""
    rows, warm = [], set()

    def peak(what: str, length: int) -> dict[str, int]:
        if what not in warm:
            # What is loaded and compiled once is not of a text.
            WORK[what](lm, ids[: lengths[0]])
            warm.add(what)
        size = peak_bytes(partial(WORK[what], lm, ids[:length]), lm.device)
        if size is None:
            raise BadSetting("This system does not say what a process held at its peak: measure on Linux or a GPU.")
        return {"bytes": size}

    for number, what in enumerate(WORK):
        before: tuple[int, int] | None = None
        for place, length in enumerate(lengths):
            report((number + place / len(lengths)) / len(WORK), f"{what}, {length:,} tokens")
            decides = [what, length, lm.parameters, str(lm.dtype), str(lm.device)]
            size = part(decides, partial(peak, what, length))["bytes"]
            per_token = (size - before[1]) / (length - before[0]) if before else None
            row = {"what": what, "length": length, "bytes": size, "per_token": per_token}
            rows.append(row | {"logits": 4 * length * lm.vocabulary, "square": 4 * length * length})
            before = length, size
    return rows
