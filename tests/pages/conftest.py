"""A tab of Chromium without a network, for files that are opened from the disk."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.made.browsing import PATIENCE


@pytest.fixture
def alone(browser):
    """Opens a file in a tab without a network; fails on an error of the page and on what its policy refuses."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, offline=True)
    tab, wrong, schemes = context.new_page(), [], []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    tab.on("request", lambda request: schemes.append(request.url.split(":")[0]))

    def opened(path: Path):
        tab.goto(path.as_uri())
        expect(tab.locator("#screen")).to_be_visible(timeout=PATIENCE)
        return tab

    yield opened
    context.close()
    assert wrong == [] and set(schemes) <= {"file", "blob"}
