"""Stored results. `RunStore` answers equal requests, `Result` is what a study returns, `Run` what is read back."""

from .price import Price
from .run import Result, Run
from .store import RunStore, state_root

__all__ = ["Price", "Result", "Run", "RunStore", "state_root"]
