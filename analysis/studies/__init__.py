"""The verbs: plain arguments in, one Result out. The pages, the worker and the command line all call these.

Importing this package is cheap; torch comes with the first study.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping

from analysis.studies.registry import SHARED, STORED, VERBS, Verb


class _Studies(Mapping):
    """verb -> function, imported when first asked for."""

    def __init__(self, places: dict[str, Verb]) -> None:
        self._places = places

    def __getitem__(self, verb: str) -> Callable:
        place = self._places[verb]
        return getattr(importlib.import_module(place.module), place.function)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


STUDIES = _Studies({name: verb for name, verb in VERBS.items() if verb.study})
NAMED = _Studies(STORED)
PARTS = _Studies(dict(SHARED.values()))


def describe() -> dict[str, dict]:
    """Every method as plain data, from which the app builds its controls."""
    return importlib.import_module("analysis.methods").describe()
