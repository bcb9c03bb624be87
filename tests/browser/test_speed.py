"""The page Speed in a real browser with the real model: one launch completed, one cancelled, one refused."""

import re

import pytest
from playwright.sync_api import expect

from tests.made.browsing import PATIENCE, settle

pytestmark = pytest.mark.browser
LAUNCH = "Launch sparse inference"


def speed_page(page, address: str, **link: object):
    """The page, its controls as the link says."""
    page.goto(f"{address}/speed?" + "&".join(f"{name}={value}" for name, value in link.items()))
    expect(page.get_by_role("button", name=LAUNCH)).to_be_visible(timeout=PATIENCE)


@pytest.mark.slow
def test_a_short_launch_is_watched_to_its_result(app_server, page):
    speed_page(page, app_server, speed_prompt=128, speed_new=4, speed_rounds=2)
    expect(page.get_by_text("dense and sparse inference in turns, 2 rounds")).to_be_visible()
    page.get_by_role("button", name=LAUNCH).click()
    expect(page.locator(".st-key-job_strip").get_by_role("progressbar")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("region", name="Dense and sparse")).to_contain_text("time to first token", timeout=PATIENCE)
    settle(page)
    for words in ("What both wrote", "Against the masked reference, on the first 128 tokens", "The opponent is"):
        expect(page.get_by_text(words)).to_be_visible()
    expect(page.locator(".contexts article")).to_have_count(2)
    expect(page.get_by_role("button", name=f"{LAUNCH} again")).to_be_enabled()
    page.get_by_test_id("stNumberInput").filter(has_text="New tokens").get_by_role("spinbutton").fill("5")
    page.keyboard.press("Enter")
    expect(page.get_by_text("time of each of 5 tokens")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("With other settings than those above: prompt 128, new tokens 4")).to_be_visible()


@pytest.mark.slow
def test_a_running_launch_is_cancelled_and_leaves_no_numbers(app_server, page):
    speed_page(page, app_server, speed_prompt=960, speed_new=64, speed_rounds=50)
    page.get_by_role("button", name=LAUNCH).click()
    expect(page.get_by_text(re.compile("(dense|sparse), 960 tokens"))).to_be_visible(timeout=PATIENCE)
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("nothing half-made was kept")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("button", name=LAUNCH)).to_be_enabled()
    expect(page.get_by_text("dense and sparse inference in turns, 50 rounds")).to_be_visible()


@pytest.mark.slow
def test_a_length_beyond_memory_is_refused_with_the_numbers(app_server, page):
    speed_page(page, app_server, speed_on="shapes", speed_lengths="4M", speed_heads=256, speed_batch=64)
    said = page.get_by_text(re.compile("needs about .* GB of memory and .* GB are free"))
    expect(said).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("button", name=LAUNCH)).to_be_disabled()
    page.get_by_role("textbox", name="Lengths, tokens").fill("many")
    page.keyboard.press("Enter")
    expect(page.get_by_text("is not a length: write whole numbers")).to_be_visible(timeout=PATIENCE)
