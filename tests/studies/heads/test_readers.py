"""The verb `readers` on a tiny model: a column of the attention, beside what the verb `head` finds row by row."""

import json

import numpy as np
import pytest

from analysis.errors import BadSetting
from analysis.studies.heads.head import head
from analysis.studies.heads.readers import readers
from tests.made.evaluating import reader


@pytest.fixture(scope="module")
def ask(home, context):
    return reader(context, home)


def test_the_strongest_reader_of_a_token_is_the_one_that_rows_show(ask):
    answer = ask(readers, token=70, min_distance=4)  # in the second window of 64 tokens
    table, words = answer.tables["readers"], answer.tables["tokens"]
    last = int((words["window"] == words["window"].iloc[70]).to_numpy().nonzero()[0][-1])
    first = int((words["window"] == words["window"].iloc[70]).to_numpy().nonzero()[0][0])
    assert answer.numbers["later"] == last - 73 and table["attention"].is_monotonic_decreasing
    one = table.iloc[0]
    rows = [
        ask(head, layer=int(one["layer"]), head=int(one["head"]), part=int(words["window"].iloc[70]), query=at - first)
        for at in range(74, last + 1)
    ]
    column = np.array([row.arrays["row"][70 - first] for row in rows])
    assert one["position"] == 74 + column.argmax() and one["distance"] == one["position"] - 70
    assert one["attention"] == pytest.approx(column.max(), abs=1e-6)
    assert one["mean"] == pytest.approx(column.mean(), abs=1e-6)
    assert answer.numbers["chance"] == pytest.approx(np.mean([1 / (at - first + 1) for at in range(74, last + 1)]))
    assert f"Head {one['head']} of layer {one['layer']} reads" in answer.numbers["sentence"]
    json.dumps(answer.numbers, allow_nan=False)


def test_it_is_bounded_and_a_last_token_has_no_reader(ask):
    assert len(ask(readers, token=3, top=2).tables["readers"]) == 2
    none = ask(readers, token=63)
    assert none.tables["readers"].empty and none.numbers["later"] == 0 and none.numbers["chance"] is None
    assert "No later token" in none.numbers["sentence"]


@pytest.mark.parametrize("given", [{"token": 10**6}, {"token": -1}, {"top": 0}, {"min_distance": 0}])
def test_what_cannot_be_is_one_sentence(given, ask):
    with pytest.raises(BadSetting, match="were asked for"):
        ask(readers, **given)
