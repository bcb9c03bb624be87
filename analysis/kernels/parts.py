"""Where a call's time goes: `with part("set_a"):` marks a part, `with collect() as seconds:` sums the parts inside it.

Parts of the kernels: `sort` (sorting and gathering by group), `set_a` (pairs of one group), `set_b` (strangers inside
the window), `merge`. Marks cost nothing measurable while nobody collects.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

PARTS = ("sort", "set_a", "set_b", "merge")
_sink: ContextVar[dict | None] = ContextVar("sink", default=None)


@contextmanager
def collect() -> Iterator[dict[str, float]]:
    """Yields a dict: name of a part -> seconds, filled while the block runs. CUDA work is waited for at each mark."""
    seconds: dict[str, float] = defaultdict(float)
    token = _sink.set(seconds)
    try:
        yield seconds
    finally:
        _sink.reset(token)


@contextmanager
def part(name: str) -> Iterator[None]:
    """Count the time of this block as part `name`, if somebody collects."""
    sink = _sink.get()
    if sink is None:
        yield
        return
    start = now()
    try:
        yield
    finally:
        sink[name] += now() - start


def now() -> float:
    """Seconds on a clock that has waited for the GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
