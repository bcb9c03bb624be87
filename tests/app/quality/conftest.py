"""The pages of this room read texts of up to 2,048 tokens."""

import pytest

from tests.made import quality, results


@pytest.fixture
def client(client, monkeypatch):
    monkeypatch.setattr(results, "CONTEXT", 2048)
    return client


@pytest.fixture
def page(client):
    """`page(**link)`: Quality vs speed."""
    return quality.opened
