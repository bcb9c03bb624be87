"""Functions compiled by numba, with a cache on disk that holds under both names of this package."""

from collections.abc import Callable
from typing import Any

from numba import njit


def jit(**options: Any) -> Callable[[Callable], Callable]:
    """numba's `njit` without the interpreter's lock, cached beside the source.

    A wheel's files are imported as `focuscope.analysis` by a notebook and as `analysis` by the app. What numba stores
    names the module it came from, but the file it stores it in does not: a notebook then imported `analysis`, which it
    does not have. So the name of the file holds the module's.
    """

    def compile_function(function: Callable) -> Callable:
        function.__qualname__ = f"{function.__module__}.{function.__qualname__}"
        return njit(nogil=True, cache=True, **options)(function)

    return compile_function
