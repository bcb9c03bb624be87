"""What the tables of eviction and of prompts read by blocks store of a tiny model."""

import numpy as np
import pytest

from lab.equal.eviction import RATIOS
from lab.equal.prefill import SCALES, law_of


def test_rules_by_what_they_remove(stored):
    rows = stored("eviction")["rows"]
    assert [(row["method"], row["ratio"]) for row in rows] == [(n, r) for n in ("tova", "keydiff") for r in RATIOS]
    for row in rows:
        assert row["kept_keys"] == int(32 * (1 - row["ratio"])) and row["kv_share"] == row["kept_keys"] / 32


def test_rules_by_length(stored):
    made = stored("prefill")
    rules = ("skip_softmax", "flex_prefill")
    assert [(row["method"], row["length"]) for row in made["rows"]] == [(rule, n) for n in (32, 48) for rule in rules]
    for row in made["rows"]:
        assert row["read"] == 1 and row["against_dense"] == pytest.approx(0, abs=1e-5)  # one block of 128
        assert 0 < row["speedup_low"] <= row["speedup"] <= row["speedup_high"] and row["prompt_ms"] > 0
    assert [(one["length"], one["scale"]) for one in made["calibration"]] == [(n, s) for n in (32, 48) for s in SCALES]
    assert made["law"] is None and 0 < made["check"]["read"] < 1


def test_the_law_of_the_scale_by_hand():
    """scale = 2 exp(5 s) at three shares; a share that saturates is left out, one point is no law."""
    points = [{"scale": 2 * np.exp(5 * s), "skipped": s} for s in (0.2, 0.5, 0.8)]
    law = law_of([*points, {"scale": 1e4, "skipped": 1.0}])
    assert law == pytest.approx({"a": 2.0, "b": 5.0, "error": 1.0}) and law_of(points[:1]) is None
