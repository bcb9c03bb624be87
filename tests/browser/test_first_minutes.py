"""What a reader does in the first five minutes, in a real browser with the real model: the painted sample, an own text
and its link, files that are refused, another model. One server for all tests; what one stored another may find."""

import re

import pytest
from playwright.sync_api import expect
from pypdf import PdfReader

from tests.browser import script
from tests.made.browsing import PATIENCE, chosen, painted, read, redrawn, settle, upload, visit

pytestmark = pytest.mark.browser

STORY = (
    "Old Marguerite Vassal kept the ferry at Thornwick. Every evening the lantern of Thornwick was lit by her, and "
    "the river answered it. "
) * 4 + (
    "The miller went down to the water and spoke of corn, of weather, of the price of rope and of nothing else, while "
    "the boys threw stones and the geese complained. "
) * 8
STORY += "At last Marguerite Vassal put out the lantern and left Thornwick for ever."
OPENED = "of the attention goes 128 or more tokens back"
CHART = "How far back it reads"  # folded under the first page
PRINTED = script("print")


def test_the_first_page_is_painted_and_gives_its_numbers(app_server, page):
    visit(page, app_server, OPENED)
    assert painted(page).locator(".t.p").count() > 50
    expect(page.locator(".painted path.open")).to_have_count(1)
    before = page.locator(".read .card h3").inner_text()
    page.locator(".painted path.grip").nth(2).dispatch_event("click")
    page.wait_for_url(re.compile("pair="))
    expect(page.locator(".read .card h3")).not_to_have_text(before)

    visit(page, f"{app_server}/?start_more=yes", CHART)
    with page.expect_download() as download:
        chosen(page, "start_distance", "CSV")
    lines = download.value.path().read_text(encoding="utf-8-sig").splitlines()
    stamp = [line for line in lines if line.startswith("# ")]
    assert lines[len(stamp)].startswith("low,high,mass,uniform") and any("demo" in line for line in stamp)
    chosen(page, "start_distance", "Numbers as a table")
    expect(page.get_by_role("region", name="how-far-back-it-reads").locator("tbody tr")).not_to_have_count(0)


def test_the_menu_of_a_chart_prints_it_as_a_pdf_of_one_sheet_that_says_where_it_is_from(app_server, page, tmp_path):
    page.add_init_script(f"({PRINTED})()")
    visit(page, f"{app_server}/?start_more=yes", CHART)
    expect(page.locator(".st-key-start_distance svg.main-svg").first).to_be_visible(timeout=PATIENCE)
    page.locator(".st-key-start_distance_menu .menu > button").press("Enter")
    for name in ("PNG", "SVG", "PDF"):
        expect(page.get_by_role("menuitem", name=name)).to_be_focused()
        page.keyboard.press("Enter" if name == "PDF" else "ArrowDown")
    (sheet,) = page.evaluate("() => window.printed")
    page.set_content(sheet)
    page.pdf(path=tmp_path / "chart.pdf", prefer_css_page_size=True)
    (printed,) = PdfReader(tmp_path / "chart.pdf").pages
    words = printed.extract_text()
    assert CHART in words and "share of the attention" in words and "model demo" in words, "letters stay letters"


def test_an_uploaded_text_is_sorted_into_groups_and_a_link_restores_it(app_server, page, browser):
    visit(page, app_server, OPENED)
    read(page, "ferry.txt", STORY.encode())
    expect(painted(page)).to_contain_text("Marguerite", timeout=PATIENCE)
    settle(page)
    redrawn(page, page.get_by_role("tab", name="Groups").first.click)
    expect(page.locator(".read canvas.map")).to_be_visible(timeout=PATIENCE)
    expect(painted(page)).to_contain_text("Marguerite", timeout=PATIENCE)
    page.get_by_role("combobox", name="Layer").click()
    page.get_by_role("option", name="Layer 4", exact=True).click()
    page.wait_for_url(re.compile("layer=4"))
    page.locator(".read .card .legend .item").nth(1).click()
    page.wait_for_url(re.compile("group=1"))
    settle(page)
    fresh = browser.new_context().new_page()
    fresh.goto(page.url)
    expect(fresh.locator(".painted .text.one")).to_contain_text("Marguerite", timeout=PATIENCE)
    expect(fresh.locator(".card .legend .item[aria-selected=true] .swatch")).to_have_text("1")
    expect(fresh.get_by_text("Layer 4: the largest of 8 groups")).to_be_visible()
    expect(fresh.get_by_role("button", name="Text: ferry.txt")).to_be_visible()
    fresh.context.close()


@pytest.mark.slow
def test_a_binary_or_too_large_file_is_refused_and_hostile_text_is_only_text(app_server, page, tmp_path):
    visit(page, app_server, OPENED)
    before, address = painted(page).inner_text(), page.url
    upload(page, "photo.png", b"\x89PNG\r\n\x1a\n\x00\x00" * 400, tmp_path)
    alert = page.get_by_test_id("stMain").get_by_role("alert")
    expect(alert).to_contain_text("looks like a binary file", timeout=PATIENCE)
    expect(painted(page)).to_have_text(before, use_inner_text=True)
    assert alert.count() == 1 and page.url == address

    visit(page, app_server, OPENED)
    upload(page, "huge.txt", b"word " * 10_000_000, tmp_path)  # the browser itself refuses: nothing is sent
    expect(page.get_by_text("File must be 30.0MB or smaller")).to_be_visible(timeout=PATIENCE)

    visit(page, app_server, OPENED)
    line = "<script>window.hit=1</script><img src=x onerror='window.hit=1'> **bold** `code` $x$ مرحبا 你好 👩‍👩‍👧\n"
    read(page, "<img src=x onerror=window.hit=1>.txt", (line * 30).encode())
    expect(painted(page)).to_contain_text("<script>window.hit=1</script>", timeout=PATIENCE)
    expect(painted(page)).to_contain_text("مرحبا 你好 👩‍👩‍👧")
    settle(page)
    painted(page).locator(".t", has_text="你").first.hover()
    expect(page.locator(".read .card .said")).to_contain_text("⟨E4⟩ · ⟨BD⟩ · ⟨A0⟩")
    for title, drawn in (("Groups", "groups holds"), ("Links", "times chance")):
        page.get_by_role("tab", name=title).first.click()
        expect(page.get_by_role("heading", name=drawn)).to_be_visible(timeout=PATIENCE)
        settle(page)
        painted(page).locator(".t").first.hover()
    assert page.evaluate("window.hit") is None
    assert page.locator("[data-testid=stMain] img[src=x]").count() == 0
