"""Generate in a real browser with the real model and an own text: stopped, answered, the cache painted."""

import re

import pytest
from playwright.sync_api import expect

from tests.made.browsing import PATIENCE, click_when_shown, settle, upload

pytestmark = pytest.mark.browser
MASTERS = {
    "Gannet": "Ada Thorn",
    "Swift": "Piers Lowe",
    "Marigold": "Nan Holm",
    "Otter": "Saul Brand",
    "Heron": "Tess Quill",
    "Lantern": "Ivo Marsh",
    "Thistle": "Una Field",
    "Comet": "Rolf Stone",
}
FILLER = (
    "The wind went round to the west in the night and the men stayed in the inn, where they talked of the price of "
    "herring and of the old quarrel about the wall. "
)
OWN = "\n\n".join(f"The master of the {ship} is {name}. " + 3 * FILLER for ship, name in MASTERS.items())
ASKED, ANSWER = "Who is the master of the Heron? The master of the Heron is", MASTERS["Heron"]


def number(page, label: str, value: int):
    box = page.get_by_role("spinbutton", name=label)
    box.fill(f"{value}")
    box.press("Enter")
    settle(page)


@pytest.mark.slow
def test_an_own_needle_is_evicted_and_what_the_cache_holds_is_painted(app_server, page):
    """Question unknown: SnapKV drops three quarters of the keys, among them the needle's, before it is asked."""
    page.goto(f"{app_server}/generate")
    expect(page.get_by_role("heading", name="What is still in the cache")).to_be_visible(timeout=PATIENCE)
    settle(page)
    upload(page, "masters.txt", OWN.encode())
    expect(page.get_by_role("button", name="Text: masters")).to_be_visible(timeout=PATIENCE)
    page.wait_for_url(re.compile("job="))  # a text that is opened is answered without a click
    settle(page)
    asked = page.get_by_role("textbox", name="Question behind the text")
    asked.fill(ASKED)
    asked.press("Enter")
    settle(page)
    page.get_by_text("Question seen before keys are dropped").click()
    page.wait_for_url(re.compile("generate_known=no"))
    number(page, "New tokens", 256)
    drafts = page.locator(".contexts")
    click_when_shown(page, "Stop", ".contexts", ANSWER)
    page.get_by_role("button", name="Generate", exact=True).click()
    expect(page.get_by_text(re.compile(r"^Stopped after [\d,]+ new tokens"))).to_be_visible(timeout=PATIENCE)
    expect(drafts.first).to_contain_text(ANSWER)

    number(page, "New tokens", 12)
    expect(page.get_by_text("written with other settings")).to_be_visible(timeout=PATIENCE)
    page.get_by_role("button", name="Generate", exact=True).click()
    expect(page.get_by_text("written with other settings")).to_have_count(0, timeout=PATIENCE)
    expect(drafts.first).to_contain_text("12 tokens · ", timeout=PATIENCE)
    expect(page.get_by_text(re.compile("^SnapKV, ratio 0.75 differs from dense attention at token"))).to_be_visible(
        timeout=PATIENCE
    )
    settle(page)
    dense, cut = (drafts.first.locator("article").nth(at).inner_text() for at in (0, 1))
    assert ANSWER in dense and ANSWER not in cut
    expect(page.get_by_role("heading", name="What is still in the cache")).to_be_visible()
    page.locator(".painted .text .t").nth(-3).click()
    expect(page.get_by_text("What it could not read")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text(re.compile("of its attention would have gone to keys that are gone"))).to_be_visible()
