"""A program killed at every write: here every few of them, with `--all` each one, as `stress` does."""

import pytest

from tests.stress import ends, stores


@pytest.mark.parametrize("name", stores.STORE)
def test_a_store_that_ends_at_a_write_loses_nothing(name, tmp_path):
    row = ends.row(name, stores.STORE[name], tmp_path)
    assert row.tried and row.held == row.tried, row
