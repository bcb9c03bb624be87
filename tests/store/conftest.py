"""Two empty stores, as of two machines."""

import pytest

from analysis.runs import RunStore


@pytest.fixture
def source(tmp_path):
    return RunStore(tmp_path / "here")


@pytest.fixture
def target(tmp_path):
    return RunStore(tmp_path / "there")
