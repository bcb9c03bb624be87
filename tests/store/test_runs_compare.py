"""Two runs beside each other: configuration, numbers, and the rows of their tables matched by what names them."""

import pandas as pd
import pytest

from analysis.declaration.undeclared import Undeclared
from analysis.runs import Result, RunStore, compare


@pytest.fixture
def pair(tmp_path):
    """Two runs of one verb: another router, other values, one row that only the second has."""
    store = RunStore(tmp_path)
    for router, shift, count in (("a", 0.0, 4), ("b", 0.5, 5)):
        heads = pd.DataFrame({"layer": [i // 2 for i in range(count)], "head": [i % 2 for i in range(count)]})
        heads["entropy"], heads["rank"] = [i + shift for i in range(count)], [i % 3 for i in range(count)]
        numbers = {
            "share": 0.25 + shift,
            "deep": {"n": 3, "word": "x"},
            "rows": [{"at": 1, "loss": 1.5 + shift}],
            "notes": ["a"],
            "protocol": {"seed": 1},
        }
        ask = {"model": "demo", "router": router, "settings": {"window": 8}}
        about = {"tokens": 4, "router": router, "versions": {"torch": "2.13"}}
        store.put(Undeclared("heads", ask), Result(numbers, {"heads": heads}), about, 1.0)
    yield [
        store.find(Undeclared("heads", {"model": "demo", "router": name, "settings": {"window": 8}})) for name in "ab"
    ]


def test_configuration_names_only_what_differs_and_once(pair):
    assert compare.configuration(*pair) == [("router", "a", "b")]
    assert compare.configuration(pair[0], pair[0]) == []


def test_numbers_are_the_single_ones_of_both(pair):
    assert compare.numbers(*pair) == [("share", 0.25, 0.75), ("deep.n", 3, 3), ("rows.0.at", 1, 1)] + [
        ("rows.0.loss", 1.5, 2.0)
    ]


def test_tables_are_matched_by_the_fewest_columns_that_name_a_row(pair):
    assert compare.tables(pair[0]) == ["heads", "rows"]
    first, second = (compare.columns(run, "heads") for run in pair)
    assert compare.measured(first) == ["entropy", "layer", "head", "rank"]
    rows = compare.beside(first, second, "entropy")
    assert rows.keys == ["layer", "head"] and rows.labels == [(0, 0), (0, 1), (1, 0), (1, 1)] and rows.only == 1
    assert [b - a for a, b in zip(rows.first, rows.second, strict=True)] == [0.5] * 4
    assert compare.columns(pair[0], "rows") == {"at": [1], "loss": [1.5]}


def test_the_columns_that_most_rows_share_name_them_wherever_they_stand():
    tables = [
        {
            "group": [0, 1, 0, 1],
            "tokens": [start, start + 1, start + 2, start + 3],
            "purity": [0.1, 0.2, 0.3, 0.4],
            "layer": [0, 0, 1, 1],
        }
        for start in (5, 6)
    ]
    rows = compare.beside(*tables, "purity")
    assert set(rows.keys) in ({"tokens"}, {"group", "layer"}) and rows.only in (0, 2)
    tables[1]["tokens"] = [90, 91, 92, 93]
    rows = compare.beside(*tables, "purity")
    assert rows.keys == ["group", "layer"] and rows.only == 0 and rows.first == rows.second


def test_rows_without_a_name_are_matched_in_order():
    rows = compare.beside({"loss": [1.0, 2.0]}, {"loss": [1.5, 2.5, 3.5]}, "loss")
    assert (rows.keys, rows.first, rows.second, rows.only) == ([], [1.0, 2.0], [1.5, 2.5], 1)
    repeated = {"word": ["a", "a"], "loss": [1.0, None]}
    assert compare.beside(repeated, repeated, "loss").keys == []
