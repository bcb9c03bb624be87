"""Hostile input in a real browser: whether it arrived, what the page shows then, what it asks of the network, and
whether a script of somebody ran."""

import contextlib
import random
import shutil
from collections.abc import Iterator

from analysis.errors import AnalysisError
from tests.stress.deal import deal
from tests.stress.pages import FAILED
from tests.stress.rows import Row
from tests.stress.scene import hold
from tests.stress.ways import WAYS, settle

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking"]
PATIENCE = 180_000  # milliseconds for one step


@contextlib.contextmanager
def launched() -> Iterator:
    """A headless chromium. AnalysisError without one."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise AnalysisError("Playwright is not installed: pip install -r requirements-dev.txt.") from None
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        raise AnalysisError("There is no chromium on this machine: install it (Debian: apt install chromium).")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def tried(address: str, count: int, seed: int = 0) -> list[Row]:
    """`count` inputs on the app that answers at `address` (host:port), each in a fresh tab; one row per way in.
    AnalysisError without a browser."""
    dice = random.Random(seed)
    with launched() as browser:
        return deal("chromium", WAYS, count, lambda way: attempt(browser, address, way, dice))


def attempt(browser, address: str, way, dice: random.Random) -> None:
    """One input in a tab of its own; Broken when it did not arrive, or did what it must not."""
    tab = browser.new_page()
    tab.set_default_timeout(PATIENCE)
    alerts, outside, refused = [], [], []
    tab.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
    tab.on("request", lambda request: outside.append(request.url) if _leaves(request.url, address) else None)
    tab.on("console", lambda said: refused.append(said.text) if "Content Security Policy" in said.text else None)
    try:
        way(tab, f"http://{address}", dice)
        settle(tab)
        hold(not alerts, f"a script of the input said {alerts[:1]}")
        hold(not refused, f"only the security policy kept a script of the input from running: {refused[:1]}")
        hold(not outside, f"it asked {outside[:1]}")
        sound(tab)
    finally:
        tab.close()


def sound(tab) -> None:
    """Hold that a page shows its title, no exception and no traceback, and that no script of the input ran in it."""
    hold(not any(frame.evaluate("window.pwned") for frame in tab.frames), "a script of the input ran")
    hold(tab.get_by_test_id("stException").count() == 0, "an exception box")
    shown = tab.locator("body").inner_text()
    for words in ("Traceback", FAILED):
        hold(words not in shown, words)
    hold(tab.locator("h1").count() >= 1, "the page has no title any more")


def _leaves(url: str, address: str) -> bool:
    kind, _, rest = url.partition("://")
    return kind in ("http", "https", "ws", "wss") and rest.split("/")[0] != address
