"""Exact attention over learned groups and a local window, and a plan that says which kernel runs and why.

A token reads a token before it when the two share a group or lie less than `window` apart. Everything here returns the
output together with its logsumexp, so that parts can be merged; nothing here knows a model or a method.
"""

from .grouped import BACKENDS, Plan, grouped_attention, plan, planned_attention

__all__ = ["BACKENDS", "Plan", "grouped_attention", "plan", "planned_attention"]
