"""The verbs: plain arguments in, one Result out. The pages, the worker and the command line all call these.

Importing this package is cheap; torch comes with the first study.
"""

import importlib
from collections.abc import Callable, Mapping

_PLACES = {
    "inspect": ("text", "inspect"),
    "model": ("card", "model_card"),
    "start": ("start", "start"),
    "groups": ("groups", "groups"),
    "umap": ("groups", "umap"),
    "pairs": ("pairs", "pairs"),
    "fit-router": ("routers", "fit_router"),
    "train-router": ("train_router", "train_focus_router"),
    "report": ("report", "report"),
    "examples": ("examples", "examples"),
    "pretrain": ("pretrain", "pretrain"),
}


class _Studies(Mapping):
    """verb -> function, imported when first asked for."""

    def __getitem__(self, verb: str) -> Callable:
        module, name = _PLACES[verb]
        return getattr(importlib.import_module(f"analysis.studies.{module}"), name)

    def __iter__(self):
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


STUDIES = _Studies()


def describe() -> dict[str, dict]:
    """Every method as plain data, from which the app builds its controls."""
    return importlib.import_module("analysis.methods").describe()
