"""The bench of the statistics: what it compares computes the same numbers, and its rows say what was measured."""

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting
from analysis.statistics import CORE, attention_statistics
from analysis.studies.context import Context
from analysis.studies.speed import bench_statistics as study
from analysis.studies.speed.bench import bench

SMALL = {"layers": 2, "width": 32, "heads": 4, "kv_heads": 4, "intermediate": 64}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(study, "SHAPE", SMALL)


def test_the_tables_give_the_same_numbers():
    model = study._model(48, "cpu", 0)
    ids = torch.arange(48) * 7 % 1000
    mine = attention_statistics(model, ids, study.MASS, study.WINDOW)
    theirs = study.of_tables(model, ids)
    np.testing.assert_allclose(mine[list(CORE)].to_numpy(), theirs.reshape(8, 6), atol=1e-4)
    assert model.lm.config._attn_implementation == "sdpa"


def test_rows_and_what_does_not_fit(monkeypatch):
    told = []
    context = Context(progress=lambda fraction, stage: told.append((fraction, stage)), device="cpu")
    found = bench("statistics", lengths=[32, 64], repeats=1, context=context)
    assert [row["length"] for row in found.numbers["rows"]] == [32, 64] == found.tables["curve"]["length"].tolist()
    for row in found.numbers["rows"]:
        assert row["layers"] == 2 and row["core_times"] == pytest.approx(row["core_ms"] / row["plain_ms"])
        assert row["of_tables"] == pytest.approx(row["core_ms"] / row["tables_ms"]) and row["all_times"] > 0
    assert all(0 <= fraction <= 1 for fraction, _ in told) and "times a plain pass" in found.numbers["sentence"]
    monkeypatch.setattr(study, "LONG", 32)
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 1}))
    monkeypatch.setattr("analysis.statistics.heads.check_room", lambda *room, **padded: None)
    row = bench("statistics", lengths=[32], repeats=1, context=context).numbers["rows"][0]
    assert row["layers"] == 1 and row["tables_ms"] is row["of_tables"] is row["bytes_times"] is None


def test_bad_lengths_are_refused():
    for lengths in ([4], [100]):
        with pytest.raises(BadSetting, match="multiples of 8"):
            bench("statistics", lengths=lengths, context=Context(device="cpu"))
