"""The tour: every stop is the address of a screen, and says one sentence computed from a stored example."""

import pytest
from streamlit.navigation.page import Page

from analysis.runs import RunStore
from app import cached
from app.selection.look import TOUR_STEPS
from app.selection.menu import PAGES
from app.tour import steps
from tests.conftest import ROOT
from tests.made.in_process import at, at_address, markup

SAID = {
    "token": "1 of 5 · The model reads 2,245 tokens",
    "head": "At “Ashcombe”, head 5.1 puts 100% of its attention on a single token 777 tokens back.",
    "pair": "There it finds “Park”, which followed “Ashcombe” the last time, 777 tokens earlier",
    "sharpen": "as if over 35 tokens; a softmax temperature of 0.5 sharpens that to 7.",
    "cut": "by +3.6% on average, and by +12.6% where",
}


@pytest.fixture
def client(client, tmp_path, monkeypatch):
    """The client with the examples that come with the program."""
    store = RunStore(tmp_path / "fresh", examples=ROOT / "models_cache" / "demo" / "examples")
    monkeypatch.setattr(cached, "store", lambda: store)
    return client


@pytest.mark.parametrize("step", TOUR_STEPS)
def test_a_stop_opens_its_screen_with_its_sentence_and_leads_on(client, monkeypatch, step):
    page, controls = steps.stop(step)
    # The screen itself is drawn by its room's tests.
    monkeypatch.setattr(Page, "run", lambda self: None)
    app = at(page, **controls).run()
    assert not app.exception and app.session_state["page_shown"] == page
    sentence = markup(app).partition('<p class="fs-said">')[2].partition("</p>")[0]
    assert SAID[step] in sentence
    # What is the control's default, the address leaves out.
    assert {app.query_params.get(name, value) == value for name, value in controls.items()} == {True}
    ways = {link.proto.label: link.proto.query_string for link in app.main.get("page_link")}
    names = list(TOUR_STEPS)
    place = names.index(step)
    for label, target in (("Back", place - 1), ("Next", place + 1)):
        assert (label in ways) == (0 <= target < len(names))
        assert label not in ways or f"step={names[target]}" in ways[label]
    assert not client.asked


def test_its_address_begins_it_and_it_ends_when_it_is_told(client):
    app = at_address("tour").run()
    assert app.session_state["page_shown"] == "text" and app.query_params["step"] == "token"
    app = at("text", step="token").run()
    app.button(key="tour_end").click().run()
    assert "step" not in app.query_params and 'class="fs-said"' not in markup(app)
    assert {steps.STORY.leads_to(step)[0] for step in TOUR_STEPS} <= set(PAGES)


def test_a_pair_that_repeats_nothing_is_said_plainly():
    assert steps.found("H", "es", True, 7).endswith("the head looks up how the name goes on.")
    assert steps.found("H", "es", False, 7) == "There it finds “es”: two places 7 tokens apart, joined by one head."
