"""Stored results. `RunStore` answers equal requests, `Result` is what a study returns, `Run` what is read back."""

from analysis.runs.price import Price
from analysis.runs.run import Result, Run
from analysis.runs.store import RunStore, state_root

__all__ = ["Price", "Result", "Run", "RunStore", "state_root"]
