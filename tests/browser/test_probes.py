"""Long-context tests in a real browser with the real model: the stored map, a task chosen, a test run, a link."""

import re

import pytest
from playwright.sync_api import expect

from tests.made.browsing import PATIENCE, settle

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def no_console_error(page):
    """The browser's console stays without an error, but for the place where Streamlit looks for its server first."""
    said = []

    def heard(message):
        if message.type == "error" and "_stcore" not in message.location["url"]:
            said.append(message.text)

    page.on("console", heard)
    yield
    assert not said, said


def probes(page, address: str, link: str = ""):
    page.goto(f"{address}/long-context-tests{link}", timeout=PATIENCE)
    expect(page.get_by_role("tab", name="Every test")).to_be_visible(timeout=PATIENCE)
    settle(page)


def choose(page, option: str):
    """One option of a segmented control."""
    button = page.get_by_role("button", name=option, exact=True)
    page.get_by_role("radio", name=option, exact=True).or_(button).first.click()


@pytest.mark.slow
def test_the_page_opens_with_a_map_its_sentence_and_every_task(app_server, page):
    probes(page, app_server)
    expect(page.get_by_role("heading", name="How far back can it find something and use it?")).to_be_visible()
    expect(page.get_by_text(re.compile("^Needle: "))).to_be_visible()
    expect(page.locator(".st-key-probe_map_0 .js-plotly-plot")).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".st-key-probe_map_0 .annotation")).to_have_count(15)
    expect(page.get_by_text("chance (25%)").first).to_be_visible()
    expect(page.get_by_text("Asked at the end:")).to_be_visible()
    page.get_by_role("tab", name="Every test").click()
    expect(page.locator(".st-key-probe_tasks .js-plotly-plot")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_test_id("stAlert").filter(has_not_text="not measured")).to_have_count(0)


@pytest.mark.slow
def test_a_task_is_chosen_run_and_answered_and_the_link_restores_it(app_server, page):
    probes(page, app_server, "?probe_items=4&probe_reach=128&probe_methods=none")
    choose(page, "Frequent words")
    expect(page).to_have_url(re.compile("probe=frequent_words"))
    settle(page)
    page.get_by_role("button", name="Run this test").click()
    expect(page.get_by_text("Done: Long-context probes")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text(re.compile("^Frequent words: "))).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".st-key-probe_map_0 .js-plotly-plot")).to_be_visible()
    settle(page)
    page.goto(page.url, timeout=PATIENCE)
    expect(page.get_by_text(re.compile("^Frequent words: "))).to_be_visible(timeout=PATIENCE)


@pytest.mark.slow
def test_a_link_that_cannot_be_is_one_sentence_and_a_refused_run_another(app_server, page):
    probes(page, app_server, "?probe_reach=128&probe_choices=16&probe=json&probe_methods=none&probe_items=99")
    expect(
        page.get_by_text("The link's number of questions “99” is not available here; it was dropped.")
    ).to_be_visible()
    page.get_by_role("button", name="Run this test").click()
    refused = page.get_by_test_id("stAlert").filter(has_text=re.compile("choose a greater length"))
    expect(refused).to_be_visible(timeout=PATIENCE)
