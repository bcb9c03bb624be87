"""A client for one test."""

import pytest

from tests.made.working import opened


@pytest.fixture
def fresh(tmp_path):
    """A client whose worker has not started."""
    yield from opened(tmp_path / "state")
