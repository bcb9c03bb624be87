"""Budgets per head and routers in a real browser: what moves while the hand moves, what a released slider asks of
Python, clicks, keys and changes by hand."""

import re
import statistics

import pytest
from playwright.sync_api import expect

from tests.browser import script
from tests.made.browsing import PATIENCE, choose, redrawn, settle

pytestmark = pytest.mark.browser
FRAME = 50.0  # milliseconds between two frames while a slider is dragged: 17 on two quiet cores
DRAG = script("drag")
SCREENS = pytest.mark.parametrize("size", [(1440, 900), (390, 844)], ids=["laptop", "telephone"])
HEIGHT = "() => document.querySelector('.stMainBlockContainer').scrollHeight"
WIDTH = "() => document.scrollingElement.scrollWidth"


def opened(page, address: str, size: tuple[int, int], picture: str):
    """The picture of a page, at rest; at a laptop's size it stands in the first screen and all in two."""
    page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
    page.goto(address)
    drawn = page.locator(picture)
    expect(drawn).to_be_visible(timeout=PATIENCE)
    settle(page)
    assert page.evaluate(WIDTH) <= size[0], "the page itself does not scroll sideways"
    if size[0] > 1000:
        box = drawn.bounding_box()
        assert box["y"] + box["height"] <= size[1] and page.evaluate(HEIGHT) <= 1800
    return drawn


def drag(thumb, to: float) -> None:
    """Drag a slider over all of its places and leave it at the share `to` of its way, still held."""
    frames = thumb.evaluate(DRAG, to)
    assert len(frames) > 20 and statistics.median(frames) <= FRAME, frames


@SCREENS
def test_budgets_follow_the_hand_and_python_says_the_same(app_server, page, size):
    map_ = opened(page, f"{app_server}/kv-budgets", size, ".budgets .map")
    cells, title = map_.locator(".cell text"), page.get_by_role("heading", level=1)
    expect(title).to_have_text(re.compile("costs nothing.* 2% costs"))
    before = cells.all_text_contents()
    assert len(before) == 48
    thumb = page.get_by_role("slider", name="Read")
    drag(thumb, 0.41)
    live, facts = cells.all_text_contents(), page.locator(".budgets .facts").inner_text()
    assert live != before and "worst" in facts
    redrawn(page, lambda: thumb.dispatch_event("change"))
    expect(page).to_have_url(re.compile("budget_way=reads&budget_size=10.0"), timeout=PATIENCE)
    assert cells.all_text_contents() == live, "the budgets that Python shares out"
    assert page.locator(".budgets .facts").inner_text() == facts and "+3.6%" in facts

    cap = page.get_by_role("slider", name="Cap")
    drag(cap, 0.5)
    capped = cells.all_text_contents()
    assert max(int(words.replace(",", "")) for words in capped) == 45
    redrawn(page, lambda: cap.dispatch_event("change"))
    expect(page).to_have_url(re.compile("budget_cap=45"), timeout=PATIENCE)
    assert cells.all_text_contents() == capped
    expect(page.get_by_role("button", name=re.compile("^Measure this"))).to_be_visible()
    redrawn(page, page.get_by_role("button", name="As calibrated").click)
    expect(page).not_to_have_url(re.compile("budget_cap"), timeout=PATIENCE)
    assert cells.all_text_contents() == before


def test_a_head_is_chosen_by_click_and_keys_changed_by_hand_and_undone(app_server, page):
    map_ = opened(page, f"{app_server}/kv-budgets", (1440, 900), ".budgets .map")
    head = page.get_by_role("heading", level=3, name=re.compile("^Head "))
    redrawn(page, map_.locator("[data-cell='27']").click)
    expect(head).to_have_text(re.compile("Head 3.3"), timeout=PATIENCE)
    map_.focus()
    redrawn(page, lambda: page.keyboard.press("ArrowRight"))
    expect(head).to_have_text(re.compile("Head 3.4"), timeout=PATIENCE)
    expect(page).to_have_url(re.compile("layer=3&head=4"))
    cell = map_.locator("[data-cell='28']")
    before = cell.locator("text").text_content()
    redrawn(page, page.get_by_text("Change it by hand").click)
    choose(page, "Set")
    expect(page.locator(".st-key-budget_keys input")).to_be_visible(timeout=PATIENCE)
    settle(page)
    redrawn(page, page.get_by_role("button", name="Apply").click)
    expect(page).to_have_url(re.compile("budget_edits=c28s64"), timeout=PATIENCE)
    expect(cell.locator("text")).to_have_text("64")
    thumb = page.get_by_role("slider", name="Read")
    drag(thumb, 0.6)
    counts = map_.locator(".cell text").all_text_contents()
    redrawn(page, lambda: thumb.dispatch_event("change"))
    expect(page).to_have_url(re.compile("budget_way=reads"), timeout=PATIENCE)
    assert map_.locator(".cell text").all_text_contents() == counts and counts[28] == "64"
    redrawn(page, page.get_by_role("button", name="As calibrated").click)
    expect(cell.locator("text")).to_have_text(before)


@SCREENS
def test_routers_follow_the_hand_and_python_says_the_same(app_server, page, size):
    opened(page, f"{app_server}/routing", size, ".routing .chart")
    title, best = page.get_by_role("heading", level=1), page.locator(".routing li", has_text="Saap-style MLP").first
    expect(title).to_have_text(re.compile("Visiting 3% of the buckets, the best router finds 24%"))
    recall = best.locator(".found")
    assert recall.inner_text() == "23.8%"
    thumb = page.get_by_role("slider", name="Buckets that each query visits")
    drag(thumb, 0.5)
    live, now = recall.inner_text(), page.locator(".routing .now").inner_text()
    assert now == "8 of 64 buckets, 12.5%" and 40 < float(live.rstrip("%")) < 60
    redrawn(page, lambda: thumb.dispatch_event("change"))
    expect(page).to_have_url(re.compile("route_l=8"), timeout=PATIENCE)
    expect(title).to_have_text(re.compile(f"Visiting 12% .* finds {float(live.rstrip('%')):.0f}%"), timeout=PATIENCE)
    assert recall.inner_text() == live and page.locator(".routing li:visible").count() == 5
    page.get_by_role("button", name="7 more routers").click()
    expect(page.locator(".routing li:visible")).to_have_count(12)


def test_a_text_of_ones_own_is_routed_and_its_curves_follow_the_hand(app_server, page):
    opened(page, f"{app_server}/routing?route_on=text", (1440, 900), ".routing .chart")
    expect(page.get_by_text(re.compile("chance .* this text"))).to_be_visible()
    recall = page.locator(".routing li", has_text="GWR linear").first.locator(".found")
    before, thumb = recall.inner_text(), page.get_by_role("slider", name="Buckets that each query visits")
    drag(thumb, 0.7)
    assert float(recall.inner_text().rstrip("%")) > float(before.rstrip("%"))
