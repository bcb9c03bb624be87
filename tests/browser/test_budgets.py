"""KV budgets in a real browser with the real model: a map changed and changed back, the slider over the reads until
positions break, and a bad policy refused. The text is the reader's own, so that no policy has seen it."""

import json
import re

import pytest
from playwright.sync_api import expect

from analysis.corpus import text_hash
from tests.browser.test_heads import choose, plot
from tests.made.browsing import PATIENCE, settle, upload

pytestmark = pytest.mark.browser
NAMES = "Aldous Brint, Corwen Sathe, Mirelle Okonjo, Tobias Hale, Ysolde Crane".split(", ")
TEXT = " ".join(f"On the first day {name} came to the mill with {n + 2} sacks of corn." for n, name in enumerate(NAMES))
TEXT += " The river ran high that spring, and the wheel turned by night as well as by day, and nobody spoke of it." * 6
TEXT += " " + " ".join(
    f"In the end it was {name} who left the mill with {n + 2} sacks." for n, name in enumerate(NAMES)
)


@pytest.fixture
def silent(page):
    """Nothing may be written to the console as an error; a file that is not there is Streamlit's own probing."""
    said = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    yield
    assert not [line for line in said if "404" not in line], said


def budgets(page, address: str, link: str = ""):
    page.goto(f"{address}/kv-budgets{link}")
    expect(page.locator(".fs-lead", has_text="attention lies on")).to_be_visible(timeout=PATIENCE)
    settle(page)


def written(page, key: str) -> list[str]:
    """The numbers in the cells of a map."""
    return page.locator(f".st-key-{key} .textpoint text").all_text_contents()


def test_a_cell_of_the_map_is_changed_and_undone(app_server, page, silent):
    budgets(page, app_server)
    for key in ("budget_ranks", "budget_map"):
        expect(page.locator(f".st-key-{key} .js-plotly-plot")).to_be_visible(timeout=PATIENCE)
    before = written(page, "budget_map")
    assert len(before) == 48
    box = plot(page, "budget_map")
    page.mouse.click(box["x"] + box["width"] * 4.5 / 8, box["y"] + box["height"] * 2.5 / 6)
    expect(page.get_by_text("Chosen: head 3.4")).to_be_visible(timeout=PATIENCE)
    settle(page)
    choose(page, "Set")
    expect(page.locator(".st-key-budget_keys input")).to_be_visible(timeout=PATIENCE)  # the script has run again
    settle(page)
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("Your changes, in this order: head 3.4 set to 64 keys.")).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".st-key-budget_map .textpoint u, .st-key-budget_map .textpoint tspan").first).to_be_visible()
    expect(page).to_have_url(re.compile("budget_edits=c28s64"))
    settle(page)
    assert written(page, "budget_map") != before
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Your changes, in this order")).to_have_count(0, timeout=PATIENCE)
    settle(page)
    assert written(page, "budget_map") == before


@pytest.mark.slow
def test_the_slider_over_the_reads_until_positions_break(app_server, page, silent):
    budgets(page, app_server)
    upload(page, "mill.txt", TEXT.encode())
    expect(page).to_have_url(re.compile(text_hash(TEXT)), timeout=PATIENCE)
    settle(page)
    budgets(page, app_server, f"?text={text_hash(TEXT)}&budgets=reads")
    measure = page.get_by_role("button", name="Measure this text")
    measure.click(timeout=PATIENCE)
    expect(measure).to_have_count(0, timeout=PATIENCE)  # an example of another text stands there until then
    slider = page.get_by_role("slider", name="Share of the causal pairs that is read")
    expect(slider).to_be_visible(timeout=PATIENCE)
    settle(page)
    slider.focus()
    slider.press("Home")
    expect(page.get_by_role("heading", name="By position, reading 100%")).to_be_visible(timeout=PATIENCE)
    settle(page)
    whole, red = _changes(page), _red(page)
    assert max(whole) < 0.1 and red == 0
    slider.focus()
    slider.press("End")
    expect(page.get_by_role("heading", name="By position, reading 2%")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("The worst token:")).to_be_visible(timeout=PATIENCE)
    settle(page)
    mean, last, worst = _changes(page)
    print(f"at 2%: mean {mean}, last {last}, worst {worst}, {_red(page)} tokens less likely")
    assert worst > mean > 0 and worst >= last and _red(page) > 10
    expect(page.get_by_text(re.compile("the key it lost most of is"))).to_be_visible()
    expect(page.locator(".contexts article")).to_have_count(2)
    expect(page).to_have_url(re.compile("budget_reads=0.02"))


def _changes(page) -> list[float]:
    """The changes of all, the last and the worst positions, per cent."""
    found = page.get_by_test_id("stMetricValue").all_inner_texts()[:3]
    return [float(text.strip().removesuffix("%").strip().replace("−", "-")) for text in found]


def _red(page) -> int:
    """Tokens that became less likely, as the legend counts them."""
    return sum(
        int(row.locator("..").inner_text().split()[-1].replace(",", ""))
        for row in page.locator(".painted .legend").get_by_text(re.compile("times less likely")).all()
    )


@pytest.mark.slow
def test_bad_policies_are_refused_in_one_sentence(app_server, page, silent):
    budgets(page, app_server)
    for data, said in (
        (json.dumps([4] * 145), "made for 144 heads and this model has 6 layers of 8 heads"),
        (json.dumps([1] * 49), "holds 48 keys, below the floor"),
        ("[" * 50_000, "The file is not JSON"),
        ('{"policy": "<script>alert(1)</script>", "layers": 6, "heads": 8}', "holds no list of"),
    ):
        button = page.get_by_role("button", name="Upload", exact=True)
        if page.get_by_text("A policy, JSON").count() == 0:
            button.click()
        place = page.locator("[class*=st-key-budget_upload_] input[type=file]")
        expect(place).to_have_count(1)
        place.set_input_files({"name": "p.json", "mimeType": "application/json", "buffer": data.encode()})
        expect(page.get_by_test_id("stAlert").get_by_text(said)).to_be_visible(timeout=PATIENCE)
        settle(page)
    expect(page).not_to_have_url(re.compile("budget_policy"))


@pytest.mark.slow
def test_a_calibration_from_the_page_is_used_and_compared(app_server, page, silent):
    budgets(page, app_server, "?budgets=calibrate&budget_sweep=no&budget_tokens=1024&budget_name=short")
    page.get_by_role("button", name="Calibrate", exact=True).click()
    expect(page).to_have_url(re.compile("budget_policy=short"), timeout=PATIENCE)
    expect(page.get_by_text(re.compile("The ranks of short and policy agree to"))).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("heading", name="Rank by position")).to_be_visible()
    settle(page)
    page.get_by_role("tab", name="Cost").click()
    expect(page.get_by_text("Top-k cannot beat dense attention while all scores are computed")).to_be_visible()
