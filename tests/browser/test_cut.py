"""The door Cut in a real browser, on what comes with the program: dots dragged and moved by keys, a row chosen, a step
that is stored within its limit, at a desk by day and on a telephone by night."""

import re
import statistics

import pytest
from playwright.sync_api import expect

from tests.browser import script
from tests.made.browsing import PATIENCE, answered, chosen, moved, settle

pytestmark = pytest.mark.browser
# Seconds to a drawn step that is stored, and to its answer above the picture.
STEP, ANSWER = 0.25, 3.0
MEMORY = "cut?quality_saves=memory"
SCREENS = {"desk": (1440, 900, "light"), "telephone": (390, 844, "dark")}
FRAMES = script("step")


def dot(page, method: str):
    """The slider on the curve of a method."""
    return page.get_by_role("slider", name=re.compile(f"^{method}:"))


@pytest.mark.parametrize("screen", SCREENS)
def test_a_dot_is_dragged_moved_by_keys_and_chosen_in_its_row(app_server, page, screen, tmp_path):
    width, height, scheme = SCREENS[screen]
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{app_server}/{MEMORY}")
    title = page.get_by_role("heading", level=1)
    answered(page, title.filter(has_text="Keep 50% with SnapKV"))
    dot(page, "SnapKV").focus()
    page.keyboard.press("ArrowRight")
    expect(title).to_contain_text("Keep 75% with SnapKV", timeout=PATIENCE)
    expect(page).to_have_url(re.compile("quality_equal=75"))
    settle(page)
    box, svg = dot(page, "TOVA").locator("circle").bounding_box(), page.locator(".curves svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(svg["x"] + 0.5 * svg["width"], box["y"], steps=4)
    page.mouse.up()
    expect(title).to_contain_text(re.compile("Keep (25|50)% with TOVA"), timeout=PATIENCE)
    settle(page)
    page.locator(".curves").get_by_role("button", name="SnapKV").click()
    expect(title).to_contain_text(re.compile("Keep (25|50)% with SnapKV"), timeout=PATIENCE)
    expect(page).to_have_url(re.compile("quality_paint=snapkv"))
    settle(page)
    before, url = title.inner_text(), page.url
    page.goto(url)
    expect(title).to_have_text(before, timeout=PATIENCE)
    settle(page)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    page.screenshot(path=tmp_path / f"{screen}.png")


PICTURES = {  # page -> (its menu, words of its picture)
    MEMORY: ("quality_curves_memory", ["SnapKV", "your limit, +5%"]),
    "cut?at=budgets": ("budget_map_numbers", ["512", "worst stretch"]),
    "cut?at=routers": ("routing_live_numbers", ["Saap-style MLP", "share of the buckets visited"]),
}


@pytest.mark.parametrize("address", PICTURES)
def test_the_picture_leaves_as_it_stands_with_its_names_and_where_it_is_from(app_server, page, address):
    key, words = PICTURES[address]
    page.goto(f"{app_server}/{address}")
    page.locator(f".st-key-{key}_menu .menu > button").wait_for(timeout=PATIENCE)
    settle(page)
    with page.expect_download() as saved:
        chosen(page, key, "SVG")
    picture = saved.value.path().read_text(encoding="utf-8")
    assert all(said in picture for said in [*words, "model demo"])
    assert not re.search(r"""="(var|ok|color)""", picture), "every program reads its colours"
    assert re.search(r"""stroke="rgba?\(""", picture)


@pytest.mark.slow
@pytest.mark.alone
def test_a_stored_step_is_drawn_within_its_limit(app_server, page):
    page.goto(f"{app_server}/{MEMORY}")
    answered(page, page.get_by_role("heading", level=1).filter(has_text="Keep 50% with SnapKV"))
    moves = [page.evaluate(FRAMES, key) for key in ["ArrowRight", "ArrowLeft"] * 4 if not settle(page)]
    drawn, decided = (statistics.median(times) for times in zip(*moves, strict=True))
    assert drawn <= STEP and decided <= ANSWER


@pytest.mark.slow
@pytest.mark.alone
def test_a_moved_setting_is_a_mark_of_its_own_and_the_link_restores_it(app_server, page):
    page.goto(f"{app_server}/cut?quality_read=1024&quality=streaming_llm&quality_equal=25")
    title = page.get_by_role("heading", level=1)
    answered(page, title.filter(has_text="Read 25% with StreamingLLM"))
    page.get_by_role("button", name="Settings").click()
    thumb = page.locator(".st-key-quality_card_streaming_llm").get_by_role("slider", name="Window, tokens")
    before = title.inner_text()
    moved(page, thumb, "ArrowLeft", charts=["quality_curves_reads"])
    assert title.inner_text() != before
    expect(page).to_have_url(re.compile("streaming_llm~window-64"))
    numbers = title.inner_text()
    page.goto(page.url)
    expect(title).to_have_text(numbers, timeout=PATIENCE)


def test_one_key_that_left_decides_an_answer(app_server, page):
    """The example on Generate: dense attention is right, a budget is not, and with one key put back it is again."""
    page.goto(f"{app_server}/cut?at=generate")
    settle(page)
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("button", name="One key that decides an answer").click()
    title = page.get_by_role("heading", level=1)
    expect(title).to_contain_text("right again: “Esther Dunn”", timeout=PATIENCE)
    expect(page).to_have_url(re.compile("generate_back=3.3.611"))
    settle(page)
    answers = page.locator(".contexts")
    for text in ("Dube.", "with key 611 of head 3.3 put back"):
        expect(answers.get_by_text(text).first).to_be_visible(timeout=PATIENCE)
    page.get_by_role("slider", name="New token").press("ArrowLeft")
    expect(page).to_have_url(re.compile("generate_at=23"), timeout=PATIENCE)
    settle(page)
    expect(title).to_contain_text("right again")
