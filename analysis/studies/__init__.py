"""The verbs: plain arguments in, one Result out. The pages, the worker and the command line all call these.

Importing this package is cheap; torch comes with the first study.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping

from analysis.errors import BadSetting
from analysis.studies.registry import SHARED, STORED, VERBS, Verb


def function(verb: Verb) -> Callable:
    """The function of a verb, its module imported. Errors: BadSetting where the lab or the tests are not installed."""
    try:
        return getattr(importlib.import_module(verb.module), verb.function)
    except ModuleNotFoundError as error:
        if not f"{verb.module}.".startswith(f"{error.name}."):
            raise
        raise BadSetting(f"{verb.module} is not installed: run it in a checkout of Focuscope's repository.") from None


class _Studies(Mapping):
    """verb -> function, imported when first asked for."""

    def __init__(self, places: dict[str, Verb]) -> None:
        self._places = places

    def __getitem__(self, verb: str) -> Callable:
        return function(self._places[verb])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


STUDIES = _Studies({name: verb for name, verb in VERBS.items() if verb.study})
NAMED = _Studies(STORED)
PARTS = _Studies(dict(SHARED.values()))


def describe() -> dict[str, dict]:
    """Every method as plain data, from which the app builds its controls."""
    from analysis.methods import describe as described

    return described()
