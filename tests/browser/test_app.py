"""The real app in a real browser, with the real model: what a reader does in the first five minutes.

One server for all tests; what one test stored another may find.
"""

import json
import re
import shutil
import time
import uuid

import pytest
from playwright.sync_api import expect

from tests.conftest import watched
from tests.made.browsing import PATIENCE, go, painted, settle, upload, visit
from tests.made.tiny_tokenizer import save_model

pytestmark = pytest.mark.browser

STORY = (
    "Old Marguerite Vassal kept the ferry at Thornwick. Every evening the lantern of Thornwick was lit by her, and "
    "the river answered it. "
) * 4 + (
    "The miller went down to the water and spoke of corn, of weather, of the price of rope and of nothing else, while "
    "the boys threw stones and the geese complained. "
) * 8
STORY += "At last Marguerite Vassal put out the lantern and left Thornwick for ever."


@pytest.fixture(scope="module")
def start(app_server, visitor):
    """The first page, opened once for the tests that only look at it."""
    with watched(visitor) as tab:
        visit(tab, app_server, "How far back it reads")
        yield tab


def test_the_first_page_shows_the_painted_sample_and_an_open_pair(start):
    page = start
    expect(page.get_by_role("heading", name="What does the model read in this text?")).to_be_visible()
    expect(painted(page).locator(".t")).not_to_have_count(0)
    assert painted(page).locator(".t.p").count() > 50
    expect(page.locator(".contexts article")).to_have_count(2)
    expect(page.locator(".contexts mark.hit")).to_have_count(2)
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    assert page.locator(".painted path.open").count() == 1


def test_hover_tells_a_token_and_the_keyboard_walks_through_them(start):
    page = start
    page.locator(".painted .t[data-i='12']").hover()
    expect(page.locator(".painted .tip")).to_contain_text("token")
    expect(page.locator(".painted .tip")).to_contain_text("12")
    painted(page).focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".painted .tip dd").first).to_have_text("0")
    page.keyboard.press("Escape")
    expect(page.locator(".painted .tip")).to_be_hidden()
    page.get_by_role("button", name="Spaces and line breaks").click()
    expect(painted(page)).to_contain_text("·")


def test_numbers_of_a_chart_come_as_table_and_as_csv(start):
    page = start
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").first.click()
    lines = download.value.path().read_text(encoding="utf-8-sig").splitlines()
    stamp = [line for line in lines if line.startswith("# ")]
    assert lines[len(stamp)].startswith("low,high,mass,uniform") and any("demo" in line for line in stamp)
    page.get_by_role("button", name="Numbers as a table").first.click()
    expect(page.get_by_role("region", name="how-far-back-it-reads").locator("tbody tr")).not_to_have_count(0)


def test_an_arc_opens_its_pair(start):
    page = start
    before = page.locator(".contexts").inner_text()
    page.locator(".painted path.grip").nth(2).dispatch_event("click")
    page.wait_for_url(re.compile("pair="))
    expect(page.locator(".contexts")).not_to_have_text(before)


def test_an_uploaded_text_is_sorted_into_groups_and_a_link_restores_it(app_server, page, browser):
    visit(page, app_server, "How far back it reads")
    upload(page, "ferry.txt", STORY.encode())
    expect(painted(page)).to_contain_text("Marguerite", timeout=PATIENCE)
    settle(page)
    go(page, "Token groups")
    expect(page.get_by_role("heading", name="The text by group")).to_be_visible(timeout=PATIENCE)
    expect(painted(page)).to_contain_text("Marguerite", timeout=PATIENCE)
    page.get_by_role("radio", name="4", exact=True).or_(page.get_by_role("button", name="4", exact=True)).first.click()
    page.wait_for_url(re.compile("layer=4"))
    page.locator(".painted .legend .item").nth(1).click()
    page.wait_for_url(re.compile("group=1"))
    settle(page)
    fresh = browser.new_context().new_page()
    fresh.goto(page.url)
    expect(fresh.locator(".painted .text.one")).to_contain_text("Marguerite", timeout=PATIENCE)
    expect(fresh.locator(".legend .item[aria-pressed=true] .swatch")).to_have_text("1")
    expect(fresh.get_by_text("Share of the tokens in layer 4")).to_be_visible()
    expect(fresh.get_by_role("button", name="Text: ferry.txt")).to_be_visible()
    fresh.context.close()


