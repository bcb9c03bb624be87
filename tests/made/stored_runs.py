"""Results to put into a store, for the tests of the runs."""

import io

import numpy as np
import pandas as pd

from analysis.declaration.undeclared import Undeclared
from analysis.runs import Result

ASK = {"model": "demo", "text": "0123456789ab", "seed": 0}
PROTOCOL = {"tokens": 900, "model": "demo"}


def result(value=1.0):
    """Numbers, tables and arrays of every kind that a run may hold."""
    table = pd.DataFrame(
        {"position": np.arange(4), "piece": ["a", " b", "⟨E2⟩", None], "mass": [0.1, value, np.nan, 1e-40]}
    )
    return Result(
        {"value": value, "words": ["ü", "<script>"], "share": np.float32(0.25), "undefined": float("nan")},
        {
            "tokens": table,
            "pairs": pd.DataFrame({"layer": pd.Series([], dtype="int64"), "far": pd.Series([], dtype="bool")}),
        },
        {
            "group": np.array([[1, -2], [3, 32767]], np.int16),
            "half": np.array([1.5, np.inf, np.nan], np.float16),
            "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
            "swapped": np.arange(3, dtype=">f8"),
            "scalar": np.array(7),
            "empty": np.zeros((0, 3), np.float32),
            "mask": np.array([True, False]),
        },
    )


def put(store, value=1.0, seconds=2.0, **ask):
    """Store that result for a question; `ask` changes the question."""
    return store.put(Undeclared("groups", {**ASK, **ask}), result(value), PROTOCOL, seconds)


def folder_of(store, run):
    """Where a run of a store lies."""
    return store.root / "runs" / run.id


def ids(store) -> set[str]:
    """Of all runs of a store."""
    return {row.id for row in store.search()}


def packed(store, *ids: str) -> bytes:
    """The bundle of these runs."""
    out = io.BytesIO()
    store.bundle(ids, out)
    return out.getvalue()
