"""`bench sliders`: what the verb tells, whom it refuses, which sliders there are, and one of them in Chromium."""

import json
import sys

import pytest

from analysis.__main__ import main
from analysis.methods import METHODS
from analysis.studies.speed.bench_sliders import sentence
from tests.made.browsing import PATIENCE
from tests.stress import sliders

COLUMNS = "page slider what median_ms worst_ms moves target_ms met refused".split()


def row(what: str = "stored", median: float | None = 200.0, target: int = 300, **more: object) -> dict:
    """A row as the tool gives it."""
    met = None if median is None else median <= target
    numbers = [what, median, median, 9, target, met, ""]
    return dict(zip(COLUMNS, ["Routing", "Buckets", *numbers], strict=True)) | more


def test_the_verb_tells_its_rows_and_how_many_keep_their_target(monkeypatch, capsys):
    rows = [row(), row(median=412.3, slider="Cap"), row("new", 700.0, 800), row(median=None, refused="No.")]

    def timed(progress):
        progress(0.5, "Routing")
        return rows, {"browser": "Chromium 1"}

    monkeypatch.setattr(sliders, "timed", timed)
    assert main(["bench", "sliders", "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out.splitlines()[-1])
    assert told["rows"] == rows and "Routing" in err
    assert (told["protocol"]["what"], told["protocol"]["browser"]) == ("sliders", "Chromium 1")
    assert told["sentence"] == (
        "2 of 3 within their target; the slowest of stored stops is Routing, Cap, with 412 ms (target 300); the "
        "slowest of new values is Routing, Buckets, with 700 ms (target 800); 1 could not be moved."
    )
    assert sentence([]) == "0 of 0 within their target."
    assert main(["bench", "sliders", "--plan"]) == 0
    assert "what: sliders" in capsys.readouterr().out


def test_without_the_tests_it_is_refused_in_a_sentence(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tests.stress.sliders", None)
    assert main(["bench", "sliders"]) == 2
    assert "tests.stress.sliders is not installed: run it in a checkout" in capsys.readouterr().err


def test_every_page_and_every_method_that_is_moved_live_has_a_slider():
    assert len({slider.page for slider in sliders.stored()}) == 7 and not any(one.new for one in sliders.stored())
    live = {name for name, method in METHODS.items() if name != "dense"}
    assert {slider.card.rpartition("card_")[2] for slider in sliders.live()} == live
    assert all(slider.new and slider.label for slider in sliders.live())


@pytest.mark.slow
@pytest.mark.browser
def test_a_slider_is_timed_at_stored_stops_and_one_that_is_not_there_is_refused(monkeypatch):
    worth = next(slider for slider in sliders.stored() if slider.name == "Context, tokens")
    asked = [worth, next(slider for slider in sliders.live() if slider.card.endswith("focal_learned"))]
    said = []
    (found, refused), about = sliders.timed(lambda done, stage: said.append(stage), asked)
    assert list(found) == list(refused) == COLUMNS
    assert (found["what"], found["moves"], found["refused"]) == ("stored", sliders.MOVES, "")
    assert 0 < found["median_ms"] <= found["worst_ms"] < PATIENCE
    assert refused["median_ms"] is refused["met"] is None and "no learned temperatures" in refused["refused"]
    assert about["browser"].startswith("Chromium ") and said[0] == "Is it worth it? Context, tokens"
