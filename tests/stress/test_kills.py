"""A program killed at its writes: here at a few of them, with `--all` at each one, as `stress` does."""

import pytest

from tests.stress import kills

FEW, EACH = {"stores": 12, "fits": 16}, {"stores": 1, "fits": 1}


@pytest.mark.parametrize("what", kills.CASES)
@pytest.mark.parametrize("every", [FEW, pytest.param(EACH, marks=pytest.mark.slow)], ids=["few", "each"])
def test_whatever_is_killed_at_a_write_loses_nothing(what, every, tmp_path):
    rows = list(kills.tried(what, tmp_path, every[what]))
    assert len(rows) > 3 and all(row.tried for row in rows)
    assert not (wrong := [row for row in rows if row.held < row.tried]), wrong
    if every is EACH:
        assert sum(row.tried for row in rows) >= (200 if what == "stores" else 60)
