"""A tab of Chromium without a network, for files that are opened from the disk."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from analysis.commands.text import Report
from analysis.corpus import sample_texts
from analysis.studies.start.report import report
from tests.made.asking import study_context
from tests.made.browsing import PATIENCE


@pytest.fixture(scope="session")
def reported(tmp_path_factory) -> Path:
    """The report of the beginning of a story."""
    folder = tmp_path_factory.mktemp("report")
    context = study_context(folder / "state")
    text = context.add_text("story", sample_texts()["story"][1][:1800])
    report(Report(text=text, output=str(folder / "page.html")), context=context)
    return folder / "page.html"


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
