"""The door Heads in a real browser with the real model: keys on the map, the reader's own name of a head, a tile, and
the live temperature with its frames and numbers."""

import re
import statistics

import numpy as np
import pytest
from playwright.sync_api import expect
from scipy.special import entr, softmax

from analysis.commands.temperature import QueriesKeys
from analysis.corpus import sample_texts
from tests.browser import script
from tests.made.browsing import PATIENCE, plot, redrawn, settle, unfold

pytestmark = pytest.mark.browser
FRAME = 50  # milliseconds between two frames while the hand drags


def opened(page, address: str) -> None:
    page.goto(address)
    expect(page.locator(".heads .map button, .sharpen .t").first).to_be_visible(timeout=PATIENCE)
    settle(page)


def shows(page, name: str) -> None:
    expect(page.get_by_role("heading", name=f"Head {name}", exact=True)).to_be_visible(timeout=PATIENCE)
    settle(page)


@pytest.mark.parametrize("width", [1440, 390])
def test_keys_choose_a_head_and_its_own_name_stays(app_server, page, width):
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, f"{app_server}/heads?head=3.2")
    shows(page, "3.2")
    cell = page.locator(".heads [role=gridcell][tabindex='0']")
    cell.focus()
    for key in ("ArrowUp", "ArrowRight"):
        page.keyboard.press(key)
    expect(page.locator(".heads .said")).to_contain_text("4.3 · ")
    redrawn(page, lambda: page.keyboard.press("Enter"))
    shows(page, "4.3")
    expect(page).to_have_url(re.compile("layer=4&head=3"))
    name_box = page.get_by_role("textbox", name="Your name for it")
    name_box.fill(f"mine at {width}")
    redrawn(page, lambda: name_box.press("Enter"))
    expect(page.locator(".heads .said")).to_contain_text(f"mine at {width}", timeout=PATIENCE)
    redrawn(page, page.locator(".heads .chips button").nth(1).click)
    expect(page.locator("h1")).to_contain_text("copies what came next", timeout=PATIENCE)
    opened(page, f"{app_server}/heads?head=4.3")
    expect(page.get_by_role("textbox", name="Your name for it")).to_have_value(f"mine at {width}")
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), "nothing is cut at the right"


def test_the_card_of_a_head_stands_on_hover_over_its_name_in_a_sentence_and_a_select_box(app_server, page):
    opened(page, f"{app_server}/heads?head=3.6")
    shows(page, "3.6")
    card = page.locator(".head-card")
    sentence = page.locator("h1").get_by_text("reads farthest")
    name = re.match(r"Head (\d+\.\d+)", sentence.inner_text())[1]
    expect(card).to_be_hidden()
    sentence.hover(position={"x": 20, "y": 15})
    expect(card).to_be_visible()
    assert card.inner_text().startswith(f"head {name} · ") and re.search("90% on [0-9,]+ keys", card.inner_text())
    opened(page, f"{app_server}/heads?head=3.6&beside=head")
    second = page.get_by_role("combobox", name="Second head")
    expect(second).to_be_visible(timeout=PATIENCE)
    box = page.locator("[data-testid=stSelectbox]", has=second)
    box.hover()
    expect(card).to_have_text(re.compile(f"^head {second.input_value()} · "))
    unfold(page, second)
    option = page.get_by_role("option").nth(1)
    option.hover()
    expect(card).to_have_text(re.compile(f"^head {option.inner_text()} · "))
    page.keyboard.press("ArrowDown")
    reached = page.locator(f"id={second.get_attribute('aria-activedescendant')}").inner_text()
    expect(card).to_have_text(re.compile(f"^head {reached} · "))
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    page.mouse.move(5, 700)
    chip = page.locator(".heads .chips b").nth(1)
    chip.hover()
    expect(card).to_have_text(re.compile(f"^head {chip.inner_text()} · "))
    page.locator(".heads .said").hover()
    expect(card).to_be_hidden()


def test_a_dragged_rectangle_shows_its_tile(app_server, page):
    opened(page, f"{app_server}/heads?head=3.4&head_tab=pattern")
    box = plot(page, "heads_pattern_0")
    page.mouse.move(box["x"] + 20, box["y"] + box["height"] * 0.5)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + box["height"] * 0.6, steps=5)
    page.mouse.up()
    tile = page.get_by_role("heading", name=re.compile("^Exact: queries"))
    expect(tile).to_be_visible(timeout=PATIENCE)
    expect(page).to_have_url(re.compile(r"tile=\d+\.\d+"))
    settle(page)


@pytest.mark.alone
def test_the_temperature_is_redrawn_while_it_is_dragged_with_python_s_numbers(app_server, page, context):
    opened(page, f"{app_server}/heads?at=temperature&head=5.4&query=2006")
    drawn = page.evaluate(script("sharpen"), [1.8, 0.3])
    text = context.add_text("story", sample_texts()["story"][1])
    run = QueriesKeys(model="demo", text=text).compute(context=context)
    queries, keys = run.query.astype(float), run.key.astype(float)
    n_heads, groups = queries.shape[1], keys.shape[1]

    def weights(layer: int, head: int, query: int) -> np.ndarray:
        row = keys[layer, head * groups // n_heads, : query + 1] @ queries[layer, head, query]
        return softmax(row * run.scaling[layer] / drawn["t"])

    row = weights(5, 4, 2006)
    assert drawn["t"] == pytest.approx(0.3) and len(drawn["heads"]) == 48
    assert [drawn["entropy"], drawn["largest"]] == pytest.approx([entr(row).sum(), row.max()], abs=1e-3)
    for name, _, mean in drawn["heads"][::7]:
        layer, head = map(int, name.split("."))
        wanted = np.mean([entr(weights(layer, head, place)).sum() for place in run.places])
        assert mean == pytest.approx(wanted, abs=1e-3), name
    print(f"frames: median {statistics.median(drawn['gaps']):.1f} ms, longest {max(drawn['gaps']):.1f} ms")
    assert statistics.median(drawn["gaps"]) <= FRAME
    slider = page.get_by_role("slider", name="Temperature")
    slider.focus()
    redrawn(page, lambda: slider.press("ArrowRight"))
    expect(page).to_have_url(re.compile(r"softmax=0\.3"))
    page.locator(".sharpen .heads .chosen").focus()
    page.keyboard.press("ArrowDown")
    redrawn(page, lambda: page.keyboard.press("Enter"))
    expect(page).to_have_url(re.compile("layer=4&head=4"), timeout=PATIENCE)
    expect(page.locator(".sharpen .heads .chosen")).to_have_attribute("data-cell", "4.4", timeout=PATIENCE)
