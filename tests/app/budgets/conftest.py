"""Two policies are stored where the app looks for them."""

import pytest

from tests.made.budgets import prepared


@pytest.fixture
def client(client, monkeypatch):
    return prepared(client, monkeypatch)
