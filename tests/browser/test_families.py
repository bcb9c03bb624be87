"""Every tab of every door in a real browser with a model of each kind that people run: nothing fails, nothing throws.
tests/app/test_families.py opens what is folded away in them too.

FOCUSCOPE_PICTURES names the folder for a picture of every page; without it none is taken.
"""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from analysis.runs import RunStore
from app.selection.menu import PAGES, address
from tests.conftest import watched
from tests.made.browsing import PATIENCE, settle
from tests.made.evaluating import TEXT
from tests.made.families import WALKED, walked
from tests.stress.server import served

pytestmark = [pytest.mark.browser, pytest.mark.slow]
# Where a part of a page has ended in a sentence.
ERROR = "[data-testid=stAlertContentError]"


@pytest.fixture(scope="module")
def families(once):
    """(an app that finds the models in a Hugging Face cache of its own, a text)."""
    folder = once("families", walked)
    text = RunStore(folder / "state").put_text(TEXT, "cats")
    with served(folder, HF_HUB_CACHE=str(folder / "hub")) as server:
        yield server, text


@pytest.mark.timeout(900)  # every page, one by one
@pytest.mark.parametrize("family", WALKED)
def test_every_tab_of_every_door_opens(families, visitor, family):
    server, text = families
    link = {"model": f"tiny/{family}", "text": text}
    with watched(visitor) as tab:
        for name in PAGES:
            tab.goto(f"http://{server.address}{address(name, link)}")
            heading = tab.get_by_test_id("stMain").locator(f"h1, {ERROR}").first
            expect(heading).to_be_visible(timeout=PATIENCE)
            settle(tab)
            assert not any("internal error" in words for words in tab.locator(ERROR).all_inner_texts()), name
            if folder := os.environ.get("FOCUSCOPE_PICTURES"):
                tab.screenshot(path=Path(folder) / f"{family}-{name}.png")
    assert "Traceback" not in server.log
