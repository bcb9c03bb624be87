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
    "balance": ("balance", "balance"),
    "compare": ("compare", "compare"),
    "group-controls": ("compare", "group_controls"),
    "statistics": ("statistics", "statistics"),
    "head": ("heads", "head"),
    "temperature": ("temperature", "temperature"),
    "temperature-curve": ("temperature_curve", "temperature_curve"),
    "evaluate": ("evaluate", "evaluate"),
    "equal-budget": ("equal_budget", "equal_budget"),
    "fit-method": ("fitted_states", "fit_method"),
    "calibrate": ("calibrate", "calibrate"),
    "cap-sweep": ("cap_sweep", "cap_sweep"),
    "reads-sweep": ("reads_sweep", "reads_sweep"),
    "reads-text": ("reads_text", "reads_text"),
    "budgets": ("budgets", "budgets"),
    "calibrations": ("budgets", "calibrations"),
    "lost-keys": ("lost_keys", "lost_keys"),
    "import-policy": ("policies", "import_policy"),
    "topk-cost": ("topk_cost", "topk_cost"),
    "route": ("route", "route"),
    "route-at": ("route_live", "route_at"),
    "route-visit": ("route_visit", "route_visit"),
    "route-time": ("route_time", "route_time"),
    "probe": ("probe", "probe"),
    "benchmark": ("benchmark", "benchmark"),
    "pitfalls": ("pitfalls", "pitfalls"),
    "report": ("report", "report"),
    "launch": ("launch", "launch"),
    "finetune": ("finetune", "finetune"),
    "time-method": ("launch_method", "time_method"),
    "bench": ("bench", "bench"),
    "worth": ("worth", "worth"),
    "examples": ("examples", "examples"),
    "pretrain": ("pretrain", "pretrain"),
    "study": ("named", "study"),
}
_NAMED = {  # what `study NAME` runs
    "groups": ("arms", "arms"),
    "dominance": ("dominance", "dominance"),
    "causality": ("causality", "causality"),
    "step-cost": ("step_cost", "step_cost"),
    "temperature": ("temperatures", "temperatures"),
    "focal-temperatures": ("focal_temperatures", "focal_temperatures"),
    "focal-limits": ("focal_limits", "focal_limits"),
    "focal-scaling": ("focal_scaling", "focal_scaling"),
    "query-router": ("query_router", "query_router"),
    "calibration": ("calibration_table", "calibration_table"),
    "routing": ("route_study", "routing"),
    "pruned": ("pruned", "pruned"),
    "top": ("top", "top"),
    "lengths": ("lengths", "lengths"),
    "length-extension": ("length_extension", "length_extension"),
    "finetuning": ("finetuning", "finetuning"),
    "ablations": ("ablations", "ablations"),
    "baselines": ("finetune", "finetune"),
    "equal-budget": ("equal_budget_table", "equal_budget_table"),
    "benchmarks": ("benchmark_table", "benchmarks"),
    "pretraining": ("pretraining", "pretraining"),
}


class _Studies(Mapping):
    """verb -> function, imported when first asked for."""

    def __init__(self, places: dict[str, tuple[str, str]]):
        self._places = places

    def __getitem__(self, verb: str) -> Callable:
        module, name = self._places[verb]
        return getattr(importlib.import_module(f"analysis.studies.{module}"), name)

    def __iter__(self):
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


STUDIES, NAMED = _Studies(_PLACES), _Studies(_NAMED)


def describe() -> dict[str, dict]:
    """Every method as plain data, from which the app builds its controls."""
    return importlib.import_module("analysis.methods").describe()
