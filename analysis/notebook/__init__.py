"""Focuscope for a notebook or a program: what `import focuscope` offers, and a model for lm-evaluation-harness."""

from ..probes.why import why
from .shown import METHODS, AnalysisError, Shown, apply, compare, inspect, load_model, run

__all__ = ["AnalysisError", "METHODS", "Shown", "apply", "compare", "inspect", "load_model", "run", "why"]
