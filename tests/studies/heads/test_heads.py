"""The verbs about heads on a tiny model, held against tables that are fully made; which heads `ablate` tries and what
they lose."""

import json

import numpy as np
import pytest
import torch

from analysis.commands.heads import Ablate, Alike, Head, HeadTokens, Readers, Statistics
from analysis.errors import BadSetting
from analysis.statistics import CORE, MORE
from analysis.statistics.alike import likeness
from analysis.statistics.both_ways import BothWays
from analysis.studies.heads import head as heads_study
from analysis.studies.heads.alike import spread
from tests.made.evaluating import stock_tables


@pytest.fixture(scope="module")
def tables(home):
    return stock_tables(home)


def without_first(table):
    """Probabilities [T, T] with the first token left out and renormalised."""
    table = table.copy()
    table[:, 0] = 0
    table[1:] /= table[1:].sum(1, keepdims=True)
    return table


def test_statistics_of_a_text(ask, tables):
    answer = ask(Statistics, window=5, long_text="first")
    rows, table = answer.numbers["rows"], answer.tables["heads"]
    assert list(rows[0]) == ["layer", "head", *CORE] and len(rows) == 12 == len(table)
    first = table["first_token_mass"].to_numpy()
    np.testing.assert_allclose(first, tables[..., 0].mean(-1).ravel(), atol=1e-5)
    np.testing.assert_allclose(table["max_prob"], tables.max(-1).mean(-1).ravel(), atol=1e-5)
    assert list(answer.tables["distance"].columns) == ["layer", "head", "low", "high", "mass", "uniform"]
    assert list(answer.tables["chance"].columns) == ["layer", *CORE, *MORE] and len(answer.tables["tokens"]) == 64
    json.dumps(answer.numbers)
    apart = ask(Statistics, window=5, long_text="first", without_first=True)
    assert len(apart.numbers["notes"]) == len(answer.numbers["notes"]) + 1
    np.testing.assert_allclose(apart.tables["heads"]["first_token_mass"], first, atol=1e-5)
    assert (apart.tables["heads"]["entropy"] - table["entropy"]).abs().max() > 1e-3
    full = ask(Statistics)
    assert len(full.tables["tokens"]) > 64 and not np.allclose(full.tables["heads"]["entropy"], table["entropy"])


def test_a_head_s_pattern_row_and_tile(ask, tables):
    truth = tables[1, 2]
    answer = ask(Head, layer=1, head=2, query=40, rows=[30, 41], columns=[3, 20], top=5, window=5)
    assert answer.numbers["cell"] == 1 and answer.numbers["length"] == 64
    np.testing.assert_allclose(answer.arrays["pattern"], truth, atol=1e-5)
    np.testing.assert_allclose(answer.arrays["tile"], truth[30:41, 3:20], atol=1e-5)
    np.testing.assert_allclose(answer.arrays["row"], truth[40], atol=1e-5)
    keys = answer.tables["keys"]
    assert list(keys.columns) == ["key", "position", "piece", "word", "distance", "attention"] and len(keys) == 5
    assert keys["attention"].is_monotonic_decreasing and set(keys["key"]) == set(np.argsort(-truth[40])[:5])
    assert (keys["distance"] == 40 - keys["key"]).all()
    queries, summary = answer.tables["queries"], answer.numbers["summary"]
    np.testing.assert_allclose(queries["max_prob"], truth.max(-1), atol=1e-5)
    assert list(queries.columns) == ["position", *CORE, *MORE] and len(queries) == 64
    row = ask(Statistics, window=5, long_text="first").tables["heads"].query("layer == 1 and head == 2").iloc[0]
    assert summary == pytest.approx({name: row[name] for name in (*CORE, *MORE)}, abs=1e-5)
    assert answer.tables["distance"]["mass"].sum() == pytest.approx(1, abs=1e-5)
    assert answer.numbers["chance"]["first_token_mass"] == pytest.approx(np.mean(1 / np.arange(1, 65)), abs=1e-5)
    json.dumps(answer.numbers)


