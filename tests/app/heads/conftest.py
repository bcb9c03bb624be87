"""The hand-made answers that every test of Attention heads is given."""

import pytest

from tests.made.heads import ANSWERS
from tests.made.results import STUDIES


@pytest.fixture
def client(client, monkeypatch):
    for verb, answer in ANSWERS.items():
        monkeypatch.setitem(STUDIES, verb, answer)
    return client