@pytest.mark.slow
@pytest.mark.alone
def test_a_new_text_reaches_its_groups_in_seconds_with_the_worker_warm(app_server, page):
    visit(page, f"{app_server}/token-groups", "The text by group")
    page.get_by_role("button", name="Model:").click()
    expect(page.get_by_text("Worker: ready")).to_be_visible(timeout=PATIENCE)
    words = (STORY + " A raven of Thornwick watched. ").split()[:900]
    page.get_by_role("button", name="Text:").click()
    began = time.monotonic()
    page.locator("input[type=file]").set_input_files(
        {"name": "raven.txt", "mimeType": "text/plain", "buffer": " ".join(words).encode()}
    )
    expect(painted(page)).to_contain_text("Marguerite", timeout=PATIENCE)
    seconds = time.monotonic() - began
    print(f"new text to groups: {seconds:.1f} s")
    assert seconds < 30, "3 s is the aim on an idle machine; this bound only catches a worker that loads anew"


def test_a_pair_is_read_from_the_table(app_server, page):
    visit(page, f"{app_server}/long-range-pairs", "Where they are")
    rows = page.get_by_role("region", name="Pairs, strongest first").locator("tbody tr")
    assert rows.count() > 10
    wanted = [name.partition(" in ")[0] for name in rows.nth(3).locator("td").all_inner_texts()]
    rows.nth(3).click()
    page.wait_for_url(re.compile("pair="))
    expect(page.locator(".contexts .query mark").first).to_be_visible()
    reads = page.locator(".fs-more").filter(has_text="tokens back")
    expect(reads.first).to_contain_text(f"“{wanted[0]}”")
    expect(reads.first).to_contain_text(f"reads “{wanted[1]}”")
    page.reload()
    expect(reads.first).to_contain_text(f"“{wanted[0]}”", timeout=PATIENCE)
    expect(rows.nth(3)).to_have_attribute("aria-selected", "true")


@pytest.mark.parametrize(
    "name, data, words",
    [
        ("photo.png", b"\x89PNG\r\n\x1a\n\x00\x00" * 400, "looks like a binary file"),
        pytest.param("empty.txt", b"", "is empty (0 bytes)", marks=pytest.mark.slow),
        pytest.param("latin.txt", "naïve café, très".encode("latin-1"), "is not valid UTF-8", marks=pytest.mark.slow),
        pytest.param("spaces.txt", b"  \n \n  ", "holds only spaces", marks=pytest.mark.slow),
    ],
)
def test_a_bad_file_gets_one_sentence_and_nothing_else_is_lost(app_server, page, tmp_path, name, data, words):
    visit(page, app_server, "How far back it reads")
    expect(painted(page)).to_contain_text("Gannet House", timeout=PATIENCE)
    before, address = painted(page).inner_text(), page.url
    upload(page, name, data, tmp_path)
    alert = page.get_by_test_id("stMain").get_by_role("alert")
    expect(alert).to_contain_text(words, timeout=PATIENCE)
    expect(alert).to_contain_text(name)
    assert alert.count() == 1 and "Traceback" not in page.content()
    expect(painted(page)).to_have_text(before, use_inner_text=True)
    assert page.url == address


@pytest.mark.slow
def test_a_file_ten_times_too_large_is_not_sent_at_all(app_server, page, tmp_path):
    visit(page, app_server, "How far back it reads")
    upload(page, "huge.txt", b"word " * 10_000_000, tmp_path)
    expect(page.get_by_text("File must be 30.0MB or smaller")).to_be_visible(timeout=PATIENCE)
    expect(painted(page)).to_contain_text("Gannet House")


@pytest.mark.slow
def test_hostile_text_is_text(app_server, page):
    visit(page, app_server, "How far back it reads")
    text = (
        "<script>window.hit=1</script><img src=x onerror='window.hit=1'> **bold** `code` $x$ مرحبا 你好 👩‍👩‍👧\n" * 30
    )
    upload(page, "<img src=x onerror=window.hit=1>.txt", text.encode())
    expect(painted(page)).to_contain_text("<script>window.hit=1</script>", timeout=PATIENCE)
    expect(painted(page)).to_contain_text("مرحبا 你好 👩‍👩‍👧")
    settle(page)
    painted(page).locator(".t", has_text="你").first.hover()
    expect(page.locator(".painted .tip")).to_contain_text("⟨E4⟩ · ⟨BD⟩ · ⟨A0⟩")
    for link in ("Token groups", "Long-range pairs"):
        go(page, link)
        expect(page.get_by_text("Routing vectors of" if link == "Token groups" else "by distance").first).to_be_visible(
            timeout=PATIENCE
        )
        settle(page)
        page.locator(".t, .contexts p").first.hover()
    assert page.evaluate("window.hit") is None
    assert page.locator("[data-testid=stMain] img[src=x]").count() == 0


