"""How the tests use the real app in a browser. Waiting is for a state of the page, never for a time."""

import re
from collections.abc import Callable, Sequence

from playwright.sync_api import expect

from app.selection.menu import PAGES
from tests.browser import script

PATIENCE = 120_000  # milliseconds; the first request of a machine loads the model
RUN = re.compile("^(play_arrow )?(Run:|Compute )")  # begins the name of a button that a page waits for
NO_RUN = 3000  # milliseconds after which a choice has made no script run
BEGUN = script("begun")
QUIET = script("quiet")
SHOWN = script("shown")
CLICKED = script("clicked")


def settle(page) -> None:
    """Until the script has ended and nothing is spinning; no part of the page has failed by then.

    The page watches itself, because the driver looks every 0.1 to 1 s only. On a slow machine a page predicts a high
    price and asks before it computes: then its Run button is pressed.
    """
    page.evaluate(QUIET, PATIENCE)
    run = page.get_by_test_id("stMain").get_by_role("button", name=RUN)
    if run.count():
        redrawn(page, run.first.click)
    assert page.get_by_text("This part of the page failed").count() == 0, page.url


def redrawn(page, act: Callable[[], bool | None]) -> bool:
    """Until the script that `act` asked for has run, if it moved anything: right after a click it has not yet begun."""
    page.evaluate(BEGUN, NO_RUN)
    if act() is False:
        return False
    page.evaluate("() => window.begun")
    settle(page)
    return True


def answered(page, answer) -> None:
    """Until an answer stands there, also on a machine so slow that the page asks first."""
    run = page.get_by_test_id("stMain").get_by_role("button", name=RUN)
    expect(answer.or_(run).first).to_be_visible(timeout=PATIENCE)
    settle(page)
    expect(answer.first).to_be_visible(timeout=PATIENCE)


def unfold(page, box) -> None:
    """Open a select box where it stands: a list closes when the page scrolls, and a click scrolls to its target."""
    box.scroll_into_view_if_needed()
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    box.click()


def moved(
    page, thumb, key: str, *wanted: tuple[str, str], charts: Sequence[str] = (), patience: int = PATIENCE
) -> float:
    """Press a key on a control; seconds until a frame of the page shows, for each (selector, words), the words there,
    and each of the `charts`, by its key, drawn otherwise than before, measured by the page's own clock. Playwright's
    Error after `patience` milliseconds."""
    thumb.focus()
    page.evaluate(SHOWN, [wanted, list(charts), patience])
    thumb.press(key)
    seconds = page.evaluate("() => window.shown")
    settle(page)
    return seconds


def click_when_shown(page, button: str, where: str, words: str) -> None:
    """From now on the page itself clicks a button in the first frame that shows, at a selector, these words: by the
    time the driver sees them a job may be over."""
    page.evaluate(CLICKED, [where, words, button])


def chosen(page, key: str, name: str) -> None:
    """Choose an entry of the menu in the corner of a chart or a table."""
    page.locator(f".st-key-{key}_menu .menu > button").click(timeout=PATIENCE)
    page.locator(f".st-key-{key}_menu").get_by_role("menuitem", name=name).click()


def choose(page, option: str) -> None:
    """One option of a segmented control."""
    button = page.get_by_role("button", name=option, exact=True)
    page.get_by_role("radio", name=option, exact=True).or_(button).first.click()


def plot(page, key: str) -> dict[str, float]:
    """Where a chart can be clicked."""
    area = page.locator(f".st-key-{key} .nsewdrag").first
    area.scroll_into_view_if_needed()
    return area.bounding_box()


def visit(page, address: str, words: str) -> None:
    """Open a page that paints a text, until it stands still with these words."""
    page.goto(address)
    answered(page, page.get_by_text(words))
    expect(page.locator(".painted .text .t, .contexts mark").first).to_be_visible(timeout=PATIENCE)


def go(page, name: str) -> None:
    """To another page, by its name there: through its door in the menu, then its tab, where they are not open."""
    wanted = PAGES[name]
    for link, open in (
        (page.get_by_test_id("stSidebarNav").get_by_role("link", name=wanted.door.title, exact=True), "aria-current"),
        (page.locator(".st-key-door").get_by_role("tab", name=wanted.title, exact=True), "aria-selected"),
    ):
        link.first.wait_for()
        if link.first.get_attribute(open) not in ("page", "true"):
            redrawn(page, link.first.click)


def upload(page, name: str, data: bytes, folder=None) -> None:
    """Through the top bar; a large file goes from disk (`folder`), which is faster than through the driver."""
    page.locator(".st-key-topbar").get_by_role("button", name="Text:").click()
    file = {"name": name, "mimeType": "text/plain", "buffer": data}
    if folder is not None:
        (folder / name).write_bytes(data)
        file = folder / name
    page.get_by_test_id("stFileUploader").locator("input[type=file]").set_input_files(file)


def read(page, name: str, data: bytes) -> None:
    """A text of one's own that is taken: uploaded, and what the page says of it computed."""
    upload(page, name, data)
    expect(page.get_by_role("button", name=f"Text: {name.partition('.')[0]}")).to_be_visible(timeout=PATIENCE)
    settle(page)


def painted(page):
    """The painted text."""
    return page.locator(".painted .text")
