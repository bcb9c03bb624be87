"""Hostile input in Chromium, apart from other tests: it starts a browser of its own, beside which the one of the
fixture `page` cannot run."""

import pytest

from tests.stress import in_tabs
from tests.stress.test_stress import all_hold


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(900)  # seconds, beside whatever else runs
def test_hostile_input_in_a_browser_in_small():
    all_hold("chromium", chromium=len(in_tabs.IN_BROWSER))
