"""Long work in a real browser with the real model: a generation stopped and answered, a training that survives a new
tab, is seen on every page, cancelled, resumed and used."""

import re

import pytest
from playwright.sync_api import expect

from tests.made.browsing import PATIENCE, click_when_shown, go, read, settle

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(900)]  # seconds, beside whatever else runs
MASTERS = {
    "Gannet": "Ada Thorn",
    "Swift": "Piers Lowe",
    "Marigold": "Nan Holm",
    "Otter": "Saul Brand",
    "Heron": "Tess Quill",
    "Lantern": "Ivo Marsh",
    "Thistle": "Una Field",
    "Comet": "Rolf Stone",
}
WEATHER = (
    "The wind went round to the west in the night and the men stayed in the inn, where they talked of the price of "
    "herring and of the old quarrel about the wall. "
)
TEXT = "\n\n".join(f"The master of the {ship} is {name}. " + 3 * WEATHER for ship, name in MASTERS.items())
QUESTION, ANSWER = "Who is the master of the Heron? The master of the Heron is", MASTERS["Heron"]
STEP = re.compile("Training of a Focus router: router, step ([0-9]+) of 40")


def test_an_own_needle_is_evicted_and_what_the_cache_holds_is_painted(app_server, page):
    """Question unknown: SnapKV drops three quarters of the keys, among them the needle's, before it is asked."""

    box = page.get_by_role("spinbutton", name="New tokens")

    def settings() -> None:
        if not box.is_visible():
            page.mouse.move(0, 0)  # the help of a button under the pointer would lie over it
            page.locator(".st-key-generate_settings").get_by_role("button", name="Settings").click()
            box.wait_for()

    def new_tokens(count: int) -> None:
        settings()
        box.fill(f"{count}")
        box.press("Enter")
        settle(page)
        page.keyboard.press("Escape")  # what lies over the page
        box.wait_for(state="hidden")

    page.goto(f"{app_server}/generate")
    expect(page.locator(".painted .text .t").first).to_be_visible(timeout=PATIENCE)
    settle(page)
    read(page, "masters.txt", TEXT.encode())
    page.wait_for_url(re.compile("job="))  # a text that is opened is answered without a click
    settle(page)
    question = page.get_by_role("textbox", name="Question behind the text")
    question.fill(QUESTION)
    question.press("Enter")
    settle(page)
    settings()
    page.get_by_text("Question seen before keys are dropped").click()
    page.wait_for_url(re.compile("generate_known=no"))
    new_tokens(256)
    drafts = page.locator(".contexts").first
    click_when_shown(page, "Cancel", ".contexts", ANSWER)
    page.get_by_role("button", name=re.compile("Generate(, ~| again, ~)")).click()
    expect(page.get_by_text(re.compile(r"^Stopped after [\d,]+ new tokens"))).to_be_visible(timeout=PATIENCE)
    expect(drafts).to_contain_text(ANSWER)

    new_tokens(12)
    expect(page.get_by_text("written with other settings")).to_be_visible(timeout=PATIENCE)
    page.get_by_role("button", name=re.compile("Generate(, ~| again, ~)")).click()
    expect(page.get_by_text("written with other settings")).to_have_count(0, timeout=PATIENCE)
    expect(drafts).to_contain_text("12 tokens · ", timeout=PATIENCE)
    settle(page)
    dense, evicted = drafts.locator("article").all_inner_texts()
    assert ANSWER in dense and ANSWER not in evicted
    page.locator(".painted .text .t").nth(-3).click()
    page.get_by_text("What the marked token read, and could not").click()
    expect(page.get_by_text("What it could not read")).to_be_visible(timeout=PATIENCE)


def test_a_training_survives_a_new_tab_is_seen_on_every_page_and_goes_on_where_it_was_cancelled(
    app_server, page, browser, root
):
    settings = "train_steps=40&train_tokens=1024&train_groups=4&train_label=forty"
    page.goto(f"{app_server}/train-a-router?{settings}")
    expect(page.get_by_role("heading", name=re.compile("^k8-top1: the largest group"))).to_be_visible(timeout=PATIENCE)
    settle(page)
    page.get_by_role("button", name=re.compile("Train, ~")).click()
    page.wait_for_url(re.compile("job=[0-9a-f]{12}"))
    strip, curve = page.locator(".st-key-job_strip"), page.locator(".st-key-train_growing .js-plotly-plot")
    expect(strip.get_by_text(STEP)).to_be_visible(timeout=PATIENCE)
    page.evaluate("window.here = true")
    expect(curve).to_be_visible(timeout=PATIENCE)
    points = "plot => plot.data[0].y.length"
    grown = f"more => ({points})(document.querySelector('.st-key-train_growing .js-plotly-plot')) >= more"
    page.wait_for_function(grown, arg=curve.evaluate(points) + 2, timeout=PATIENCE)

    go(page, "worth")
    expect(page.get_by_role("heading", name="Gain by context")).to_be_visible(timeout=PATIENCE)
    page.set_viewport_size({"width": 390, "height": 844})
    expect(strip.get_by_role("button", name="Cancel")).to_be_in_viewport()
    expect(strip.get_by_text(re.compile("step ([6-9]|[1-3][0-9]) of 40"))).to_be_visible(timeout=PATIENCE)
    strip.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible(timeout=PATIENCE)
    saved = re.search("([0-9]+) of 40 steps are kept", page.get_by_test_id("stMain").inner_text())
    page.set_viewport_size({"width": 1400, "height": 1000})
    page.get_by_role("button", name="Resume").click()
    expect(strip.get_by_text(STEP)).to_be_visible(timeout=PATIENCE)
    step = int(STEP.search(strip.inner_text(timeout=PATIENCE))[1])
    assert step > (int(saved[1]) if saved else 1)  # a worker whose step takes longer than the grace is replaced
    assert page.evaluate("window.here"), "the page was never loaded anew"

    second_tab = browser.new_context().new_page()
    second_tab.goto(page.url)
    expect(second_tab.get_by_text("Done: Training of a Focus router")).to_be_visible(timeout=2 * PATIENCE)
    second_tab.context.close()
    go(page, "training")
    page.get_by_role("button", name="Use the router k4-top1-forty").first.click(timeout=PATIENCE)
    page.wait_for_url(re.compile("router=k4-top1-forty"))
    learned = page.get_by_role("heading", name=re.compile("^k4-top1-forty: the largest group holds"))
    expect(learned).to_be_visible(timeout=PATIENCE)
    go(page, "groups")
    page.get_by_test_id("stExpander").get_by_text("Details", exact=True).click(timeout=PATIENCE)
    expect(page.get_by_text("trained, 40 steps").first).to_be_visible(timeout=PATIENCE)
    assert not list((root / "models_cache" / "demo" / "focus").glob("*forty*")), "the bundled folder stays as it came"
