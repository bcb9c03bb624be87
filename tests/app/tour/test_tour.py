"""The tour: every step opens from a stored example, says one computed sentence, and leads on."""

import pytest

from analysis.runs import RunStore
from app import cached
from app.selection.look import TOUR_STEPS
from app.tour import steps
from tests.conftest import ROOT
from tests.made.in_process import at_address, markup, part


@pytest.fixture
def client(client, tmp_path, monkeypatch):
    """The client with the examples that come with the program."""
    store = RunStore(tmp_path / "fresh", examples=ROOT / "models_cache" / "demo" / "examples")
    monkeypatch.setattr(cached, "store", lambda: store)
    yield client


def test_the_tour_goes_forth_and_back_without_asking_the_worker(client):
    app, said = at_address("tour").run(), []
    for place, title in enumerate(TOUR_STEPS.values()):
        assert app.title[0].value == f"{place + 1} of 5 · {title}" and not app.error
        sentence = markup(app).partition('<p class="fs-said">')[2].partition("</p>")[0]
        said.append(sentence.replace("\N{NO-BREAK SPACE}", " "))
        assert any(link.proto.label.startswith("Try it yourself: ") for link in app.get("page_link"))
        if place < 4:
            app.button(key="tour_next").click().run()
    assert not client.asked
    assert said[1].startswith("At “F”, where “Farrow” begins, head 4 of layer 5 (one of 48) puts 96% of its attention")
    assert said[2].startswith("There it finds “arrow”, which followed “F” the last time, 1,223 tokens earlier")
    assert "as if over 30 tokens; a softmax temperature of 0.5 sharpens that to 6." in said[3]
    assert app.query_params["step"] == "cut" and "by +3.6% on average, and by +12.6% where" in said[4]
    app.button(key="tour_back").click().run()
    assert app.query_params["step"] == "sharpen"


def test_a_step_has_an_address(client):
    app = at_address("tour", step="pair").run()
    key, query = part(app, "contexts")["panels"]
    assert (key["pieces"][key["hit"]], query["pieces"][query["hit"]]) == ("arrow", " F")
    assert app.button(key="tour_next") and "step" in app.query_params


def test_a_pair_that_repeats_nothing_is_said_plainly():
    assert steps.found("H", "es", "H", 7).endswith("the head looks up how the name goes on.")
    assert steps.found("H", "es", "G", 7) == "There it finds “es”: two places 7 tokens apart, joined by one head."
