"""In a real browser: each control of a page is moved, and the address restores all of them for a stranger, who then
clicks through the tabs. In-process every page walks (tests/app/selection/test_links.py); here one does every time, and
in `--all` those that are too long for in-process.

A control is whatever the page draws to choose with; nothing here names one, so a new control is tried by itself.
"""

import contextlib

import pytest
from playwright.sync_api import TimeoutError, expect

from tests.browser import script
from tests.made.browsing import PATIENCE, redrawn, settle, unfold

pytestmark = pytest.mark.browser

LONG = ("quality-vs-speed", "attention-heads")
GONE_OUT = 1000  # milliseconds until the last move has reached the app: a slider waits 200, then it goes out
MOST = 40  # moves on one part of a page
STATES = script("states")


def opened(page, address: str):
    """A page once it has nothing more to draw."""
    page.goto(address, timeout=PATIENCE)
    expect(page.get_by_test_id("stSidebarNavLink").first).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_test_id("stMain").locator("h1").first).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("button", name="Copy link")).to_be_visible(timeout=PATIENCE)
    at_rest(page)


def controls(page) -> list[str]:
    """The keys of the controls in the page's main part, in their order."""
    return page.evaluate(script("controls"))


def moved(page, key: str, wait: bool) -> bool:
    """Whether a control was given another value, drawn already with `wait`; one that went meanwhile is none."""
    if key not in controls(page):
        return False
    try:
        return redrawn(page, lambda: move(page, key)) if wait else move(page, key)
    except TimeoutError:
        if key in controls(page):
            raise
        return False


def all_moved(page) -> int:
    """How many controls of the page as it stands were given another value. First those that unfold a list, which closes
    when the page is drawn anew; the others at once one after the other, as by a quick reader: the app draws the page
    for several of them together."""
    keys = controls(page)[:MOST]
    lists = [key for key in keys if page.locator(f".st-key-{key} [role=combobox]").count()]
    count = sum(moved(page, key, wait=True) for key in lists)
    count += sum(moved(page, key, wait=False) for key in keys if key not in lists)
    page.wait_for_timeout(GONE_OUT)
    settle(page)
    return count


def move(page, key: str) -> bool:
    """Give one control another value, as a reader would; whether there was something to move."""
    one = page.get_by_test_id("stMain").locator(f".st-key-{key}").first
    slider, box = one.get_by_role("slider"), one.locator("input[type=checkbox]")
    number, combo = one.get_by_test_id("stNumberInput"), one.get_by_role("combobox")
    others = one.locator("button[aria-checked=false], button[aria-pressed=false], [role=radio][aria-checked=false]")
    if slider.count():
        before = slider.first.input_value()
        slider.first.press("ArrowRight")
        if slider.first.input_value() == before:
            slider.first.press("ArrowLeft")
    elif number.count():
        field = number.locator("input")
        if field.is_disabled():
            return False
        before = field.input_value()
        field.press("ArrowUp")
        if field.input_value() == before:
            field.press("ArrowDown")
        field.press("Enter")
    elif combo.count() and not one.get_by_test_id("stMultiSelect").count():
        if combo.first.is_disabled():
            return False
        unfold(page, combo.first)
        options = page.get_by_role("option")
        count = options.count()
        if count < 2:
            page.keyboard.press("Escape")
            return False
        options.nth(count - 1).click()
    elif box.count():
        one.locator("label").first.click()
    elif others.count():
        others.last.click()
    elif one.get_by_test_id("stTextInput").count() and not one.locator("input").input_value():
        one.locator("input").fill("k8")
        one.locator("input").press("Enter")
    else:
        return False
    return True


def at_rest(page) -> tuple[dict, str]:
    """Every control and the address, once two looks agree: both follow the last redraw, not at the same moment."""
    before, now = None, (page.evaluate(STATES), page.url)
    while now != before:
        page.wait_for_timeout(300)
        settle(page)
        before, now = now, (page.evaluate(STATES), page.url)
    return now


def turn(page, tab: str) -> None:
    """Open a tab, if it is not open."""
    button = page.get_by_test_id("stMain").get_by_role("tab", name=tab, exact=True)
    if button.get_attribute("aria-selected") != "true":
        redrawn(page, button.click)


@pytest.fixture(scope="module")
def stranger(browser):
    """Somebody else, who opens only what the visitor hands on."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    context.set_default_timeout(PATIENCE)
    yield context
    context.close()


def compared(page, fresh) -> int:
    """How many controls stand here; the stranger sees the same ones with the same values, at the same address."""
    mine, address = at_rest(page)
    with contextlib.suppress(TimeoutError):  # what is not there is told below
        fresh.wait_for_function(f"mine => Object.keys(mine).every(key => key in ({STATES})())", arg=mine)
    theirs, again = at_rest(fresh)
    assert {key: (mine[key], theirs.get(key)) for key in mine if mine[key] != theirs.get(key)} == {}, address
    assert again == address
    return len(mine)


@pytest.mark.parametrize("path", ["papers-vs-measured", *(pytest.param(path, marks=pytest.mark.slow) for path in LONG)])
def test_the_address_restores_every_control_for_a_stranger(app_server, page, stranger, path):
    opened(page, f"{app_server}/{path}")
    tabs, tried = page.get_by_test_id("stMain").get_by_role("tab").all_inner_texts(), {}
    for tab in tabs or [""]:
        if tab:
            turn(page, tab)
        tried[tab] = all_moved(page)
    with stranger.new_page() as fresh:
        opened(fresh, at_rest(page)[1])
        for tab in reversed(list(tried)):  # the last one is open, and the address names it
            if tab:
                turn(page, tab)
                turn(fresh, tab)
            count = compared(page, fresh)
            print(f"{tab or path}: {tried[tab]} moved, {count} compared")
            assert count > 0
