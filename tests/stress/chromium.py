"""A headless Chromium."""

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

from analysis.errors import AnalysisError

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking"]
PATIENCE = 180_000  # milliseconds for one step


@contextlib.contextmanager
def launched() -> Iterator[Any]:
    """The browser of Playwright. AnalysisError without one."""
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
