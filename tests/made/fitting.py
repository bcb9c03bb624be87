"""Calibrating a method on texts."""

from analysis.commands.quality import FitMethod
from analysis.studies.ready.calibration import FittedMethod, fit_method


def fit(method: str, model, context, **settings) -> FittedMethod:
    """What `fit-method` stores for a model."""
    return fit_method(FitMethod(method=method, model=model.name, **settings), context=context)
