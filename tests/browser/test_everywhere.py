"""Every page on a desk and on a telephone in the dark: what stands above the fold, and that all of it can be read.

FOCUSCOPE_PICTURES names the folder for a picture of every page; without it none is taken.
"""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.test_charts import charts
from tests.conftest import WAIT, watched
from tests.made.browsing import PATIENCE

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]  # seconds: every page, one by one
FOLD = 650  # pixels from the top of a screen of 900 that a page's main picture may begin at
WITHOUT = {"tour", "runs", "generate", "quality-vs-speed"}  # pages whose main picture is none of these, or begins lower
TOPS = "all => all.filter(one => one.getClientRects().length).map(one => one.getBoundingClientRect().top)"
PICTURES = ".js-plotly-plot, .painted, .contexts"
FAINT = """() => {
  const ON_COLOUR = "script, style, canvas, .annotation, .heatmap-label, .textpoint, [data-testid=stSliderThumbValue]";
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true }), known = {};
  const read = colour => known[colour] ??= (() => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255] })();
  const over = (top, below) => [0, 1, 2].map(at => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
  const light = colour => colour.slice(0, 3).map(part => part / 255).map(
    part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4).reduce(
    (sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const faint = [];
  const look = (one, paper, alpha) => {
    const style = getComputedStyle(one);
    if (style.display === "none" || style.visibility === "hidden" || one.matches(ON_COLOUR)) return;
    paper = over(read(style.backgroundColor), paper); alpha *= Number(style.opacity);
    const said = [...one.childNodes].filter(node => node.nodeType === 3).map(node => node.data.trim()).join("");
    if (said && one.getClientRects().length) {
      const ink = [...read(one instanceof SVGElement ? style.fill : style.color)]; ink[3] *= alpha;
      if (ink[3] < 0.05) return;
      const [dark, bright] = [light(over(ink, paper)), light(paper)].sort((a, b) => a - b);
      const ratio = (bright + 0.05) / (dark + 0.05);
      if (ratio < 1.6) faint.push(`${said.slice(0, 40)} (${ratio.toFixed(2)})`);
    }
    for (const child of [...(one.shadowRoot?.children ?? []), ...one.children]) look(child, paper, alpha);
  };
  look(document.querySelector("[data-testid=stApp]"), [255, 255, 255, 1], 1);
  return faint;
}"""
WIDER = """() => { const main = document.querySelector("[data-testid=stMain]"), edge = main.clientWidth;
  if (main.scrollWidth <= edge + 1 && document.documentElement.scrollWidth <= innerWidth) return [];
  return [...main.querySelectorAll("*")].filter(one => one.getBoundingClientRect().right > edge + 1).slice(0, 5).map(
    one => `${one.tagName} ${one.className} ${Math.round(one.getBoundingClientRect().right)}`) }"""


def opened(tab, server: str, path: str) -> list[dict]:
    """Open a page; its charts, once they are drawn."""
    tab.goto(f"{server}/{path}")
    expect(tab.get_by_test_id("stMain").locator("h1").first).to_be_visible(timeout=PATIENCE)
    found = charts(tab)
    if folder := os.environ.get("FOCUSCOPE_PICTURES"):
        width = tab.viewport_size["width"]
        tab.screenshot(path=Path(folder) / f"page-{path or 'start'}-{width}.png")
    return found


@pytest.fixture
def paths(root) -> list[str]:
    """The address of every page."""
    names = sorted(path.stem.replace("_", "-") for path in (root / "app" / "views").glob("*.py"))
    return ["" if name == "start" else name for name in names]


def test_headline_and_main_picture_stand_above_the_fold(app_server, browser, paths):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    tops = {}
    with watched(context) as tab:
        for path in paths:
            if path not in WITHOUT:
                opened(tab, app_server, path)
                seen = tab.locator(PICTURES).evaluate_all(TOPS)
                tops[path or "start"] = min(seen, default=None)
    context.close()
    print({name: top and round(top) for name, top in tops.items()})
    assert {name: top for name, top in tops.items() if top is None or top > FOLD} == {}


def test_the_top_bar_is_one_row_on_a_small_laptop(app_server, browser):
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    with watched(context) as tab:
        opened(tab, app_server, "")
        bar = tab.locator(".st-key-topbar").bounding_box()
        link = tab.locator(".st-key-topbar").get_by_role("button", name="Copy link").bounding_box()
    context.close()
    assert bar["height"] < 2 * link["height"]


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
    assert {path: found for path, found in wrong.items() if any(found)} == {}
