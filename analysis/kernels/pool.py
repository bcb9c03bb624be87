"""Where a tensor is worked on: on an accelerator by torch, on the CPU head by head in as many threads as torch uses.

A product of small matrices is faster on one core whose cache holds it than shared by all of them, and the kernels that
follow it here leave Python's lock, so a thread per core is what keeps the cores busy. An accelerator is waited for by
`on_host` alone.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

# Bytes of scores at once on an accelerator: each call is long beside its beginning, and many texts leave room for them.
AT_ONCE = 256 << 20


def accelerated(at: torch.Tensor | torch.device) -> bool:
    """Whether this lies on an accelerator, where torch computes; the compiled kernels are for the CPU."""
    return (at.device if isinstance(at, torch.Tensor) else at).type != "cpu"


def on_host(numbers: torch.Tensor, name: str) -> Any:
    """A small tensor as Python's numbers, in nested lists. `name` is what they are: a rehearsal answers by it.

    Every kernel that was started must end before they are there, and none is started meanwhile. So a prompt asks once
    a layer at most and a new token never (study `rehearsal`).
    """
    return numbers.tolist()


def each(task: Callable, items: Iterable) -> None:
    """Call `task(item)` for all items, in any order, without gradients; the first error is raised."""
    threads, items = torch.get_num_threads(), list(items)
    if threads == 1 or len(items) == 1:
        with torch.no_grad():
            for item in items:
                task(item)
        return
    for _ in _pool(threads).map(torch.no_grad()(task), items):
        pass


@contextmanager
def alone() -> Iterator[None]:
    """Inside, torch computes on one core of a processor: for steps so small that threads would only wait for each
    other, seven times as long where other programs run too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@functools.lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    """`threads` threads in which torch computes on one core."""
    pool = ThreadPoolExecutor(threads, "heads", initializer=torch.set_num_threads, initargs=(1,))
    list(pool.map(lambda _: None, range(threads)))
    # what a thread sets is also what threads of others would begin with
    torch.set_num_threads(threads)
    return pool
