"""Functions compiled by numba, with a cache on disk that holds under both names of this package."""

from collections.abc import Callable
from functools import cached_property
from typing import Any


class Compiled:
    """A function that numba, which takes half a second to load, gets when it is first called."""

    def __init__(self, function: Callable, options: dict[str, Any]) -> None:
        self.function, self.options = function, options

    @cached_property
    def dispatcher(self) -> Any:
        """numba's own. It takes no others among the function's globals, so what is called there is given to it too."""
        from numba import njit

        names = self.function.__globals__
        for name in self.function.__code__.co_names:
            if isinstance(inner := names.get(name), Compiled):
                names[name] = inner.dispatcher
        return njit(nogil=True, cache=True, **self.options)(self.function)

    def __call__(self, *args: Any) -> Any:
        return self.dispatcher(*args)


def jit(**options: Any) -> Callable[[Callable], Compiled]:
    """numba's `njit` without the interpreter's lock, cached beside the source.

    A wheel's files are imported as `focuscope.analysis` by a notebook and as `analysis` by the app. What numba stores
    names the module it came from, but the file it stores it in does not: a notebook then imported `analysis`, which it
    does not have. So the name of the file holds the module's.
    """

    def compile_function(function: Callable) -> Compiled:
        function.__qualname__ = f"{function.__module__}.{function.__qualname__}"
        return Compiled(function, options)

    return compile_function
