"""The studies: arguments in, one result out. The pages, the worker and the command line all call these.

Importing this package is cheap; torch comes with the first study.
"""

import functools
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from ..commands import COMMANDS
from ..declaration.command import Command, full_place, imported
from .registry import PART, STORED


class _Studies(Mapping):
    """verb -> a function of its request, or of plain arguments, imported when first asked for."""

    def __init__(self, places: dict[str, str]) -> None:
        self._places = places

    def __getitem__(self, verb: str) -> Any:
        function = imported(*self._places[verb].split(":"))
        if "request" not in inspect.signature(function).parameters:
            return function

        @functools.wraps(function)
        def compute(request: Command | None = None, **arguments: Any) -> Any:
            brought = {name: arguments.pop(name) for name in ("context", "progress") if name in arguments}
            return function(request or COMMANDS[verb](**arguments), **brought)

        return compute

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


STUDIES = _Studies({verb: command.full_place() for verb, command in COMMANDS.items() if command.of_worker()})
NAMED = _Studies({name: study.full_place() for name, study in STORED.items()})
WARM = "start.warm:warm"
PARTS = _Studies({"search-part": full_place(PART)})


def describe() -> dict[str, dict]:
    """Every method as plain data, from which the app builds its controls."""
    from ..methods import describe as described

    return described()


def warm(context: Any, model: str) -> None:
    """Load a model and all that reading a first text with it needs."""
    imported(*full_place(WARM).split(":"))(context, model)
