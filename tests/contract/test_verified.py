"""docs/models.md says what comes out today."""

import pytest

from tests.contract import verified
from tests.made.tiny import CONFIGS, VERIFIED

ALL = [*CONFIGS, *VERIFIED]


def cells(family: str) -> list[str]:
    """The row of a family on the page, without its name."""
    (row,) = [line for line in verified.PLACE.read_text().splitlines() if line.startswith(f"| {family} |")]
    return [cell.strip() for cell in row.strip("|").split("|")][1:]


def test_the_page_is_written_from_its_rows_and_refusals():
    rows = {family: cells(family) for family in ALL}
    assert verified.PLACE.read_text() == verified.written(rows)
    assert all(len(row) == len(verified.COLUMNS) and not {"differ", "leaks"} & set(row) for row in rows.values())


@pytest.mark.parametrize("family", VERIFIED)
def test_a_family_beside_the_matrix_is_what_the_page_says(family):
    assert verified.row(family, verified.CHEAP) == cells(family)[: len(verified.CHEAP)]


@pytest.mark.slow
@pytest.mark.parametrize("family", ALL)
def test_a_family_is_all_that_the_page_says(family):
    assert verified.row(family) == cells(family)
