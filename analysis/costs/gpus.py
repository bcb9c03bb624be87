"""What a step and a prompt take at best on a GPU of known bandwidth and arithmetic, and what fits into its memory.

A roofline, so a lower bound in time: every number that must be read is read once at the full bandwidth, every
multiplication runs at the full rate of the data sheet, and nothing waits. Real programs reach half to two thirds of it.
"""

import csv
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BadSetting
from .shape import MOST_BATCH, MOST_CONTEXT, Shape, cache_bytes, decode_bytes, prefill_flops, step_flops


@dataclass(frozen=True)
class Gpu:
    """A GPU as its data sheet has it: `memory` in bytes, `bandwidth` in bytes a second, `flops` dense bfloat16
    operations a second."""

    name: str
    title: str
    memory: float
    bandwidth: float
    flops: float
    source: str


def _read() -> dict[str, Gpu]:
    sizes = ("memory", "bandwidth", "flops")
    with Path(__file__).with_name("gpus.csv").open(encoding="utf-8", newline="") as file:
        rows: list[Any] = [row | {size: float(row[size]) for size in sizes} for row in csv.DictReader(file)]
    return {row["name"]: Gpu(**row) for row in rows}


GPUS = _read()


def named_gpu(name: str) -> Gpu:
    """The GPU of this name. Errors: BadSetting."""
    if name not in GPUS:
        raise BadSetting(f"{name[:40]!r} is no GPU known here: choose from {', '.join(GPUS)}.")
    return GPUS[name]


def estimate(shape: Shape, on: Gpu, context: int, batch: int, keep: float) -> dict[str, float | bool | int]:
    """Roofline estimate, max(bytes / bandwidth, FLOPs / peak), with all keys and with a fraction `keep` of them:
    `prefill_seconds` of `batch` prompts of `context` tokens, `ms_per_token` of the step after them, `memory_bytes` of
    weights and cache, and whether that `fits`; `largest_batch` that does, and its `tokens_per_second`, where the cache
    holds all keys or that fraction of them."""
    attention, other_flops = prefill_flops(shape, context)
    times: dict[str, float | bool | int] = {}
    for name, part in (("", 1.0), ("_sparse", keep)):
        times[f"prefill_seconds{name}"] = batch * (attention * part + other_flops) / on.flops
        times[f"ms_per_token{name}"] = 1000 * step_seconds(shape, on, context, batch, part)
        fitting = times[f"largest_batch{name}"] = largest_batch(shape, on, context, part)
        seconds = step_seconds(shape, on, context, max(fitting, 1), part)
        times[f"tokens_per_second{name}"] = fitting / seconds
    needed = held_bytes(shape, context, batch)
    return times | {"memory_bytes": needed, "fits": needed <= on.memory}


def step_seconds(shape: Shape, on: Gpu, context: int, batch: int, keep: float = 1.0) -> float:
    """What a step of `batch` sequences takes at best when it reads a fraction `keep` of the keys."""
    keys, rest = decode_bytes(shape, context, batch)
    return max((keys * keep + rest) / on.bandwidth, step_flops(shape, context, batch, keep) / on.flops)


def held_bytes(shape: Shape, context: int, batch: int, keep: float = 1.0) -> int:
    """Bytes of all weights, every expert included, and of a KV cache that holds a fraction `keep` of the keys."""
    return round(shape.weight_bytes + cache_bytes(shape, context, batch, keep))


def largest_batch(shape: Shape, on: Gpu, context: int, keep: float = 1.0) -> int:
    """How many sequences of `context` tokens fit beside the weights; 0 where not one does."""
    return bisect_left(range(1, MOST_BATCH + 1), True, key=lambda n: held_bytes(shape, context, n, keep) > on.memory)


def longest_context(shape: Shape, on: Gpu, batch: int) -> int:
    """How many tokens of each of `batch` sequences fit beside the weights, whatever the model was made for."""
    return bisect_left(range(1, MOST_CONTEXT + 1), True, key=lambda n: held_bytes(shape, n, batch) > on.memory)
