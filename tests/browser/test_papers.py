"""Papers vs measured, and the benchmarks' place on Long-context tests, in a real browser with the real store."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.test_heads import choose
from tests.made.browsing import PATIENCE, settle

pytestmark = pytest.mark.browser
ROWS = "Printed rows; choose one to look at it"


def papers(page, address: str, link: str = ""):
    page.goto(f"{address}/papers-vs-measured{link}")
    expect(page.get_by_role("heading", name="Eleven findings about the papers")).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".st-key-finding_11")).to_be_visible(timeout=PATIENCE)
    settle(page)


@pytest.mark.slow
def test_a_row_is_chosen_and_the_link_brings_it_back(app_server, page):
    papers(page, app_server)
    said = re.compile(r"^Of 172 printed rows, \d+ have their own quantity measured here")
    expect(page.get_by_text(said)).to_be_visible(timeout=PATIENCE)
    choose(page, "GWR Linear")
    rows = page.get_by_role("region", name=ROWS).locator("tbody tr")
    expect(rows).to_have_count(23, timeout=PATIENCE)
    settle(page)
    rows.filter(has_text="GWR Linear (Ours)").first.click()
    heading = page.get_by_role("heading", name="GWR Linear, table 1: GWR Linear (Ours)")
    expect(heading).to_be_visible(timeout=PATIENCE)
    expect(page).to_have_url(re.compile("paper=gwr_linear_routing&paper_row=4"), timeout=PATIENCE)
    expect(page.get_by_text("python -m analysis study routing --corpus DIR").first).to_be_visible(timeout=PATIENCE)
    page.goto(page.url)
    expect(heading).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text(re.compile("^model demo .* device cpu")).first).to_be_visible(timeout=PATIENCE)


@pytest.mark.slow
def test_what_cannot_hold_leads_to_its_panel(app_server, page):
    papers(page, app_server, "?paper_state=cannot+hold")
    rows = page.get_by_role("region", name=ROWS).locator("tbody tr")
    expect(rows.first).to_contain_text("cannot hold", timeout=PATIENCE)
    rows.filter(has_text="top-k=3").first.click()
    expect(page.get_by_text("With 3 of 4 groups any two tokens share one")).to_be_visible(timeout=PATIENCE)
    settle(page)
    page.locator(".st-key-finding_2").get_by_role("link", name="Train a router, Causality check").click()
    expect(page.get_by_role("tab", name="Causality check")).to_have_attribute("aria-selected", "true", timeout=PATIENCE)


@pytest.mark.slow
def test_benchmarks_stand_on_the_long_context_page(app_server, page):
    page.goto(f"{app_server}/long-context-tests?tests_tab=files&tests_evidence=yes")
    expect(page.get_by_role("heading", name="The tasks of the papers")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("python -m analysis benchmark").first).to_be_visible(timeout=PATIENCE)
