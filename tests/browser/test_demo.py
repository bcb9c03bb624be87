"""The minute in which a stranger sees what this is, step by step in a real browser, and the README's pictures of it.

FOCUSCOPE_PICTURES names the folder for the pictures (`docs` for those of the README); without it they are thrown away.
"""

import os
import re
import time
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import expect

from app.tour.controls import STEPS
from tests.made.browsing import PATIENCE, painted, settle, visit

pytestmark = pytest.mark.browser
JOB = 600_000  # milliseconds a timing of dense and sparse inference may take, beside whatever else runs
LARGEST = 200_000  # bytes of a picture
NAMED = r"“[A-Za-z]+”( in “[A-Z][a-z|]+”)? \(token [\d,]+\)"
NAMES = re.compile(rf"{NAMED} reads {NAMED}, [\d,]+ tokens back: [\d.]+%")
MARKS = "plot => plot.data.map(trace => String(trace.marker && trace.marker.symbol))"


@pytest.fixture
def picture(page, tmp_path):
    """Takes a picture of what is on the screen, with few colours so that it stays small."""
    named = os.environ.get("FOCUSCOPE_PICTURES")
    folder = Path(named) if named else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    page.set_viewport_size({"width": 1280, "height": 800})

    def take(name: str, at=None) -> None:
        if at is not None:
            at.evaluate("element => element.scrollIntoView({block: 'center'})")
        path = folder / f"{name}.png"
        page.screenshot(path=path)
        Image.open(path).convert("RGB").quantize(96).save(path, optimize=True)
        assert path.stat().st_size <= LARGEST, f"{path.name} has {path.stat().st_size:,} bytes"

    return take


def marks(page) -> list[str]:
    """The symbols of the plot of quality against speed."""
    return page.locator(".st-key-quality_trade .js-plotly-plot").evaluate(MARKS)


@pytest.mark.slow
def test_a_minute_with_a_long_story(app_server, page, picture):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    began = time.monotonic()
    visit(page, app_server, "How far back it reads")
    expect(painted(page).locator(".t").nth(2000)).to_be_attached(timeout=PATIENCE)
    assert painted(page).locator(".t.p").count() > 50
    picture("start")

    said = page.get_by_text(NAMES).first
    grips = page.locator(".painted path.grip")
    for at in range(1, grips.count()):
        grips.nth(at).dispatch_event("click")
        page.wait_for_url(re.compile("pair="))
        settle(page)
        if said.count():
            break
    expect(said).to_be_visible(timeout=PATIENCE)
    expect(said).to_contain_text("where reading all alike would give")
    expect(page.locator(".contexts mark.hit")).to_have_count(2)
    picture("pair", said)

    page.goto(f"{app_server}/kv-budgets?budgets=reads")
    slider = page.get_by_role("slider", name="Share of the causal pairs that is read")
    expect(slider).to_be_visible(timeout=PATIENCE)
    settle(page)
    slider.focus()
    slider.press("Home")
    expect(page.get_by_role("heading", name="By position, reading 100%")).to_be_visible(timeout=PATIENCE)
    settle(page)
    whole = changes(page)
    slider.focus()
    slider.press("End")
    expect(page.get_by_role("heading", name="By position, reading 2%")).to_be_visible(timeout=PATIENCE)
    settle(page)
    mean, last, worst = changes(page)
    assert max(map(abs, whole)) < 0.1 and worst > mean > 0 and last > 1, "the last positions do not jump"
    picture("budgets", page.get_by_role("heading", name="By position, reading 2%"))

    page.goto(f"{app_server}/quality-vs-speed?tab=quality&quality=focus")
    headline = page.locator(".fs-lead", has_text="For this text and machine:").first
    expect(headline).to_be_visible(timeout=PATIENCE)
    settle(page)
    assert any(symbol.endswith("-open") for symbol in marks(page))
    page.get_by_role("button", name=re.compile("^Measure the speed of Focus")).click()
    expect(page.get_by_text("Done: Dense and sparse runs")).to_be_visible(timeout=JOB)
    settle(page)
    solid = [symbol for symbol in marks(page) if symbol not in ("undefined", "null") and not symbol.endswith("-open")]
    assert solid, marks(page)
    expect(headline).not_to_contain_text("until a speed is measured")
    picture("headline", headline)
    picture("measured", page.locator(".st-key-quality_trade").first)

    copy = page.get_by_role("button", name="Copy link")
    copy.click()
    expect(page.get_by_role("button", name="Link copied")).to_be_visible(timeout=PATIENCE)
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.url and "quality=focus" in copied
    print(f"the whole demo: {time.monotonic() - began:.0f} s")


@pytest.mark.slow
def test_the_tour_from_start_to_its_end_and_a_kept_picture(app_server, page, picture):
    visit(page, app_server, "How far back it reads")
    page.get_by_role("link", name="60-second tour").last.click()
    said = page.locator(".fs-said")
    for place, title in enumerate(STEPS.values()):
        expect(page.get_by_role("heading", name=f"{place + 1} of 5 · {title}")).to_be_visible(timeout=PATIENCE)
        expect(said).to_be_visible(timeout=PATIENCE)
        settle(page)
        shown = page.locator(".painted .text .t, .contexts mark, .js-plotly-plot .main-svg").first
        expect(shown).to_be_visible(timeout=PATIENCE)
        picture(f"tour-{place + 1}")
        if place < 4:
            page.get_by_role("button", name="Next").click()
    assert "step=cut" in page.url
    for name in ("PNG", "SVG"):
        with page.expect_download() as saved:
            page.locator(".export button", has_text=name).click()
        data = Path(saved.value.path()).read_bytes()
        assert saved.value.suggested_filename == f"focuscope-reading-less-and-less.{name.lower()}"
        assert data.startswith(b"\x89PNG" if name == "PNG" else b"<svg")
    stamped = data.decode()
    assert "Reading less and less" in stamped and "model demo" in stamped and "all positions" in stamped
    page.locator(".export button", has_text="Keep").click()
    expect(page.get_by_role("button", name="Report (1)")).to_be_visible(timeout=PATIENCE)
    page.get_by_role("button", name="Back").click()
    expect(page.get_by_role("heading", name="4 of 5")).to_be_visible(timeout=PATIENCE)
    page.get_by_role("button", name="Report (1)").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download as one HTML file").click()
    report = Path(saved.value.path()).read_text(encoding="utf-8")
    assert "data:image/svg+xml;base64," in report and "/tour?" in report and "<script" not in report
    page.locator(".st-key-report_remove_0 button").click()
    expect(page.get_by_role("button", name="Report", exact=True)).to_be_visible(timeout=PATIENCE)


def changes(page) -> list[float]:
    """The changes of all, the last and the worst positions, per cent."""
    found = page.get_by_test_id("stMetricValue").all_inner_texts()[:3]
    return [float(text.strip().removesuffix("%").strip().replace("−", "-")) for text in found]
