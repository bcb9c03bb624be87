"""Three readers, each from the first page to what they came for, every step by what the page offers: a text of one's
own to a kept report, a config.json to the verdict, the tour to sharpening. On a desk, in a narrow window and on a
telephone, by day and by night.

FOCUSCOPE_PICTURES names the folder for a picture of every step; without it they are thrown away.
"""

import json
import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from analysis.costs import KNOWN
from app.tour.story import STORY
from tests.made.browsing import PATIENCE, painted, settle, upload, visit

pytestmark = [pytest.mark.browser, pytest.mark.slow]
LLAMA = "meta-llama/Llama-3.1-8B"
SCREENS = {
    "1440-light": (1440, 900, "light"),
    "1440-dark": (1440, 900, "dark"),
    "900-light": (900, 900, "light"),
    "900-dark": (900, 900, "dark"),
    "390-light": (390, 844, "light"),
    "390-dark": (390, 844, "dark"),
}
WIDTH = "() => document.scrollingElement.scrollWidth"
SCHEME = "() => getComputedStyle(document.querySelector('.stApp')).colorScheme"


@pytest.fixture(params=SCREENS)
def picture(page, tmp_path, request):
    """Takes a picture of what a reader has on the screen; a part is brought to the middle first."""
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
            page.wait_for_timeout(300)  # a picture for people: what scrolls comes to rest
        assert page.evaluate(WIDTH) <= width, "the page itself does not scroll sideways"
        assert page.evaluate(SCHEME) == scheme
        page.screenshot(path=folder / f"walk-{name}-{request.param}.png")

    return take


def on(page, label: str, title: str):
    """Follow a link of the page's own, to the page with this title."""
    page.get_by_test_id("stMain").get_by_role("link", name=label).last.click()
    expect(page.get_by_role("heading", name=title, level=1)).to_be_visible(timeout=PATIENCE)
    settle(page)


def test_a_text_of_ones_own_becomes_a_kept_report(app_server, page, picture, root, browser, tmp_path):
    visit(page, app_server, "How far back it reads")
    picture("report-1-start")
    text = (root / "docs" / "log.md").read_text(encoding="utf-8")[:4500]
    upload(page, "log.txt", text.encode())
    expect(page.get_by_role("button", name="Text: log.txt")).to_be_visible(timeout=PATIENCE)
    expect(painted(page)).to_contain_text(text.split("\n")[0].strip("# ")[:20], timeout=PATIENCE)
    picture("report-2-own-text")

    on(page, "All far pairs of this text", "Which far-apart tokens belong together?")
    expect(page.get_by_role("button", name="Text: log.txt")).to_be_visible()
    rows = page.get_by_role("region", name="Pairs, strongest first").locator("tbody tr")
    expect(rows.first).to_be_visible(timeout=PATIENCE)
    picture("report-3-pairs")
    rows.nth(2).click()
    page.wait_for_url(re.compile("pair="))
    settle(page)
    picture("report-4-pair", page.locator(".contexts"))
    said = page.locator(".fs-more").filter(has_text="tokens back").first.inner_text()
    layer, head, token = (re.search(f"{name} ([0-9,]*[0-9])", said)[1] for name in ("layer", "head", "token"))

    on(page, "The head that reads this pair", "What does each head read?")
    own = page.get_by_role("heading", name=f"Head {head} of layer {layer}", exact=True)
    expect(own).to_be_visible(timeout=PATIENCE)
    reads = page.get_by_text(f"read from token {token} by head {head} of layer {layer}")
    expect(reads.first).to_be_visible(timeout=PATIENCE)
    picture("report-5-head", reads.first)
    chart = page.locator(".st-key-heads_distance_0")
    chart.scroll_into_view_if_needed()
    page.locator(".st-key-heads_distance_0_export button", has_text="Keep").click()
    expect(page.get_by_role("button", name="Report (1)")).to_be_visible(timeout=PATIENCE)
    picture("report-6-kept", chart)
    page.get_by_role("button", name="Report (1)").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download as one HTML file").click()
    picture("report-7-basket")

    report = tmp_path / "report.html"
    saved.value.save_as(report)
    fresh = browser.new_context(viewport={"width": 1000, "height": 900}, offline=True).new_page()
    fresh.goto(report.as_uri())
    expect(fresh.get_by_role("heading", name=f"How far back, head {head} of layer {layer}")).to_be_visible()
    expect(fresh.get_by_text("log.txt").first).to_be_visible()
    assert fresh.locator("img").evaluate("image => image.complete && image.naturalWidth > 100")
    fresh.screenshot(path=Path(os.environ.get("FOCUSCOPE_PICTURES") or tmp_path) / "walk-report-8-file.png")
    fresh.context.close()


