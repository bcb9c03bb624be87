"""The methods by name. Adding one: a file here, a line in METHODS, a hand-worked test, a README row."""

from analysis.methods.dense import Dense
from analysis.methods.focus import Focus

METHODS = {"dense": Dense, "focus": Focus}


def describe() -> dict[str, dict]:
    """Every method as plain data (docstring, paper, fields with range, help and price)."""
    return {name: method.describe() for name, method in METHODS.items()}
