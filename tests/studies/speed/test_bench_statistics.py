"""The bench of the statistics: what it compares computes the same numbers, and its rows say what was measured."""

import numpy as np
import pytest
import torch

from analysis.commands.speed import Bench
from analysis.errors import BadSetting
from analysis.statistics import CORE, attention_statistics
from analysis.studies.context import Context
from analysis.studies.speed import bench_statistics as study
from analysis.studies.speed.bench import bench

SMALL = {"layers": 2, "width": 32, "heads": 4, "kv_heads": 4, "intermediate": 64}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(study, "SHAPE", SMALL)


def rows(*lengths):
    request = Bench(what="statistics", lengths=list(lengths), repeats=1)
    return bench(request, context=Context(device="cpu")).numbers["rows"]


def test_the_tables_give_the_same_numbers():
    model, ids = study.made_model(48, "cpu", 0), torch.arange(48) * 7 % 1000
    streamed = attention_statistics(model, ids, study.MASS, study.WINDOW)
    np.testing.assert_allclose(streamed[list(CORE)].to_numpy(), study.of_tables(model, ids).reshape(8, 6), atol=1e-4)
    assert model.lm.config._attn_implementation == "sdpa"


def test_rows_and_what_does_not_fit(monkeypatch):
    for row, length in zip(rows(32, 64), (32, 64), strict=True):
        assert (row["length"], row["layers"]) == (length, 2) and row["all_times"] > 0
        assert row["core_times"] == pytest.approx(row["core_ms"] / row["plain_ms"])
        assert row["of_tables"] == pytest.approx(row["core_ms"] / row["tables_ms"])
    monkeypatch.setattr(study, "LONG", 32)
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 1}))
    monkeypatch.setattr("analysis.statistics.heads.check_room", lambda *room, **padded: None)
    (row,) = rows(32)
    assert row["layers"] == 1 and row["tables_ms"] is row["of_tables"] is row["bytes_times"] is None


@pytest.mark.parametrize("length", [4, 100])
def test_bad_lengths_are_refused(length):
    with pytest.raises(BadSetting, match="multiples of 8"):
        rows(length)
