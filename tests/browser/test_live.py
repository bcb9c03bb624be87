"""What pointer, keys and sliders do to charts and painted texts, in a real browser with the real model: tokens hovered
and jumped to, sliders within their limits."""

import re
import statistics

import pytest
from playwright.sync_api import expect
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.browser import script
from tests.made.browsing import PATIENCE, answered, painted, settle, visit

pytestmark = pytest.mark.browser
HOVERED = 0.05  # seconds from the pointer on a token to what it reads and who reads it
STORED, PASS = 1.5, 5.0  # seconds to a redrawn answer and to a new number: 0.35 and 1 on two quiet cores
ANSWER = script("answer")
ROWS = "[aria-label='Methods and their numbers'] tr"


@pytest.mark.slow
@pytest.mark.alone
def test_the_pointer_on_a_token_shows_both_ways_at_once(app_server, page):
    visit(page, f"{app_server}/attention-heads?head=3.6&query=1900", "How far back, head 3.6")
    text = painted(page).first
    text.scroll_into_view_if_needed()
    expect(text.locator(".t.lock")).to_be_in_viewport()
    page.mouse.move(0, 0)
    drawn = []
    for token in range(1890, 1911):
        span = text.locator(f".t[data-i='{token}']")
        if not span.is_visible():  # a line break
            continue
        text.evaluate(ANSWER)
        span.hover()
        answer = page.evaluate("() => window.answer")
        assert answer["token"] == token and "reads" in answer["tip"], answer
        assert answer["keys"] and max(answer["keys"]) <= token, "it reads what stands before it"
        assert all(reader >= token for reader in answer["readers"]), "who reads it comes later"
        drawn.append(answer["painted"])
    assert len(drawn) >= 10 and statistics.median(drawn) <= HOVERED
    page.mouse.move(0, 0)
    expect(text.locator(".key, .reader")).to_have_count(0)


@pytest.mark.slow
@pytest.mark.alone
def test_sliders_over_stored_numbers_redraw_text_and_chart_within_their_limit(app_server, page):
    """Streamlit drops the blocks of a drawing that was not sent yet and keeps its references, which then have no place
    and stop the page for good: .streamlit/config.toml turns references off."""
    references = []

    def look(frame) -> None:
        message = ForwardMsg.FromString(frame)
        if message.HasField("ref_hash"):
            references.append(list(message.metadata.delta_path))

    page.on("websocket", lambda socket: socket.on("framereceived", look))
    page.goto(f"{app_server}/routing?layer=3&head=4&route_tab=token")
    thumb = page.get_by_role("slider", name="Buckets that each query visits")
    expect(painted(page).locator(".t.p").first).to_be_attached(timeout=PATIENCE)
    settle(page)
    before = float(thumb.input_value())
    for _ in range(8):  # faster than the page is sent
        thumb.press("ArrowRight")
    settle(page)
    assert float(thumb.input_value()) > before and not references
    expect(painted(page).locator(".t.p").first).to_be_attached()


@pytest.mark.slow
def test_the_worst_token_is_jumped_to_and_a_click_in_the_text_marks_another(app_server, page):
    page.goto(f"{app_server}/quality-vs-speed?quality=streaming_llm~window-8&quality_numbers=yes")
    worst = page.get_by_role("region", name="The tokens that lose most; choose one to mark it").locator("tbody tr")
    answered(page, worst)
    expect(worst).to_have_count(20)
    worst.nth(1).click()
    place = int(worst.nth(1).locator("td").first.inner_text().replace(",", ""))
    expect(page).to_have_url(re.compile(f"quality_token={place}(&|$)"))
    marked = painted(page).locator(".t.lock")
    expect(marked).to_have_attribute("data-i", str(place))
    inside, token = painted(page).bounding_box(), marked.bounding_box()
    assert inside["y"] <= token["y"] <= inside["y"] + inside["height"]
    settle(page)
    scrolled = painted(page).evaluate("box => box.scrollTop")
    painted(page).locator(f".t[data-i='{place + 1}']").click()
    expect(page).to_have_url(re.compile(f"quality_token={place + 1}(&|$)"))
    settle(page)
    assert painted(page).evaluate("box => box.scrollTop") == scrolled
    page.goto(page.url)
    expect(marked).to_have_attribute("data-i", str(place + 1), timeout=PATIENCE)
    assert abs(painted(page).evaluate("box => box.scrollTop") - scrolled) < 300
