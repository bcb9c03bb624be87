"""Three readers, each from the first page to what they came for, every step by what the page offers: a text of one's
own to a kept report, the tour through its five screens, and the minute of the README.

FOCUSCOPE_PICTURES names the folder for a picture of every step (`docs` for those of the README); without it they are
thrown away.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import expect

from app.selection.look import TOUR_STEPS
from tests.made.browsing import PATIENCE, answered, chosen, painted, read, settle, visit

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]  # seconds, beside whatever else runs
JOB = 600_000  # milliseconds a timing of dense and sparse inference may take, beside whatever else runs
LARGEST = 200_000  # bytes of a picture
SCREENS = {  # each walk has one of its own
    "telephone by night": (390, 844, "dark"),
    "laptop by day": (1280, 800, "light"),
}
WIDTH = "() => document.scrollingElement.scrollWidth"
SCHEME = "() => getComputedStyle(document.querySelector('.stApp')).colorScheme"
OPENED = "of the attention goes 128 or more tokens back"
NAMES = re.compile(r"^“[A-Z][a-z]+” looks back [\d,]+ tokens to “[A-Z][a-z]+”$")
STOPS = {  # step of the tour -> what its screen has drawn
    "token": ".painted .text .t",
    "head": ".heads .map button",
    "pair": ".read .card .row.link[aria-pressed=true]",
    "sharpen": ".sharpen .text .t",
    "cut": ".budgets .map .cell",
}


@pytest.fixture
def picture(page, tmp_path, request) -> Callable:
    """Takes a picture of what a reader has on the screen, with few colours; a part is brought to the middle first."""
    folder = Path(os.environ.get("FOCUSCOPE_PICTURES") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    width, height, scheme = SCREENS[request.param]
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)

    def take(name: str, at=None) -> None:
        settle(page)
        assert page.get_by_text("This part of the page failed").count() == 0, page.url
        if at is not None:
            at.evaluate("element => element.scrollIntoView({block: 'center'})")
        assert page.evaluate(WIDTH) <= width, "the page itself does not scroll sideways"
        assert page.evaluate(SCHEME) == scheme
        path = folder / f"{name}.png"
        page.screenshot(path=path)
        Image.open(path).convert("RGB").quantize(96).save(path, optimize=True)
        assert path.stat().st_size <= LARGEST, f"{path.name} has {path.stat().st_size:,} bytes"

    return take


def on(page, label: str, title: str) -> None:
    """Follow a link of the page's own, to the page whose title has these words (a pattern)."""
    page.get_by_test_id("stMain").get_by_role("link", name=label).last.click()
    expect(page.get_by_role("heading", name=re.compile(title), level=1)).to_be_visible(timeout=PATIENCE)
    settle(page)


@pytest.mark.parametrize("picture", ["telephone by night"], indirect=True)
def test_a_text_of_ones_own_becomes_a_kept_report(app_server, page, picture, root, browser, tmp_path):
    visit(page, app_server, OPENED)
    text = (root / "docs" / "log.md").read_text(encoding="utf-8")[:4500]
    read(page, "log.txt", text.encode())
    expect(painted(page)).to_contain_text(text.split("\n")[0].strip("# ")[:20], timeout=PATIENCE)
    picture("walk-report-1-text")

    on(page, "All far pairs of this text", r"read each other [\d.]+ times chance")
    rows = page.locator(".read .card .row.link")
    answered(page, rows)
    words = [re.escape(name.strip()) for name in rows.nth(2).locator(".name").inner_text().split("→")]
    rows.nth(2).click()
    page.wait_for_url(re.compile("pair="))
    settle(page)
    card = page.locator(".read .card")
    card.get_by_role("tab", name="This word").click()
    expect(card.locator("h3")).to_have_text(re.compile(rf"^“{words[0]}” looks back [\d,]+ tokens to “{words[1]}”$"))
    expect(card.locator(".quote mark")).to_have_count(2)
    picture("walk-report-2-pair", card.locator("h3"))
    measured = card.locator(".measured")
    (layer, head), token = measured.get_attribute("data-head").split("."), measured.get_attribute("data-query")

    on(page, "The head that reads this pair", r"^Head \d+\.\d+ reads farthest")
    expect(page.get_by_role("heading", name=f"Head {layer}.{head}", exact=True)).to_be_visible(timeout=PATIENCE)
    assert all(f"{name}={value}" in page.url for name, value in (("layer", layer), ("head", head), ("query", token)))
    reads = page.locator(".fs-more", has_text=re.compile(rf"^\s*“{words[0]}” looks at “.+”, .+: \d+% of its attention"))
    expect(reads.first).to_be_visible(timeout=PATIENCE)
    picture("walk-report-3-head", reads.first)
    page.locator(".st-key-heads_distance_0").scroll_into_view_if_needed()
    chosen(page, "heads_distance_0", "Add to report")
    page.get_by_role("button", name="Share (1)").click(timeout=PATIENCE)
    with page.expect_download() as saved:
        page.get_by_role("button", name="The report, as one HTML file").click()

    report = tmp_path / "report.html"
    saved.value.save_as(report)
    fresh = browser.new_context(viewport={"width": 1000, "height": 900}, offline=True).new_page()
    fresh.goto(report.as_uri())
    expect(fresh.get_by_role("heading", name=f"How far back, {layer}.{head}")).to_be_visible()
    expect(fresh.get_by_text("log.txt").first).to_be_visible()
    assert fresh.locator("img").evaluate("image => image.complete && image.naturalWidth > 100")
    fresh.context.close()


