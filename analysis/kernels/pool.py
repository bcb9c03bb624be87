"""Work on the heads of a layer side by side: as many threads as torch uses, each computing alone.

A product of small matrices is faster on one core whose cache holds it than shared by all of them, and the kernels that
follow it here leave Python's lock, so a thread per core is what keeps the cores busy.
"""

import functools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import torch


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


@functools.lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    """`threads` threads in which torch computes on one core."""
    pool = ThreadPoolExecutor(threads, "heads", initializer=torch.set_num_threads, initargs=(1,))
    list(pool.map(lambda _: None, range(threads)))
    torch.set_num_threads(threads)  # what a thread sets is also what threads of others would begin with
    return pool
