"""Methods at one budget: the search by hand, budgets that are met, and what has none."""

from itertools import pairwise

import pytest

from analysis.commands.quality import EqualBudget, Evaluate
from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.studies.quality.equal_budget import FIELDS, NEAR, nearest

LENGTH, MEAN = 48, 49 / 2
LOOSE = {"quest": {"dense_layers": 0, "page": 2}, "magicpig": {"dense_every": 128, "window": 2, "n_sink": 0, "bits": 4}}
LOOSE |= {"bucket_routing": {"window": 1, "n_sink": 0}, "sparq": {"local": 1}, "routing_transformer": {"n_sink": 0}}


@pytest.fixture(scope="module")
def settle(ask):
    """`settle(*methods, **arguments)` -> the answer about methods, by name, whose other settings are LOOSE."""

    def run(*names, **arguments):
        methods = [{"name": name, "settings": LOOSE.get(name, {})} for name in names]
        return ask(EqualBudget, methods=methods, window=LENGTH, **arguments)

    return run


@pytest.mark.parametrize("target", [1.0, 7.3, 77.0, 950.0, 1000.0])
def test_the_nearest_value_of_a_growing_function(target):
    calls = []

    def read(value):
        calls.append(value)
        return value**0.5 * 1000**0.5

    value = nearest(read, 1, 1000, target)
    assert len(set(calls)) < 16
    best = min(range(1, 1001), key=lambda value: abs(read(value) - target))
    assert value == best or abs(read(value) - target) <= NEAR * target


def test_a_step_its_ends_and_a_window_by_hand(settle):
    assert nearest(lambda value: 10.0 if value < 5 else 20.0, 1, 9, 12.0) == 1, "of equals the smallest that was tried"
    assert nearest(lambda value: 10.0 if value < 5 else 20.0, 1, 9, 19.0) in range(5, 10)
    assert nearest(float, 3, 9, 1.0) == 3 and nearest(float, 3, 9, 99.0) == 9 and nearest(float, 4, 4, 9.0) == 4
    assert [nearest(float, 1, 9, x) for x in (4.4, 4.6)] == [4, 5]
    # Window and 4 sinks, n keys in all: the sum of min(i + 1, n) over 48 queries is 48 n - n (n - 1) / 2.
    (row,) = settle("streaming_llm", attended=10.0).numbers["rows"]
    attended = {n: (48 * n - n * (n - 1) / 2) / 48 for n in range(5, 20)}
    best = min(attended, key=lambda n: abs(attended[n] - 10))
    assert (row["value"] + 4, row["attended"]) == (best, pytest.approx(attended[best]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["streaming_llm", "longformer", "oracle_topk", "sparq", "quest", "magicpig", "csa"])
def test_a_budget_is_met_as_nearly_as_whole_numbers_can(name, settle):
    result = settle(name, attended=12.0)
    (row,), (spec,) = result.numbers["rows"], result.numbers["methods"]
    assert row["field"] == FIELDS[name] and row["reached"] and abs(row["attended"] - 12) < 0.6
    assert row["reads_causal"] == pytest.approx(row["attended"] / MEAN)
    assert (spec["policy"]["total"] if name == "csa" else spec["settings"][row["field"]]) == row["value"]


def test_a_larger_budget_reads_more_as_evaluate_says(settle, ask):
    result = settle("oracle_topk", "quest", "routing_transformer", share=0.5)
    assert result.numbers["target"] == MEAN / 2 and result.numbers["share"] == 0.5
    again = ask(Evaluate, methods=result.numbers["methods"], window=LENGTH, long_text="first")
    for row, settled in zip(again.numbers["rows"], result.numbers["rows"], strict=True):
        assert (row["label"], row["attended"]) == (settled["label"], pytest.approx(settled["attended"]))
        assert row["kv_read"] == pytest.approx(settled["kv_read"])
    rows = [settle("oracle_topk", share=share).numbers["rows"][0] for share in (0.1, 0.5, 1.0)]
    assert all(a["attended"] < b["attended"] for a, b in pairwise(rows)) and rows[-1]["reads_causal"] == 1


def test_a_budget_that_cannot_be_reached_is_noted(ask):
    result = ask(EqualBudget, methods=[{"name": "quest"}, {"name": "streaming_llm"}], attended=2.0, window=LENGTH)
    quest, streaming = result.numbers["rows"]
    assert not quest["reached"] and quest["value"] == 1 and quest["attended"] > 2
    assert not streaming["reached"] and streaming["attended"] > 4, "four sinks"
    assert sum("cannot reach 2.0 keys" in note for note in result.numbers["notes"]) == 2


def test_every_budget_has_a_method_and_some_methods_have_none(settle):
    saving = {name for name, method in METHODS.items() if method.saves == "reads"}
    assert set(FIELDS) <= set(METHODS)
    assert saving - set(FIELDS) == {"dense", "focal", "focal_learned", "performer", "oracle_topp"}, "no count of keys"
    with pytest.raises(BadSetting, match="performer has no setting that counts its keys"):
        settle("performer")
    for arguments in ({"attended": 0.5}, {"attended": 25.0}, {"share": 2.0}):
        with pytest.raises(BadSetting, match="a query reads 1 to 24.5 on average"):
            settle("oracle_topk", **arguments)
