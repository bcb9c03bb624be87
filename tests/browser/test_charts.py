"""Every chart of every page in a real browser: it is there, and each of its traces has drawn something; what the app
holds in memory then."""

import re

import psutil
import pytest
from playwright.sync_api import expect

from tests.conftest import watched
from tests.made.browsing import PATIENCE, settle

pytestmark = pytest.mark.browser
BLANK = """() => [...document.querySelectorAll(".js-plotly-plot")].filter(plot => plot.offsetParent).map(plot => {
  const seen = mark => { const place = mark.getBoundingClientRect(); return place.width > 0 || place.height > 0 };
  const drawn = [...plot.querySelectorAll("g.trace, g.hm")].filter(
    trace => [...trace.querySelectorAll("path, image")].some(seen)).length;
  const known = trace => trace.visible === true && [trace.z?.flat() ?? trace.y].flat().some(value => value != null);
  const wanted = plot._fullData ? plot._fullData.filter(known).length : 0;
  const gone = plot.querySelector(".no-webgl") !== null;
  const title = plot.closest("[class*=st-key-]")?.className.match(/st-key-(\\S+)/)[1];
  return { title, wanted, drawn, blank: gone || wanted === 0 || drawn < wanted };
})"""
AT_REST = """() => document.querySelector("[data-testid=stApp]").dataset.testScriptState === "notRunning"
  && !document.querySelector("[data-testid=stSpinner], [data-testid=stSkeleton]")"""  # a skeleton: code still loads


def charts(page) -> list[dict]:
    """The charts that are shown, once the page rests and they have drawn what they hold (or never will)."""
    page.wait_for_function(AT_REST, timeout=PATIENCE)
    settle(page)
    found = page.evaluate(BLANK)
    for _ in range(20):
        if not any(chart["blank"] for chart in found):
            break
        page.wait_for_timeout(250)
        found = page.evaluate(BLANK)
    return found


@pytest.fixture(scope="module")
def walked(app_server, visitor, root):
    """Every page and tab opened, one after the other: name -> its charts, and the names of the pages."""
    with watched(visitor) as page:
        return walk(page, app_server, len(list((root / "app" / "views").glob("*.py"))))


def walk(page, address: str, count: int) -> tuple[dict[str, list], set[str]]:
    """Open all `count` pages from the menu, and their tabs."""
    page.goto(address)
    links = page.get_by_test_id("stSidebarNavLink")
    expect(links).to_have_count(count, timeout=PATIENCE)
    heading, tabs = page.get_by_test_id("stMain").locator("h1").first, page.get_by_test_id("stMain").get_by_role("tab")
    found, before = {}, ""
    for at in range(links.count()):
        name = links.nth(at).inner_text()
        if at:  # the first page is open: a click would run it again while it is drawn
            links.nth(at).click()
        expect(heading).not_to_have_text(before or "nothing", timeout=PATIENCE)
        before = heading.inner_text(timeout=PATIENCE)
        found[name] = charts(page)
        for tab in tabs.all_inner_texts()[1:]:
            tabs.filter(has_text=re.compile(f"^{re.escape(tab)}$")).click()
            page.wait_for_timeout(300)  # the click's own script begins
            found[f"{name}, {tab}"] = charts(page)
        for drawer in page.get_by_test_id("stExpander").filter(has_text=re.compile("Evidence$")).all():
            drawer.locator("summary").click()
            page.wait_for_timeout(300)
            found[f"{name}, Evidence"] = charts(page)
    return found, set(links.all_inner_texts())


def test_no_chart_of_any_page_or_tab_is_blank(walked):
    found, names = walked
    print({name: len(shown) for name, shown in found.items()})
    assert {name: chart for name, shown in found.items() for chart in shown if chart["blank"]} == {}
    with_charts = [name.split(",")[0] for name, shown in found.items() if shown]
    without = names - set(with_charts)
    assert without == {"Runs", "60-second tour", "Generate"}, (
        "only the list of runs, the tour, which begins with a painted text, and what nothing was generated for yet"
    )


def test_the_app_stays_small_and_free_of_torch(app_server, walked):
    """After every page was opened: 150 MB is the promise."""
    port = int(app_server.rsplit(":", 1)[1])
    (process,) = [
        item
        for item in psutil.process_iter(["cmdline"])
        if f"--server.port={port}" in (item.info["cmdline"] or []) and "streamlit" in item.info["cmdline"]
    ]
    loaded = {mapped.path for mapped in process.memory_maps()}
    assert not [path for path in loaded if re.search("libtorch|/pandas/|libarrow", path)]
    memory = process.memory_full_info()
    print(f"app process: {memory.pss / 1e6:.0f} MB ({memory.rss / 1e6:.0f} MB with all of its shared libraries)")
    assert memory.rss <= 150e6
