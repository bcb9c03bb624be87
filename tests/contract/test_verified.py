"""docs/models.md says what comes out today."""

import pytest
from transformers import CONFIG_MAPPING

from tests.contract import verified
from tests.made.families import BY_KIND

# Families whose attention can be replaced, and of which the page must say so.
AT_LEAST = 68
# Equal on one processor, a rounding apart on another, whose matrix products add in another order.
ROUNDED = {"bit for bit": "to 1e-5", "0": "below 1e-5"}


def but_for_rounding(cells: list[str]) -> list[str]:
    """What a row says on any processor."""
    return [ROUNDED.get(cell, cell) for cell in cells]


def page() -> dict[str, list[str]]:
    """The rows of the page: family -> its cells, or the sentence with which it is refused."""
    lines = verified.PLACE.read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {family: cells for family, *cells in cells if family != "family"}


def test_the_page_says_of_every_family_that_it_agrees_or_why_it_is_refused():
    rows = page()
    loaded = {family: cells for family, cells in rows.items() if len(cells) > 1}
    assert len(rows) >= 75 and len(loaded) >= AT_LEAST
    assert all(len(cells) == 1 + len(verified.COLUMNS) for cells in loaded.values())
    assert not {"differ", "leaks"} & {cell for cells in loaded.values() for cell in cells}
    refused = [cells[0] for cells in rows.values() if len(cells) == 1]
    assert all(sentence.endswith(".") and len(sentence) < 400 for sentence in refused)


@pytest.mark.parametrize("family", [*BY_KIND, "llama", "mistral", "smollm3"])
def test_a_family_is_what_the_page_says(family):
    written = page()[family][1 : 1 + len(verified.CHEAP)]
    assert but_for_rounding(verified.row(family, verified.CHEAP)) == but_for_rounding(written)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt2", "gemma2", "phi3", "mixtral", "gpt_oss", "deepseek_v3", "nemotron_h"])
def test_a_family_is_all_that_the_page_says(family):
    if family not in CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {family}")
    assert but_for_rounding(verified.row(family)) == but_for_rounding(page()[family][1:])