@pytest.mark.slow
def test_a_damaged_link_opens_the_page_and_says_what_was_dropped(app_server, page):
    page.goto(f"{app_server}/token-groups?layer=99&group=%3Cb%3E&text=..%2F..%2Fetc&nonsense=1")
    expect(page.get_by_text("“99” is not available here")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("“../../etc” is not available here")).to_be_visible()
    expect(page.get_by_text("means nothing here")).to_be_visible()
    expect(painted(page)).to_be_visible(timeout=PATIENCE)


@pytest.mark.slow
def test_a_model_outside_the_root_is_refused_and_the_model_in_use_stays(app_server, page):
    visit(page, app_server, "How far back it reads")
    page.get_by_role("button", name="Model: demo").click()
    page.get_by_role("textbox", name="Hugging Face id").fill("/etc/passwd")
    page.get_by_role("button", name="Load this model").click()
    expect(page.get_by_text("is not the name of a model")).to_be_visible(timeout=PATIENCE)
    expect(painted(page)).to_be_visible()


@pytest.mark.slow
def test_another_model_is_read_from_its_folder_and_the_bundled_one_comes_back(app_server, page, root):
    folder = root / "models_cache" / f"tiny-{uuid.uuid4().hex[:8]}"
    try:
        save_model(folder, max_position_embeddings=512)
        visit(page, app_server, "How far back it reads")
        page.get_by_role("button", name="Model: demo").click()
        page.get_by_role("textbox", name="Hugging Face id").fill(folder.name)
        page.get_by_role("button", name="Load this model").click()
        page.wait_for_url(re.compile(f"model={folder.name}"), timeout=PATIENCE)
        expect(page.get_by_role("button", name=f"Model: {folder.name}")).to_be_visible(timeout=PATIENCE)
        expect(page.get_by_text("not trained").first).to_be_visible(timeout=PATIENCE)
        expect(painted(page).locator(".t").first).to_be_visible(timeout=PATIENCE)
        settle(page)
        page.get_by_role("button", name=f"Model: {folder.name}").click()
        page.get_by_role("combobox", name="Models on this machine").click()
        page.get_by_role("option", name=re.compile("^demo · fits · ")).click()
        expect(page.get_by_role("button", name="Model: demo")).to_be_visible(timeout=PATIENCE)
        expect(painted(page)).to_contain_text("Gannet House", timeout=PATIENCE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_a_router_is_fitted_as_a_job_that_survives_a_new_tab(app_server, page, browser, root):
    visit(page, f"{app_server}/token-groups", "The text by group")
    page.get_by_text("Fit another router without training").click()
    page.get_by_role("spinbutton", name="Groups", exact=True).or_(page.get_by_label("Groups", exact=True)).first.fill(
        "5"
    )
    page.keyboard.press("Enter")
    settle(page)
    page.get_by_role("button", name="Fit without training").click()
    page.wait_for_url(re.compile("job=[0-9a-f]{12}"))
    address = page.url
    other = browser.new_context().new_page()
    other.goto(address)
    expect(other.get_by_text("A Focus router without training").first).to_be_visible(timeout=PATIENCE)
    expect(other.get_by_text("Done: A Focus router without training")).to_be_visible(timeout=PATIENCE)
    other.context.close()
    page.get_by_role("button", name="Use the router k5-top1").click(timeout=PATIENCE)
    page.wait_for_url(re.compile("router=k5-top1"))
    expect(page.get_by_text("5 groups, each token in 1").first).to_be_visible(timeout=PATIENCE)
    assert not list((root / "models_cache" / "demo" / "focus").glob("*k5*")), "the bundled folder stays as it came"


@pytest.mark.slow
def test_links_name_what_differs_from_the_default(app_server, page):
    visit(page, f"{app_server}/long-range-pairs?content=no&top=20", "Where they are")
    assert "content=no" in page.url and "top=20" in page.url and "distance" not in page.url
    shown = page.get_by_role("region", name="Pairs, strongest first").locator("tbody tr")
    expect(shown).to_have_count(20)
    assert json.loads(page.evaluate("JSON.stringify(window.location.search.length)")) < 200