def test_a_head_opens_with_its_strongest_far_read(ask, tables):
    answer, truth = ask(Head, layer=1, head=2, window=5, top=1), tables[1, 2]
    words = answer.tables["tokens"]
    single = words["content"] & (words["piece"].str.strip() == words["word"])
    best = max((place for place in range(7, 64) if single[place]), key=lambda q: truth[q, 1 : q - 4].max())
    assert answer.numbers["query"] == best


@pytest.mark.parametrize("block", [1 << 20, 64 * 5])
def test_a_pooled_pattern_holds_all_mass(ask, tables, monkeypatch, block):
    monkeypatch.setattr(heads_study, "SIDE", 10)
    monkeypatch.setattr(heads_study, "BLOCK_VALUES", block)
    answer = ask(Head, layer=0, head=1, rows=[54, 64], columns=[0, 10])
    pattern, cell = answer.arrays["pattern"], answer.numbers["cell"]
    assert cell == 7 and pattern.shape == (10, 10) and answer.arrays["tile"].shape == (10, 10)
    np.testing.assert_allclose(pattern.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(pattern[2, 1], tables[0, 1][14:21, 7:14].sum(1).mean(), atol=1e-5)
    np.testing.assert_allclose(pattern[9, 0], tables[0, 1][63:, :7].sum(1).mean(), atol=1e-5)


def test_the_first_token_can_be_left_out_and_another_window_counts_its_own(ask, tables):
    answer = ask(Head, layer=2, head=0, without_first=True)
    np.testing.assert_allclose(answer.arrays["pattern"], without_first(tables[2, 0]), atol=1e-4)
    assert answer.tables["keys"]["key"].min() > 0
    alone = ask(Head, layer=2, head=0, without_first=True, query=0)
    assert alone.tables["keys"].empty and "nothing to read" in alone.numbers["sentence"]
    answer = ask(Head, part=1, query=3)
    assert answer.numbers["offset"] == 64 and answer.tables["keys"]["position"].between(64, 67).all()
    assert answer.tables["queries"]["position"].iloc[0] == 64


def test_by_torch_a_head_is_the_same(ask, monkeypatch):
    compiled = ask(Head, layer=1, head=3, window=5)
    monkeypatch.setattr("analysis.statistics.heads.accelerated", lambda device: True)
    plain = ask(Head, layer=1, head=3, window=5)
    assert plain.numbers["summary"] == pytest.approx(compiled.numbers["summary"], abs=1e-5)


def test_likeness_is_one_for_equals_none_without_a_common_key_and_by_hand_between():
    """Of (1, 0) and (1/2, 1/2) the mean is (3/4, 1/4) with 0.8113 bits, and their own bits are 0 and 1."""
    first = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    two = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    assert likeness(first, two).tolist() == pytest.approx([1.0, 0.0, 1 - 0.8113 + 0.5], abs=1e-4)
    assert torch.equal(likeness(first, two), likeness(two, first))
    assert spread(1, 2048)[0] == (1, 9) and spread(1, 2048)[-1] == (2040, 2048) and len(spread(1, 2048)) == 16
    assert spread(1, 4) == [(1, 4)] and spread(1, 17) == [(1, 9), (9, 17)]


@pytest.mark.parametrize("leave_out", [False, True])
def test_the_likeness_of_two_heads_is_that_of_their_rows(ask, tables, leave_out):
    answer = ask(Alike, layer=1, head=0, top=100, without_first=leave_out)
    table = answer.tables["heads"]
    assert table["likeness"].is_monotonic_decreasing and table["likeness"].between(0, 1).all()
    assert len(table) == 11 and (1, 0) not in set(zip(table["layer"], table["head"], strict=True))
    worst = table.iloc[-1]
    queries = [query for a, b in spread(1 + leave_out, 64) for query in range(a, b)]
    cells = [tables[1, 0], tables[int(worst["layer"]), int(worst["head"])]]
    first, two = (torch.from_numpy((without_first(cell) if leave_out else cell)[queries]) for cell in cells)
    assert worst["likeness"] == pytest.approx(float(likeness(first, two).mean()), abs=1e-4)
    assert 0 < answer.numbers["even"] < 1 and answer.numbers["queries"] == len(queries)
    json.dumps(answer.numbers, allow_nan=False)


def test_all_windows_are_their_stretches_together(ask):
    """Windows count by their stretches of queries, of which a short one has fewer."""
    all_windows = ask(Alike, layer=1, head=0, top=100, part=None)
    answer = all_windows.tables["heads"].set_index(["layer", "head"])["likeness"]
    count = ask(Head).tables["tokens"]["window"].max() + 1
    parts = [ask(Alike, layer=1, head=0, top=100, part=part) for part in range(count)]
    shares = [part.tables["heads"].set_index(["layer", "head"])["likeness"][answer.index] for part in parts]
    sizes = [part.numbers["queries"] for part in parts]
    assert count > 1 and all_windows.numbers["queries"] == sum(sizes)
    assert answer.to_numpy() == pytest.approx(np.average(shares, axis=0, weights=sizes), abs=1e-6)


def test_the_strongest_reader_of_a_token_is_the_one_that_its_column_shows(ask, tables):
    answer = ask(Readers, token=20, min_distance=4)
    table, best = answer.tables["readers"], answer.tables["readers"].iloc[0]
    assert answer.numbers["later"] == 40 and table["attention"].is_monotonic_decreasing
    column = tables[int(best["layer"]), int(best["head"]), 24:, 20]
    assert best["position"] == 24 + column.argmax() and best["distance"] == best["position"] - 20
    assert best["attention"] == pytest.approx(column.max(), abs=1e-5)
    assert best["mean"] == pytest.approx(column.mean(), abs=1e-5)
    assert answer.numbers["chance"] == pytest.approx(np.mean([1 / (query + 1) for query in range(24, 64)]))
    json.dumps(answer.numbers, allow_nan=False)
    second = ask(Readers, token=70, top=2).tables["readers"]
    assert len(second) == 2 and second["position"].min() > 70, "of the second window"
    last = ask(Readers, token=63)
    assert last.tables["readers"].empty and last.numbers["later"] == 0 and last.numbers["chance"] is None


def test_the_strongest_both_ways_by_hand():
    """Token 1 gives 0.9 to token 0; token 2 gives 0.5 to token 1, 0.3 to itself, 0.2 to token 0."""
    both_ways = BothWays(3, 2)
    both_ways.add(torch.tensor([[1.0, 0.0], [0.9, 0.1]]), 0)
    both_ways.add(torch.tensor([[0.2, 0.5, 0.3]]), 2)
    arrays = both_ways.arrays()
    assert arrays["keys"].tolist() == [[0, 1], [0, 1], [1, 2]]
    np.testing.assert_allclose(arrays["given"], [[1.0, 0.0], [0.9, 0.1], [0.5, 0.3]])
    np.testing.assert_allclose(arrays["received"], [[0.9, 0.2], [0.5, 0.0], [0.0, 0.0]])
    assert arrays["readers"][0].tolist() == [1, 2] and arrays["readers"][1, 0] == 2


@pytest.mark.parametrize("leave_out", [False, True])
def test_every_row_and_column_of_a_head_is_found(ask, tables, leave_out):
    truth = without_first(tables[1, 0]) if leave_out else tables[1, 0]
    answer = ask(HeadTokens, layer=1, head=0, top=3, without_first=leave_out)
    assert answer.numbers["offset"] == 0 and answer.numbers["length"] == 64
    later = np.tril(truth, -1)
    np.testing.assert_allclose(answer.arrays["given"], -np.sort(-truth, 1)[:, :3], atol=1e-5)
    np.testing.assert_allclose(answer.arrays["received"], -np.sort(-later.T, 1)[:, :3], atol=1e-5)
    strongest = truth[np.arange(64), answer.arrays["keys"][:, 0]]
    np.testing.assert_allclose(strongest, answer.arrays["given"][:, 0], atol=1e-5)
    table = answer.tables["strongest"]
    assert table["position"].tolist() == list(range(64)) and table["reader"].iloc[-1] == -1
    json.dumps(answer.numbers, allow_nan=False)


@pytest.mark.parametrize(
    "command, arguments",
    [
        (Head, {"layer": 3}),
        (Head, {"head": -1}),
        (Head, {"query": 64}),
        (Head, {"top": 0}),
        (Head, {"rows": [0, 5]}),
        (Head, {"rows": [5, 5], "columns": [0, 5]}),
        (Head, {"rows": [0, 300], "columns": [0, 5]}),
        (Head, {"mass": 2.0}),
        (Head, {"part": 99}),
        (Alike, {"head": 99}),
        (Readers, {"token": 10**6}),
        (Readers, {"token": -1}),
        (Readers, {"min_distance": 0}),
        (HeadTokens, {"top": 0}),
    ],
)
def test_what_cannot_be_is_refused(ask, command, arguments):
    with pytest.raises(BadSetting):
        ask(command, **arguments)


def test_the_estimate_ranks_and_exact_passes_follow(ask):
    answer = ask(Ablate, exact=3)
    numbers, table, estimate = answer.numbers, answer.tables["heads"], answer.arrays["estimate"]
    best = sorted(np.ndindex(estimate.shape), key=lambda cell: -estimate[cell])[:3]
    assert [(row["layer"], row["head"]) for row in numbers["rows"]] == best
    assert answer.arrays["change"].shape == (3, 63) and len(table) == estimate.size
    assert table["loss_change"].notna().tolist() == [True] * 3 + [False] * (estimate.size - 3)
    for row, change in zip(numbers["rows"], answer.arrays["change"], strict=True):
        assert row["loss_change"] == pytest.approx(change.mean(), abs=1e-6) and row["units"] == 16
        assert row["low"] <= row["loss_change"] <= row["high"] and row["kl"] > 0
        assert row["worst"] == change.argmax() + 1 and row["worst_change"] == pytest.approx(change.max())
        assert row["estimate"] == pytest.approx(estimate[row["layer"], row["head"]])
    costliest = max(numbers["rows"], key=lambda row: row["loss_change"])
    assert costliest["without"] in numbers["sentence"] and -1 <= numbers["agreement"] <= 1
    json.dumps(numbers, allow_nan=False)


def test_all_windows_are_their_windows_together(ask):
    """Means over windows of 64 tokens and fewer count by the tokens that each predicts."""
    all_windows = ask(Ablate, heads="1.2", part=None)
    count = all_windows.tables["tokens"]["window"].max() + 1
    apart = [ask(Ablate, heads="1.2", part=part) for part in range(count)]
    (row,), rows = all_windows.numbers["rows"], [part.numbers["rows"][0] for part in apart]
    sizes = [part.arrays["change"].shape[1] for part in apart]
    for name in ("loss_change", "kl", "estimate"):
        mean = np.average([part[name] for part in rows], weights=sizes)
        assert row[name] == pytest.approx(mean, abs=1e-6), name
    change = all_windows.arrays["change"]
    assert count > 1 and np.isnan(change).sum() == count - 1
    joined = np.concatenate([part.arrays["change"][0] for part in apart])
    assert change[~np.isnan(change)] == pytest.approx(joined, abs=1e-6)
    worst = max(rows, key=lambda part: part["worst_change"])
    assert (row["worst"], row["worst_word"]) == (worst["worst"], worst["worst_word"])
    assert all_windows.numbers["scope"] == f"this text (all {count} windows)"
    assert apart[0].numbers["scope"] == f"this text (window 1 of {count})"


def test_heads_that_are_listed_and_all_of_them(ask):
    listed = ask(Ablate, heads="1.2,0.1,1.2", by="mean").numbers
    assert [row["without"] for row in listed["rows"]] == ["1.2", "0.1"] and listed["agreement"] is None
    all_heads = ask(Ablate, heads="all")
    assert len(all_heads.numbers["rows"]) == all_heads.arrays["estimate"].size


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"by": "noise"}, "'noise'"),
        ({"heads": "3-6"}, "'3-6' names no head"),
        ({"heads": "9.0"}, "Layers run from 0 to"),
        ({"heads": "0.99"}, "Heads run from 0 to"),
        ({"exact": 13}, "has 12 heads"),
        ({"part": 99}, "window 99 was asked for"),
    ],
)
def test_what_cannot_be_is_one_sentence(arguments, message, ask):
    with pytest.raises(BadSetting, match=message):
        ask(Ablate, **arguments)
