"""The sliders whose times are measured: which there are, and one of them in Chromium."""

import pytest

from analysis.methods import METHODS
from tests.made.browsing import PATIENCE
from tests.stress import sliders

COLUMNS = "page slider what median_ms worst_ms moves target_ms met refused".split()


def test_every_page_and_every_method_that_is_moved_live_has_a_slider():
    assert len({slider.page for slider in sliders.stored()}) == 2 and not any(slider.new for slider in sliders.stored())
    live = {name for name, method in METHODS.items() if method.describe()["fields"]}
    assert {slider.card.rpartition("card_")[2] for slider in sliders.live()} == live
    assert all(slider.new and slider.label for slider in sliders.live())


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(900)  # seconds, beside whatever else runs
def test_a_slider_is_timed_at_stored_stops_and_one_that_is_not_there_is_refused(monkeypatch):
    pairs = next(slider for slider in sliders.stored() if slider.name == "Smallest distance, tokens")
    chosen = [pairs, next(slider for slider in sliders.live() if slider.card.endswith("focal_learned"))]
    stages = []
    (timed, refused), about = sliders.timed(lambda done, stage: stages.append(stage), chosen)
    assert list(timed) == list(refused) == COLUMNS
    assert (timed["what"], timed["moves"], timed["refused"]) == ("stored", sliders.MOVES, "")
    assert 0 < timed["median_ms"] <= timed["worst_ms"] < PATIENCE
    assert refused["median_ms"] is refused["met"] is None and "was never fitted" in refused["refused"]
    assert about["browser"].startswith("Chromium ") and stages[0] == "Long-range pairs Smallest distance, tokens"
