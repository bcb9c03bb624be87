"""The verbs about heads on a tiny model, held against tables that are fully made."""

import json

import numpy as np
import pytest

from analysis.errors import BadSetting
from analysis.statistics import CORE, MORE
from analysis.studies.heads import head as heads_study
from analysis.studies.heads.head import head, statistics
from tests.made.evaluating import reader, stock_tables


@pytest.fixture(scope="module")
def ask(home, context):
    return reader(context, home)


@pytest.fixture(scope="module")
def tables(home):
    return stock_tables(home)


def test_statistics_of_a_text(ask, tables):
    answer = ask(statistics, window=5, long_text="first")
    rows, table = answer.numbers["rows"], answer.tables["heads"]
    assert list(rows[0]) == ["layer", "head", *CORE] and len(rows) == 12 == len(table)
    assert list(table.columns) == ["layer", "head", *CORE, *MORE, "label"]
    first, real = tables[..., 0].mean(-1), table["first_token_mass"].to_numpy()
    np.testing.assert_allclose(real, first.ravel(), atol=1e-5)
    np.testing.assert_allclose(table["max_prob"], tables.max(-1).mean(-1).ravel(), atol=1e-5)
    assert list(answer.tables["distance"].columns) == ["layer", "head", "low", "high", "mass", "uniform"]
    assert list(answer.tables["chance"].columns) == ["layer", *CORE, *MORE] and len(answer.tables["tokens"]) == 64
    assert "heads leave more than half" in answer.numbers["sentence"] and not answer.numbers["without_first"]
    assert "picks out most from 5 or more tokens back" in answer.numbers["sentence"]
    assert 0 < answer.numbers["induction_queries"] < 1
    json.dumps(answer.numbers)
    apart = ask(statistics, window=5, long_text="first", without_first=True)
    assert "renormalised" in apart.numbers["notes"][-1]
    np.testing.assert_allclose(apart.tables["heads"]["first_token_mass"], real, atol=1e-5)
    assert (apart.tables["heads"]["entropy"] - table["entropy"]).abs().max() > 1e-3


def test_windows_of_a_long_text_are_read_one_by_one(ask):
    answer = ask(statistics)
    assert len(answer.tables["tokens"]) > 64 and "windows" in " ".join(answer.numbers["notes"])
    both = [ask(statistics, long_text=kind).tables["heads"]["entropy"] for kind in ("first", "windows")]
    assert not np.allclose(*both)


def test_a_head_s_pattern_row_and_tile(ask, tables):
    layer, which = 1, 2
    truth = tables[layer, which]
    answer = ask(head, layer=layer, head=which, query=40, rows=[30, 41], columns=[3, 20], top=5, window=5)
    assert answer.numbers["cell"] == 1 and "own row" in answer.numbers["pooling"] and answer.numbers["length"] == 64
    np.testing.assert_allclose(answer.arrays["pattern"], truth, atol=1e-5)
    np.testing.assert_allclose(answer.arrays["tile"], truth[30:41, 3:20], atol=1e-5)
    np.testing.assert_allclose(answer.arrays["row"], truth[40], atol=1e-5)
    keys = answer.tables["keys"]
    assert list(keys.columns) == ["key", "position", "piece", "word", "distance", "attention"] and len(keys) == 5
    assert keys["attention"].tolist() == sorted(keys["attention"], reverse=True)
    assert set(keys["key"]) == set(np.argsort(-truth[40])[:5]) and (keys["distance"] == 40 - keys["key"]).all()
    queries, summary = answer.tables["queries"], answer.numbers["summary"]
    np.testing.assert_allclose(queries["max_prob"], truth.max(-1), atol=1e-5)
    assert list(queries.columns) == ["position", *CORE, *MORE] and len(queries) == 64
    whole = ask(statistics, window=5, long_text="first").tables["heads"].query("layer == 1 and head == 2").iloc[0]
    assert summary == pytest.approx({name: whole[name] for name in (*CORE, *MORE)}, abs=1e-5)
    assert answer.tables["distance"]["mass"].sum() == pytest.approx(1, abs=1e-5)
    assert answer.numbers["chance"]["first_token_mass"] == pytest.approx(np.mean(1 / np.arange(1, 65)), abs=1e-5)
    json.dumps(answer.numbers)


def test_a_head_opens_with_its_strongest_far_read(ask, tables):
    answer = ask(head, layer=1, head=2, window=5, top=1)
    query, truth = answer.numbers["query"], tables[1, 2]
    words = answer.tables["tokens"]
    whole = [at for at in range(7, 64) if words["content"][at] and words["piece"][at].strip() == words["word"][at]]
    assert query == max(whole, key=lambda at: truth[at, 1 : at - 4].max())
    assert ask(head, layer=1, head=2, window=5, query=63).numbers["query"] == 63


@pytest.mark.parametrize("block", [1 << 20, 64 * 5])
def test_a_pooled_pattern_holds_all_mass(ask, tables, monkeypatch, block):
    monkeypatch.setattr(heads_study, "SIDE", 10)
    monkeypatch.setattr(heads_study, "BLOCK_VALUES", block)
    answer = ask(head, layer=0, head=1, rows=[54, 64], columns=[0, 10])
    pattern, cell = answer.arrays["pattern"], answer.numbers["cell"]
    assert cell == 7 and pattern.shape == (10, 10) and "7 queries and 7 keys" in answer.numbers["pooling"]
    np.testing.assert_allclose(pattern.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(pattern[2, 1], tables[0, 1][14:21, 7:14].sum(1).mean(), atol=1e-5)
    np.testing.assert_allclose(pattern[9, 0], tables[0, 1][63:, :7].sum(1).mean(), atol=1e-5)
    assert answer.arrays["tile"].shape == (10, 10)


def test_the_first_token_can_be_left_out(ask, tables):
    answer = ask(head, layer=2, head=0, without_first=True)
    truth = tables[2, 0].copy()
    truth[:, 0] = 0
    truth[1:] /= truth[1:].sum(1, keepdims=True)
    np.testing.assert_allclose(answer.arrays["pattern"], truth, atol=1e-4)
    assert answer.tables["keys"]["key"].min() > 0 and "left out" in answer.numbers["notes"][-1]
    alone = ask(head, layer=2, head=0, without_first=True, query=0)
    assert alone.tables["keys"].empty and "nothing to read" in alone.numbers["sentence"]


def test_another_window_counts_its_own_tokens(ask):
    answer = ask(head, part=1, query=3)
    assert answer.numbers["offset"] == 64 and answer.tables["keys"]["position"].between(64, 67).all()
    assert answer.tables["queries"]["position"].iloc[0] == 64
    with pytest.raises(BadSetting, match="windows, counted from 0"):
        ask(head, part=99)


def test_by_torch_a_head_is_the_same(ask, monkeypatch):
    asked = {"layer": 1, "head": 3, "window": 5}
    compiled = ask(head, **asked)
    monkeypatch.setattr("analysis.statistics.heads.accelerated", lambda at: True)
    plain = ask(head, **asked)
    assert plain.numbers["summary"] == pytest.approx(compiled.numbers["summary"], abs=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"layer": 3},
        {"head": -1},
        {"query": 64},
        {"top": 0},
        {"rows": [0, 5]},
        {"rows": [5, 5], "columns": [0, 5]},
        {"rows": [0, 300], "columns": [0, 5]},
        {"mass": 2.0},
    ],
)
def test_what_is_no_head_is_refused(ask, wrong):
    with pytest.raises(BadSetting):
        ask(head, **wrong)
