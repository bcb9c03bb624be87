"""Calibrating a method on texts."""

from analysis.studies.ready.fitted import FittedMethod, fit_method


def fit(method: str, model, context, **settings) -> FittedMethod:
    """What `fit-method` stores for a model."""
    return fit_method(model.name, method, context=context, **settings)
