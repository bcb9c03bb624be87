"""Every page in a real browser: each chart has drawn all it holds, the app stays small, the main picture stands above
the fold, and on a telephone in the dark everything can be read.

FOCUSCOPE_PICTURES names the folder for a picture of every page; without it none is taken.
"""

import contextlib
import os
import re
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import TimeoutError, expect

from app.selection.menu import DOORS, PAGES, address
from app.selection.sparsify import BUDGET_TABS, ROUTE_TABS
from tests.browser import script
from tests.conftest import WAIT, watched
from tests.made.browsing import PATIENCE, go, redrawn, settle

pytestmark = [pytest.mark.browser, pytest.mark.slow]
# Bytes that the app's own process holds after every page was opened (102 to 104 million were measured), without the
# pages of mapped files: 32 or 48 million, by how much of the libraries the system has read for others. With the 40
# million between them this is 150 MB in all.
MOST_MEMORY = 110e6
DRAWN = 5_000  # milliseconds until a chart that is not drawn never will be
FOLD = 650  # pixels from the top of a screen of 900 that a page's main picture may begin at
PICTURE = ".js-plotly-plot, .painted, .contexts"
PICTURES = {  # of pages that draw theirs themselves, or whose main picture is a table
    "map": ".heads .map",
    "temperature": ".sharpen canvas",
    "methods": ".curves svg",
    "budgets": ".budgets svg.map",
    "routers": ".routing svg.chart",
    "worth": ".worth.picture svg",
    "runs": ".table .frame",
    "papers": ".st-key-papers_rows .table .frame",
}
FOLDED = {"Study", "Details", *BUDGET_TABS.values(), *ROUTE_TABS.values()}  # drawers of charts
TOPS = "all => all.filter(one => one.getClientRects().length).map(one => one.getBoundingClientRect().top)"
BLANK = script("blank")
AT_REST = script("at_rest")
FAINT = script("faint")
WIDER = script("wider")


def charts(page) -> list[dict]:
    """The charts that are shown, once the page rests and they have drawn what they hold (or never will)."""
    page.wait_for_function(AT_REST, timeout=PATIENCE)
    settle(page)
    with contextlib.suppress(TimeoutError):  # plotly draws a few frames after the script has ended
        page.wait_for_function(f"() => ({BLANK})().every(chart => !chart.blank)", timeout=DRAWN)
    return page.evaluate(BLANK)


def opened(tab, server: str, path: str) -> list[dict]:
    """Open a page; its charts, once they are drawn."""
    tab.goto(server + address(path))
    expect(tab.get_by_test_id("stMain").locator("h1").first).to_be_visible(timeout=PATIENCE)
    drawn = charts(tab)
    if folder := os.environ.get("FOCUSCOPE_PICTURES"):
        tab.screenshot(path=Path(folder) / f"page-{path}-{tab.viewport_size['width']}.png")
    return drawn


@pytest.fixture(scope="module")
def paths() -> list[str]:
    """The name of every page."""
    return list(PAGES)


@pytest.fixture(scope="module")
def walked(app_server, visitor, paths) -> dict[str, list[dict]]:
    """Every page, tab and drawer of evidence opened from the menu, one after the other: name -> its charts."""
    with watched(visitor) as page:
        page.goto(app_server)
        main, links = page.get_by_test_id("stMain"), page.get_by_test_id("stSidebarNavLink")
        expect(links).to_have_count(len(DOORS), timeout=PATIENCE)
        drawn, title = {}, ""
        for name in paths:
            if name != paths[0]:  # the first page is open
                go(page, name)
            expect(main.locator("h1:visible").first).not_to_have_text(title or "nothing", timeout=PATIENCE)
            title = main.locator("h1:visible").first.inner_text(timeout=PATIENCE)
            drawn[name] = charts(page)
            # Those of the page itself: the first tabs are the pages of the door.
            tabs = main.get_by_role("tabpanel").get_by_role("tab")
            for tab in tabs.all_inner_texts()[1:]:
                redrawn(page, tabs.filter(has_text=re.compile(f"^{re.escape(tab)}$")).click)
                drawn[f"{name}, {tab}"] = charts(page)
            drawers = main.get_by_role("tabpanel").locator("summary:visible")
            titles = [words.split("\n")[-1] for words in drawers.all_inner_texts()]
            for drawer in (title for title in titles if title in FOLDED):
                redrawn(page, drawers.filter(has_text=re.compile(f"{re.escape(drawer)}$")).click)
                drawn[f"{name}, {drawer}"] = charts(page)
        return drawn


@pytest.mark.timeout(900)  # every page and tab, one by one
def test_no_chart_of_any_page_or_tab_is_blank(walked):
    assert {name: chart for name, drawn in walked.items() for chart in drawn if chart["blank"]} == {}
    names = {name.split(",")[0] for name in walked}
    without = names - {name.split(",")[0] for name, drawn in walked.items() if drawn}
    # The list of runs, a page for which nothing was generated yet, and one that draws its picture itself.
    assert without == {"runs", "generate", "worth"}


def test_the_app_stays_small_and_free_of_torch(app_server, walked):
    port = f"--server.port={app_server.rsplit(':', 1)[1]}"
    processes = psutil.process_iter(["cmdline"])
    (process,) = [running for running in processes if {port, "streamlit"} <= set(running.info["cmdline"] or [])]
    loaded = {mapped.path for mapped in process.memory_maps()}
    assert not [path for path in loaded if re.search("libtorch|/pandas/|libarrow", path)]
    memory = process.memory_info()
    assert memory.rss - memory.shared <= MOST_MEMORY


@pytest.mark.timeout(900)  # every page, one by one
def test_the_main_picture_stands_above_the_fold_and_the_top_bar_is_one_row(app_server, browser, paths):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    tops = {}
    with watched(context) as tab:
        for path in paths:
            opened(tab, app_server, path)
            pictures = tab.locator(PICTURES.get(path, PICTURE))
            tops[path] = min(pictures.evaluate_all(TOPS), default=None)
        tab.set_viewport_size({"width": 1280, "height": 800})
        opened(tab, app_server, "text")
        bar = tab.locator(".st-key-topbar")
        heights = [part.bounding_box()["height"] for part in (bar, bar.get_by_role("button", name="Share"))]
    context.close()
    assert {name: top for name, top in tops.items() if top is None or top > FOLD} == {}
    assert heights[0] < 2 * heights[1]


@pytest.mark.timeout(900)  # every page, one by one
def test_every_page_can_be_read_on_a_telephone_in_the_dark(app_server, browser, paths):
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    context.set_default_timeout(WAIT)
    wrong = {}
    with watched(context) as tab:
        for path in paths:
            blank = [chart["title"] for chart in opened(tab, app_server, path) if chart["blank"]]
            failed = tab.get_by_text("This part of the page failed").count()
            wrong[path] = blank, failed, tab.evaluate(WIDER), tab.evaluate(FAINT)
    context.close()
    assert {path: faults for path, faults in wrong.items() if any(faults)} == {}
