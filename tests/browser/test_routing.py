"""Routing in a real browser with the real model and its stored curves: the slider moved, a head clicked, one token's
buckets on the text, a text that is too short, and the link that brings it back."""

import re
import statistics

import pytest
from playwright.sync_api import expect
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from analysis.corpus import text_hash
from tests.made.browsing import PATIENCE, moved, painted, settle, upload

pytestmark = pytest.mark.browser
STORED = 3.0  # seconds from the key on the slider to the redrawn answer: 0.35 alone, here beside whatever else runs
SHORT = "A lamp burned on the rock, and nobody saw it."


@pytest.fixture(autouse=True)
def no_console_error(page):
    """Nothing may be written to the console as an error, but for a file that the frame asks for below the page."""
    said = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    yield
    assert not [text for text in said if "Failed to load resource" not in text], said


def routing(page, address: str, link: str = ""):
    page.goto(f"{address}/routing{link}")
    expect(page.get_by_role("heading", name="Can a router find what a token would read?")).to_be_visible(
        timeout=PATIENCE
    )
    expect(answer(page)).to_contain_text("Visiting", timeout=PATIENCE)
    settle(page)


def answer(page):
    return page.locator(".fs-lead").first


def thumb(page):
    return page.get_by_role("slider", name=re.compile("Buckets that each query visits"))


def slide(page, visited: float):
    """Move the slider up, one key at a time: a slider that is drawn anew just then loses a key."""
    for _ in range(20):
        if float(thumb(page).input_value()) >= visited:
            return
        thumb(page).press("ArrowRight")
        settle(page)


@pytest.mark.slow
@pytest.mark.alone
def test_it_opens_with_the_answer_and_a_chart_and_the_slider_is_live(app_server, page):
    routing(page, app_server)
    expect(page.locator(".st-key-routing_recall .js-plotly-plot")).to_be_visible(timeout=PATIENCE)
    expect(answer(page)).to_contain_text("Visiting 2 of 64 buckets (3.1%)")
    took = []
    for key, buckets in (("ArrowRight", "2.25"), ("ArrowRight", "2.5"), ("ArrowRight", "2.75"), ("ArrowRight", "3")):
        heading = ("[data-testid=stHeading]", f"Every router at {buckets} of 64")
        said = (".fs-lead", f"Visiting {buckets} of 64")
        took.append(moved(page, thumb(page), key, said, heading, charts=["routing_recall"]))
    print(f"seconds to the redrawn page: {', '.join(f'{seconds:.2f}' for seconds in took)}")
    assert statistics.median(took[1:]) <= STORED
    expect(page).to_have_url(re.compile(r"route_l=3(\.0)?\b"))
    page.get_by_role("tab", name="Gap closure").click()
    expect(page.locator(".st-key-routing_ratio_of_means .js-plotly-plot")).to_be_visible(timeout=PATIENCE)
    page.goto(page.url)
    expect(answer(page)).to_contain_text("Visiting 3 of 64", timeout=PATIENCE)
    expect(page.locator(".st-key-routing_ratio_of_means .js-plotly-plot")).to_be_visible(timeout=PATIENCE)


@pytest.mark.slow
def test_a_head_clicked_on_the_map_is_the_one_whose_token_is_painted(app_server, page):
    routing(page, app_server, "?route_tab=heads")
    area = page.locator(".st-key-routing_map .nsewdrag").first
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 4.5 / 8, box["y"] + box["height"] * 2.5 / 6)
    expect(page).to_have_url(re.compile("layer=3&head=4"), timeout=PATIENCE)
    settle(page)
    page.get_by_role("tab", name="One token").click()
    expect(page.get_by_text("of what head 4 of layer 3 reads there")).to_be_visible(timeout=PATIENCE)
    settle(page)
    expect(painted(page).locator(".t.lock")).to_have_count(1)  # the head's strongest far read: tests/studies/routing
    expect(painted(page).locator(".t.p").first).to_be_attached()
    painted(page).locator(".t[data-i='1900']").click()
    expect(page).to_have_url(re.compile("query=1900"), timeout=PATIENCE)
    expect(page.get_by_text("(token 1,900), GWR linear visits 2 of 64 buckets")).to_be_visible(timeout=PATIENCE)
    settle(page)
    expect(painted(page).locator(".t.lock")).to_have_attribute("data-i", "1900")
    before = painted(page).locator(".t.p.solid").count()
    slide(page, 3)
    expect(page.get_by_text("GWR linear visits 3 of 64 buckets")).to_be_visible(timeout=PATIENCE)
    assert painted(page).locator(".t.p.solid").count() >= before, "more buckets find no less"


@pytest.mark.slow
def test_a_slider_moved_faster_than_the_page_is_sent_never_refers_to_what_was_sent_before(app_server, page):
    """Streamlit drops the blocks of a drawing that was not sent yet and keeps its references, which then have no place
    and stop the page for good: .streamlit/config.toml turns references off."""
    referred = []

    def look(frame):
        message = ForwardMsg.FromString(frame)
        if message.HasField("ref_hash"):
            referred.append(list(message.metadata.delta_path))

    page.on("websocket", lambda socket: socket.on("framereceived", look))
    routing(page, app_server, "?route_tab=token&layer=3&head=4")
    expect(painted(page).locator(".t.p").first).to_be_attached()
    before = float(thumb(page).input_value())
    for _ in range(8):
        thumb(page).press("ArrowRight")
    settle(page)
    assert float(thumb(page).input_value()) > before
    expect(painted(page).locator(".t.p").first).to_be_attached()
    assert not referred


@pytest.mark.slow
def test_a_token_too_near_the_beginning_and_a_text_too_short_are_refused_in_a_sentence(app_server, page):
    routing(page, app_server, "?route_tab=token&query=40")
    expect(page.get_by_text("The text before token 40 has 41 tokens")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("it must be at least 65 tokens long")).to_be_visible()
    upload(page, "short.txt", SHORT.encode())
    expect(page).to_have_url(re.compile(text_hash(SHORT)), timeout=PATIENCE)
    settle(page)
    page.get_by_role("button", name="this text", exact=True).or_(
        page.get_by_role("radio", name="this text", exact=True)
    ).first.click()
    said = page.get_by_text(re.compile(r"has \d+ tokens and no query in it has a key far enough back"))
    expect(said.first).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_test_id("stException")).to_have_count(0)


@pytest.mark.slow
def test_the_chosen_text_is_the_test_and_a_link_that_cannot_be_is_one_sentence(app_server, page):
    routing(page, app_server, "?route_on=text&route_distance=256&layer=77")
    expect(page.get_by_text("are tried here at 256 with 0 left out").first).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".st-key-routing_selectivity .js-plotly-plot")).to_be_visible(timeout=PATIENCE)
    page.get_by_role("tab", name="Heads").click()
    expect(page.get_by_text("The link's layer “77” is not available here; it was dropped.")).to_be_visible(
        timeout=PATIENCE
    )
    expect(page.get_by_role("heading", name="What the paper printed: table 2")).to_be_visible()
