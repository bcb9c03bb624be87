"""What every token reads and who reads it: three rows by hand, and the verb beside rows of the verb `head`."""

import json

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting
from analysis.statistics.both_ways import BothWays
from analysis.studies.heads.head import head
from analysis.studies.heads.tokens import head_tokens
from tests.made.evaluating import reader


@pytest.fixture(scope="module")
def ask(home, context):
    return reader(context, home)


def test_the_strongest_both_ways_by_hand():
    """Token 1 gives 0.9 to token 0; token 2 gives 0.5 to token 1, 0.3 to itself, 0.2 to token 0."""
    answer = BothWays(3, 2)
    answer.add(torch.tensor([[1.0, 0.0], [0.9, 0.1]]), 0)
    answer.add(torch.tensor([[0.2, 0.5, 0.3]]), 2)
    made = answer.arrays()
    assert made["keys"].tolist() == [[0, 1], [0, 1], [1, 2]]
    np.testing.assert_allclose(made["given"], [[1.0, 0.0], [0.9, 0.1], [0.5, 0.3]])
    np.testing.assert_allclose(made["received"], [[0.9, 0.2], [0.5, 0.0], [0.0, 0.0]])
    assert made["readers"][0].tolist() == [1, 2] and made["readers"][1, 0] == 2


@pytest.mark.parametrize("without_first", [False, True])
def test_every_row_and_column_of_a_head_is_found(ask, without_first):
    given = {"layer": 1, "head": 0, "part": 1, "without_first": without_first}
    answer = ask(head_tokens, top=3, **given)
    offset, length = answer.numbers["offset"], answer.numbers["length"]
    rows = np.stack([ask(head, query=at, **given).arrays["row"] for at in range(length)])
    for at in (0, 1, 7, length - 1):
        best = np.sort(rows[at])[::-1][:3]
        np.testing.assert_allclose(answer.arrays["given"][at], best, atol=1e-6)
        later = np.zeros(3)
        kept = np.sort(rows[at + 1 :, at])[::-1][:3]
        later[: len(kept)] = kept
        np.testing.assert_allclose(answer.arrays["received"][at], later, atol=1e-6)
        np.testing.assert_allclose(rows[at, answer.arrays["keys"][at, 0]], best[0], atol=1e-6)
    table = answer.tables["strongest"]
    assert table["position"].tolist() == list(range(offset, offset + length)) and table["reader"].iloc[-1] == -1
    assert len(answer.numbers["notes"]) == 1 + without_first
    json.dumps(answer.numbers, allow_nan=False)
    with pytest.raises(BadSetting, match="0 were asked for"):
        ask(head_tokens, top=0)
