"""The verbs: plain arguments in, one Result out. The pages, the worker and the command line all call these.

Importing this package is cheap; torch comes with the first study.
"""

import importlib
from collections.abc import Callable, Mapping

_PLACES = {
    "inspect": ("text.text", "inspect"),
    "model": ("start.card", "model_card"),
    "start": ("start.start", "start"),
    "groups": ("groups.contents", "groups"),
    "umap": ("groups.contents", "umap"),
    "pairs": ("groups.pairs", "pairs"),
    "fit-router": ("groups.routers", "fit_router"),
    "train-router": ("training.train_router", "train_focus_router"),
    "balance": ("groups.balance", "balance"),
    "compare": ("groups.compare", "compare"),
    "group-controls": ("groups.compare", "group_controls"),
    "statistics": ("heads.statistics", "statistics"),
    "head": ("heads.head", "head"),
    "temperature": ("temperature.sharpness", "temperature"),
    "temperature-curve": ("temperature.curve", "temperature_curve"),
    "evaluate": ("quality.evaluate", "evaluate"),
    "equal-budget": ("quality.equal_budget", "equal_budget"),
    "fit-method": ("ready.fitted", "fit_method"),
    "calibrate": ("budgets.calibrate", "calibrate"),
    "cap-sweep": ("budgets.cap_sweep", "cap_sweep"),
    "reads-sweep": ("budgets.reads_sweep", "reads_sweep"),
    "reads-text": ("budgets.reads_text", "reads_text"),
    "budgets": ("budgets.edited", "budgets"),
    "calibrations": ("budgets.edited", "calibrations"),
    "lost-keys": ("budgets.lost_keys", "lost_keys"),
    "import-policy": ("budgets.policies", "import_policy"),
    "topk-cost": ("speed.topk_cost", "topk_cost"),
    "route": ("routing.route", "route"),
    "route-at": ("routing.live", "route_at"),
    "route-visit": ("routing.visit", "route_visit"),
    "route-time": ("speed.route_time", "route_time"),
    "probe": ("probes.probe", "probe"),
    "benchmark": ("benchmarks.benchmark", "benchmark"),
    "pitfalls": ("grids.pitfalls", "pitfalls"),
    "report": ("start.report", "report"),
    "launch": ("speed.launch", "launch"),
    "finetune": ("training.finetune", "finetune"),
    "time-method": ("speed.method", "time_method"),
    "bench": ("speed.bench", "bench"),
    "worth": ("worth.worth", "worth"),
    "examples": ("start.examples", "examples"),
    "pretrain": ("training.pretrain", "pretrain"),
    "study": ("stored.named", "study"),
}
_NAMED = {  # what `study NAME` runs
    "groups": ("grids.arms", "arms"),
    "dominance": ("grids.dominance", "dominance"),
    "causality": ("grids.causality", "causality"),
    "step-cost": ("speed.step_cost", "step_cost"),
    "temperature": ("temperature.table", "temperatures"),
    "focal-temperatures": ("temperature.trained", "focal_temperatures"),
    "focal-limits": ("temperature.limits", "focal_limits"),
    "focal-scaling": ("temperature.scaling", "focal_scaling"),
    "query-router": ("budgets.query_router", "query_router"),
    "calibration": ("budgets.calibration_table", "calibration_table"),
    "routing": ("routing.table", "routing"),
    "pruned": ("grids.pruned", "pruned"),
    "top": ("grids.top", "top"),
    "lengths": ("grids.lengths", "lengths"),
    "length-extension": ("temperature.length_extension", "length_extension"),
    "finetuning": ("grids.table5", "finetuning"),
    "ablations": ("grids.ablations", "ablations"),
    "baselines": ("training.finetune", "finetune"),
    "equal-budget": ("quality.budget_table", "equal_budget_table"),
    "benchmarks": ("benchmarks.table", "benchmarks"),
    "pretraining": ("grids.pretraining", "pretraining"),
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
