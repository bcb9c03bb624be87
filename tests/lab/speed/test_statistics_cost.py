"""What statistics cost: both ways give the same numbers, and the rows say what was measured."""

from types import SimpleNamespace

import pytest

from analysis.errors import BadSetting
from analysis.studies.context import Context
from lab import statistics_cost as study

SMALL = {"layers": 2, "width": 32, "heads": 4, "kv_heads": 4, "intermediate": 64}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(study, "SHAPE", SMALL)


def rows(lengths):
    sizes = study.StatisticsCost(lengths=lengths, repeats=1)
    setting = SimpleNamespace(sizes=sizes, lm=SimpleNamespace(device="cpu"), context=Context(device="cpu"))
    return sizes.measure(setting)["rows"]


def test_the_tables_give_the_same_numbers():
    assert study.StatisticsCost().sample(SimpleNamespace(), {}) == {"same": 1.0}


def test_rows_and_what_does_not_fit(monkeypatch):
    for row, length in zip(rows("64,32"), (32, 64), strict=True):
        assert (row["length"], row["layers"]) == (length, 2) and row["all_times"] > 0
        assert row["core_times"] == pytest.approx(row["core_ms"] / row["plain_ms"])
        assert row["of_tables"] == pytest.approx(row["core_ms"] / row["tables_ms"])
    monkeypatch.setattr(study, "LONG", 32)
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 1}))
    monkeypatch.setattr("analysis.statistics.heads.check_room", lambda *room, **padded: None)
    (row,) = rows("32")
    assert row["layers"] == 1 and row["tables_ms"] is row["of_tables"] is row["bytes_times"] is None
    assert "tables do not fit" in study.StatisticsCost.shown({"rows": [row]})["sentence"]


@pytest.mark.parametrize("lengths", ["4", "100", "many"])
def test_bad_lengths_are_refused(lengths):
    with pytest.raises(BadSetting):
        study.StatisticsCost(lengths=lengths).check(None)