def test_a_config_of_an_8b_model_ends_in_a_verdict_with_its_commands(app_server, page, picture):
    visit(page, app_server, "How far back it reads")
    on(page, "Will it pay?", "Is it worth it?")
    picture("worth-1-opened")
    page.get_by_role("button", name="Use your own config.json").click()
    data = json.dumps(KNOWN[LLAMA]).encode()
    page.locator("input[type=file]").set_input_files(
        {"name": "config.json", "mimeType": "application/json", "buffer": data}
    )
    lead = page.locator(".fs-lead").first
    expect(lead).to_contain_text("with 131,072 tokens", timeout=PATIENCE)
    picture("worth-2-config")
    page.get_by_role("slider", name="Context, tokens").press("ArrowLeft")
    page.get_by_role("slider", name="Sequences at once").press("ArrowRight")
    expect(lead).to_contain_text("with 65,536 tokens and 2 sequences", timeout=PATIENCE)
    picture("worth-3-asked")
    card = page.locator(".st-key-worth_card")
    expect(card.locator(".fs-lead")).to_have_text(lead.inner_text())
    for phase in ("First token, at most", "Each later token, at most"):
        expect(card.get_by_text(phase)).to_be_visible()
    expect(card.locator("code")).to_contain_text("analysis worth CONFIG.json --contexts 65536 --batches 2 --keep 0.1")
    expect(card.locator("code")).to_contain_text("analysis bench decode --lengths 65536 --heads 32 --head-dim 128")
    picture("worth-4-verdict", card)
    page.locator(".st-key-worth_verdict_export button", has_text="Keep").click()
    expect(page.get_by_role("button", name="Report (1)")).to_be_visible(timeout=PATIENCE)
    on(page, "What it saves on this machine", "How much time does it save here?")
    picture("worth-5-next")


def test_the_tour_leads_to_sharpening(app_server, page, picture):
    visit(page, app_server, "How far back it reads")
    on(page, "60-second tour", "1 of 5")
    for place in range(2, 5):
        page.get_by_role("button", name="Next").click()
        expect(page.get_by_role("heading", name=f"{place} of 5")).to_be_visible(timeout=PATIENCE)
        picture(f"sharpen-{place}")
    on(page, "Try it yourself: Softmax temperature", "What does sharpening do?")
    slider = page.get_by_role("slider", name="Softmax temperature t")
    said = page.locator(".fs-more").filter(has_text=re.compile(r"at t = ")).first
    expect(said).to_be_visible(timeout=PATIENCE)
    layer, head = STORY.spreader
    assert f"layer={layer}" in page.url and f"head={head}" in page.url, "the head of the tour"
    before = said.inner_text()
    picture("sharpen-5-page")
    slider.press("ArrowLeft")
    expect(said).not_to_have_text(before, timeout=PATIENCE)
    picture("sharpen-6-moved", said)
    assert keys_at(said.inner_text()) < keys_at(before), "a lower temperature reads fewer keys"


def keys_at(said: str) -> float:
    """How many keys one token reads at the lower temperature, by the page's sentence."""
    return float(re.search(r"at t = [\d.]+ as if ([\d.]+)", said)[1])
