"""The stored study of moved sliders: what it keeps of the measurement, how it is told, what comes again without a
browser."""

import sys
from types import SimpleNamespace

import pytest

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.studies import NAMED
from lab.speed import sliders as study
from tests.stress import sliders as tool

MACHINE = {"browser": "Chromium 1", "viewport": {"width": 9}, "cores": 2, "processor": "x86_64", "load_average": 0.25}


def row(slider, change="new", median=500.0, target=800, page="Quality vs speed"):
    """A row as the tool gives it."""
    moved = {"median_ms": median, "worst_ms": median and 2 * median, "moves": 9 if median else 0}
    met = None if median is None else median <= target
    return {"page": page, "slider": slider, "what": change, **moved, "target_ms": target, "met": met, "refused": ""}


ROWS = [
    row("Routing's own", "stored", 200.0, 300, "Routing"),
    row("Smallest distance, tokens", "stored", 100.0, 300, "Long-range pairs"),
    row("MagicPIG: Bits", median=900.0),
    row("SparQ: Keys per query"),
    row("Focal, learned", median=None),
]


def test_the_study_keeps_the_rows_and_says_on_what_they_were_measured(monkeypatch):
    monkeypatch.setattr(tool, "timed", lambda progress: (ROWS, {**MACHINE, "read": 1024}))
    numbers = study.Sliders().measure(SimpleNamespace(context=SimpleNamespace(progress=None)))
    assert numbers["rows"] == ROWS and numbers["protocol"] | MACHINE == numbers["protocol"]
    assert (numbers["protocol"]["tokens"], numbers["protocol"]["kernel"]) == (1024, "the app in Chromium 1")
    summary = study.Sliders.shown(numbers)
    assert summary["sentence"].startswith("3 of 4 within their target;")
    assert "1 could not be moved" in summary["sentence"]
    assert summary["notes"][-1] == "Chromium 1 on 2 cores of x86_64, with a load of 0.2 at the end."
    stored, new = summary["panels"]
    assert stored["x_values"] == ["Routing's own", "Smallest distance, tokens"]
    assert new["x_values"] == ["MagicPIG", "SparQ"], "the rows say which of their sliders was moved"
    median, target = new["series"]
    assert (median["y"], median["high"], target["y"]) == ([900.0, 500.0], [1800.0, 1000.0], [800, 800])
    assert [column["name"] for column in summary["columns"]] == list(ROWS[0])


def test_sliders_that_are_still_there_come_again_without_a_browser(monkeypatch):
    monkeypatch.setattr(tool, "timed", None)
    assert study.Sliders().sample(SimpleNamespace(), {"rows": ROWS}) == {"stored": 1, "new": 2, "tokens": 1024}
    live = [row(f"{method.title}: any") for method in METHODS.values() if method.describe()["fields"]]
    assert study.Sliders().sample(SimpleNamespace(), {"rows": live})["new"] == len(live)


def test_another_model_and_a_folder_without_the_tool_are_refused(monkeypatch):
    with pytest.raises(BadSetting, match="on the bundled model"):
        study.Sliders(model="other").check(SimpleNamespace())
    study.Sliders().check(SimpleNamespace())
    monkeypatch.setitem(sys.modules, "tests.stress.sliders", None)
    with pytest.raises(BadSetting, match=r"tests\.stress\.sliders is not installed: run it in a checkout"):
        study.Sliders().check(SimpleNamespace())
    assert NAMED["sliders"] is study.Sliders.run