@pytest.mark.parametrize("picture", ["laptop by day"], indirect=True)
def test_the_tour_stops_at_five_screens_and_what_is_kept_there_is_downloaded(app_server, page, picture):
    visit(page, app_server, OPENED)
    page.get_by_test_id("stSidebar").get_by_role("link", name="Tour").click()
    for place, step in enumerate(TOUR_STEPS, start=1):
        expect(page.locator(".fs-said", has_text=f"{place} of {len(TOUR_STEPS)}")).to_be_visible(timeout=PATIENCE)
        assert f"step={step}" in page.url
        settle(page)
        expect(page.locator(STOPS[step]).first).to_be_visible(timeout=PATIENCE)
        picture(f"tour-{place}")
        if place < len(TOUR_STEPS):
            page.get_by_role("link", name="Next", exact=True).click()
    for name, begins in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
        with page.expect_download() as saved:
            chosen(page, "budget_positions", name)
        data = Path(saved.value.path()).read_bytes()
        assert data.startswith(begins)
    assert "model demo" in data.decode()
    chosen(page, "budget_positions", "Add to report")
    page.get_by_role("button", name="Share (1)").click(timeout=PATIENCE)
    with page.expect_download() as saved:
        page.get_by_role("button", name="The report, as one HTML file").click()
    report = Path(saved.value.path()).read_text(encoding="utf-8")
    assert "data:image/svg+xml;base64," in report and "step=cut" in report and "<script" not in report
    page.locator(".st-key-report_remove_0 button").click()
    expect(page.get_by_role("button", name="Share", exact=True)).to_be_visible(timeout=PATIENCE)


@pytest.mark.parametrize("picture", ["laptop by day"], indirect=True)
def test_a_minute_with_a_long_story(app_server, page, picture):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit(page, app_server, OPENED)
    expect(painted(page).locator(".t").nth(2000)).to_be_attached(timeout=PATIENCE)
    picture("start")
    card = page.locator(".read .card")
    sentence = card.locator("h3", has_text=NAMES)
    grips = page.locator(".painted path.grip")
    for at in range(1, grips.count()):
        grips.nth(at).dispatch_event("click")
        page.wait_for_url(re.compile("pair="))
        settle(page)
        if sentence.count():
            break
    expect(sentence).to_be_visible(timeout=PATIENCE)
    expect(card.locator(".measured")).to_have_text(re.compile(r"head \d+\.\d+ · [\d.]+ % .* chance [\d.]+ %"))
    expect(card.locator(".quote mark")).to_have_count(2)
    picture("pair", sentence)

    page.goto(f"{app_server}/kv-budgets?budgets=reads&budget_reads=0.02")
    heading = page.get_by_role("heading", name="By position, reading 2%")
    expect(heading).to_be_visible(timeout=PATIENCE)
    settle(page)
    facts = page.locator(".budgets .facts")
    expect(facts).to_contain_text(re.compile(r"\+[\d.]+%.*\+[\d.]+% at worst"), timeout=PATIENCE)
    mean, worst = (float(number) for number in re.findall(r"\+([\d.]+)%", facts.inner_text()))
    assert worst > mean > 10
    picture("budgets", heading)

    page.goto(f"{app_server}/quality-vs-speed?tab=quality&quality=focus")
    verdict = page.locator(".fs-more", has_text="Speed unknown")
    expect(verdict).to_be_visible(timeout=PATIENCE)
    settle(page)
    page.get_by_role("button", name="Time it").click()
    expect(page.get_by_text("Done: Dense and sparse runs")).to_be_visible(timeout=JOB)
    settle(page)
    expect(verdict).to_have_count(0)
    picture("measured", page.locator(".curves").first)

    page.get_by_role("button", name="Share", exact=True).click()
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Link copied")).to_be_visible(timeout=PATIENCE)
    assert page.evaluate("navigator.clipboard.readText()") == page.url and "quality=focus" in page.url
