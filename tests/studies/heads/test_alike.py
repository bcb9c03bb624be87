"""Heads that read alike: the likeness by hand, and the verb on a tiny model beside rows of the verb `head`."""

import json

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting
from analysis.statistics.alike import likeness
from analysis.studies.heads.alike import alike, spread
from analysis.studies.heads.head import head
from tests.made.evaluating import reader


@pytest.fixture(scope="module")
def ask(home, context):
    return reader(context, home)


def test_likeness_is_one_for_equals_none_without_a_common_key_and_by_hand_between():
    """Of (1, 0) and (1/2, 1/2) the mean is (3/4, 1/4) with 0.8113 bits, and their own bits are 0 and 1."""
    one = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    other = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    assert likeness(one, other).tolist() == pytest.approx([1.0, 0.0, 1 - 0.8113 + 0.5], abs=1e-4)
    assert torch.equal(likeness(one, other), likeness(other, one))


def test_queries_are_spread_over_the_window():
    assert spread(1, 2048)[0] == (1, 9) and spread(1, 2048)[-1] == (2040, 2048) and len(spread(1, 2048)) == 16
    assert spread(1, 4) == [(1, 4)] and spread(1, 17) == [(1, 9), (9, 17)]


def test_all_windows_are_their_stretches_together(ask):
    """Windows count by their stretches of queries, of which a short one has fewer."""
    every = ask(alike, layer=1, head=0, top=100, part=None)
    answer = every.tables["heads"].set_index(["layer", "head"])["likeness"]
    shares, sizes = [], []
    for part in range(99):
        try:
            one = ask(alike, layer=1, head=0, top=100, part=part)
        except BadSetting:
            break
        shares.append(one.tables["heads"].set_index(["layer", "head"])["likeness"][answer.index])
        sizes.append(one.numbers["queries"] / 8)
    assert len(shares) > 1 and every.numbers["queries"] == 8 * sum(sizes)
    assert answer.to_numpy() == pytest.approx(np.average(shares, axis=0, weights=sizes), abs=1e-6)
    assert every.numbers["scope"] == f"this text (all {len(shares)} windows)"


@pytest.mark.parametrize("without_first", [False, True])
def test_the_likeness_of_two_heads_is_that_of_their_rows(ask, without_first):
    answer = ask(alike, layer=1, head=0, top=100, without_first=without_first)
    table, numbers = answer.tables["heads"], answer.numbers
    assert table["likeness"].is_monotonic_decreasing and table["likeness"].between(0, 1).all()
    assert (1, 0) not in set(zip(table["layer"], table["head"], strict=True))
    worst, values = table.iloc[-1], []
    for start, stop in spread(1 + without_first, 64):
        for query in range(start, stop):
            cells = (1, 0), (int(worst["layer"]), int(worst["head"]))
            rows = [
                ask(head, layer=layer, head=place, query=query, without_first=without_first).arrays["row"]
                for layer, place in cells
            ]
            one, other = (torch.from_numpy(row.astype(np.float64))[None] for row in rows)
            values.append(float(likeness(one, other)))
    assert worst["likeness"] == pytest.approx(np.mean(values), abs=1e-4)
    assert 0 < numbers["even"] < 1 and numbers["queries"] == len(values)
    assert len(numbers["notes"]) == 1 + without_first, "the text is cut into windows"
    best = table.iloc[0]
    assert (
        f"Head {best['head']:.0f} of layer {best['layer']:.0f} reads most like head 0 of layer 1"
        in (numbers["sentence"])
    )
    json.dumps(numbers, allow_nan=False)


def test_what_cannot_be_is_one_sentence(ask):
    for given, said in (({"top": 0}, "0 were asked for"), ({"head": 99}, "99 was asked for")):
        with pytest.raises(BadSetting, match=said):
            ask(alike, **given)
