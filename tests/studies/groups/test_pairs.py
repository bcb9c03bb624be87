"""The streaming pair collector against the materialised T x T table, in float64, with windows, blocks and filters."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st

from analysis.errors import BadSetting
from analysis.groups.controls import random_tokens
from analysis.groups.gates import top_groups
from analysis.groups.pairs import PAIR_COLUMNS, PairCollector
from analysis.studies.groups.pairs import described
from analysis.studies.text.text import quoted

LAYERS, HEADS, TOKENS, GROUPS, WINDOW = 2, 3, 50, 4, 20  # windows of 20, 20 and 10 tokens
SHARES = ["pairs_share", "mass_share", "lift"]


def world(seed=0, top=1):
    """Attention [L][windows] of [H, t, t] float64, arms and affinities of a text of 50 tokens."""
    draw = torch.Generator().manual_seed(seed)
    attention = []
    for _ in range(LAYERS):
        windows = []
        for start in range(0, TOKENS, WINDOW):
            size = min(WINDOW, TOKENS - start)
            scores = torch.randn(HEADS, size, size, dtype=torch.float64, generator=draw) * 2
            causal = torch.ones(size, size, dtype=torch.bool).tril()
            windows.append(torch.softmax(scores.masked_fill(~causal, -math.inf), -1))
        attention.append(windows)
    g = [torch.softmax(torch.randn(TOKENS, GROUPS, dtype=torch.float64, generator=draw) * 2, -1) for _ in range(LAYERS)]
    random = [random_tokens(TOKENS, GROUPS, top, seed=layer) for layer in range(LAYERS)]
    return attention, {"this router": [top_groups(x, top) for x in g], "random tokens": random}, g


def feed(collector, attention, block=7):
    for layer, windows in enumerate(attention):
        for index, window in enumerate(windows):
            for rows in torch.randperm(window.shape[1], generator=torch.Generator().manual_seed(index)).split(block):
                width = int(rows.max()) + 1
                collector.add(layer, rows, window[:, rows, :width], start=index * WINDOW)
    return collector


def oracle(attention, arms, g, *, min_distance, content=None, layer=None, group=None, head=None, skip_first=1):
    """Every far pair of every layer as a table: the columns of Pair, `mass` and whether each arm has it in a group; and
    those of them that are listed, in their order."""
    rows, first = [], next(iter(arms.values()))
    for layer_index, windows in enumerate(attention):
        for index, window in enumerate(windows):
            p = window if head is None else window[head : head + 1]
            for i in range(window.shape[1]):
                for j in range(skip_first, i - min_distance + 1):
                    q, k = index * WINDOW + i, index * WINDOW + j
                    both = first[layer_index][q] & first[layer_index][k]
                    best = int(torch.where(both, g[layer_index][q] * g[layer_index][k], -1).argmax())
                    listed = bool(both.any() if group is None else both[group]) and layer in (None, layer_index)
                    row = {
                        "layer": layer_index,
                        "head": int(p[:, i, j].argmax()) if head is None else head,
                        "group": best if group is None else group,
                        "query_position": q,
                        "key_position": k,
                        "distance": i - j,
                        "affinity": float(g[layer_index][q] @ g[layer_index][k]),
                        "attention": float(p[:, i, j].max()),
                        "uniform": 1 / (i + 1),
                        "mass": float(p[:, i, j].mean()),
                        "listed": listed and (content is None or bool(content[q] and content[k])),
                    }
                    rows.append(
                        row | {name: bool((m[layer_index][q] & m[layer_index][k]).any()) for name, m in arms.items()}
                    )
    far = pd.DataFrame(rows)
    order = ["attention", "layer", "query_position", "key_position"]
    return far, far[far["listed"]].sort_values(order, ascending=[False, True, True, True])


def shares(far, arm):
    pairs, mass = far[arm].mean(), far[far[arm]]["mass"].sum() / far["mass"].sum()
    return [pairs, mass, mass / pairs if pairs else math.nan]


@settings(max_examples=25)
@given(
    seed=st.integers(0, 50),
    membership=st.integers(1, 3),
    min_distance=st.integers(1, 12),
    top=st.integers(1, 40),
    block=st.integers(1, 25),
    skip_first=st.integers(0, 3),
    with_content=st.booleans(),
    layer=st.sampled_from([None, 0, 1]),
    group=st.sampled_from([None, 2]),
    head=st.sampled_from([None, 0, 2]),
)
def test_equals_the_materialised_table(seed, membership, top, block, with_content, **options):
    attention, arms, g = world(seed, membership)
    content = torch.rand(TOKENS, generator=torch.Generator().manual_seed(seed)) < 0.6 if with_content else None
    collector = feed(PairCollector(arms, g, top=top, content=content, **options), attention, block)
    far, listed = oracle(attention, arms, g, content=content, **options)
    table = collector.table()
    assert list(table.columns) == PAIR_COLUMNS and len(table) == min(top, len(listed))
    assert np.allclose(table.to_numpy(float), listed[PAIR_COLUMNS].head(top).to_numpy(float), atol=1e-12)
    for _, row in collector.controls().iterrows():
        expected = shares(far[far["layer"] == row["layer"]], row["arm"])
        assert np.allclose(row[SHARES].tolist(), expected, atol=1e-9)
    for _, row in collector.by_distance().iterrows():
        in_bin = far[far["distance"].between(row["low"], row["high"] - 1)]
        if len(in_bin):
            assert np.allclose(row[SHARES].tolist(), shares(in_bin, row["arm"]), atol=1e-9, equal_nan=True)
    assert collector.numbers() == {"far_pairs": len(far), "same_group_pairs": far["this router"].sum()}


def test_one_window_and_bins_by_hand():
    # Groups a b a b; query 3 reads keys 0..3 with .4 .3 .2 .1; far from distance 1 on; key 0 is the sink and left out.
    members = [torch.tensor([[1, 0], [0, 1], [1, 0], [0, 1]]).bool()]
    g = [torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.1, 0.9]])]
    collector = PairCollector({"this router": members}, g, min_distance=1)
    collector.add(0, torch.tensor([3]), torch.tensor([[[0.4, 0.3, 0.2, 0.1]]]))
    ((*numbers, affinity, attention, uniform),) = collector.table().to_numpy().tolist()
    assert numbers == [0, 0, 1, 3, 1, 2], "layer, head, group, query, key, distance"
    assert [affinity, attention, uniform] == pytest.approx([0.1 * 0.2 + 0.9 * 0.8, 0.3, 0.25])
    assert collector.controls()[SHARES].iloc[0].tolist() == pytest.approx([0.5, 0.6, 1.2])
    assert collector.by_distance()[["low", "high", "mass_share"]].values.tolist() == [[1, 2, 0], [2, 4, 1]]
    members, g = [torch.ones(400, 1).bool()], [torch.ones(400, 1)]
    collector = PairCollector({"all": members}, g, min_distance=100, top=3)
    collector.add(0, torch.arange(400), torch.full((1, 400, 400), 1 / 400).tril())
    bins = collector.by_distance()
    assert bins[["low", "high"]].values.tolist() == [[100, 128], [128, 256], [256, 512]]
    assert bins[SHARES].values == pytest.approx(1.0)
    # Equal attention: ordered by query, then key; the sink at 0 is skipped.
    assert collector.table()[["query_position", "key_position"]].values.tolist() == [[101, 1], [102, 1], [102, 2]]


def test_texts_without_far_pairs_half_precision_and_groups_that_are_not_there():
    attention, arms, g = world()
    collector = feed(PairCollector(arms, g, min_distance=60), attention)
    assert collector.table().empty and list(collector.table().columns) == PAIR_COLUMNS
    assert collector.by_distance().empty and collector.numbers()["far_pairs"] == 0
    assert collector.controls()[SHARES].isna().all(axis=None)
    exact = feed(PairCollector(arms, g, min_distance=2, top=0), attention)
    rough = feed(PairCollector(arms, g, min_distance=2, top=0), [[w.bfloat16() for w in layer] for layer in attention])
    assert exact.table().empty
    assert np.allclose(exact.controls()["mass_share"], rough.controls()["mass_share"], atol=5e-3)
    with pytest.raises(BadSetting, match="0 to 3"):
        PairCollector(arms, g, group=4)


def test_kinds_and_names_of_pairs_by_hand():
    """C ra le . C ra le Le 林(two bytes) .: the second C reads ra (what followed the first C) and the first C; le reads
    the first ra, another piece of its word; the last le of another case the same; . reads a byte."""
    pieces = ["C", "ra", "le", ".", " C", "ra", "le", " Le", "⟨E6⟩", "⟨9E⟩"]
    word = ["Crale"] * 3 + ["."] + ["Crale"] * 3 + ["Le", "林", "林"]
    words, ids = pd.DataFrame({"piece": pieces, "word": word}), np.array([5, 6, 7, 8, 5, 6, 7, 9, 10, 11])
    listed = pd.DataFrame({"query_position": [4, 4, 6, 6, 7, 9], "key_position": [1, 0, 5, 1, 3, 3]})
    table = described(listed, words, ids)
    assert table["kind"].tolist() == ["induction", "copy", "same word", "same word", "same group", "same group"]
    assert table["query"].tolist() == ["Crale", "Crale", "Crale", "Crale", "Le", "林"]
    assert table["query_named"].tolist() == ["C in C|ra|le"] * 2 + ["le in C|ra|le"] * 2 + ["Le", "林"]
    assert table["key_named"].tolist()[:2] == ["ra in C|ra|le", "C in C|ra|le"]
    assert quoted(table["key"][0]) == "“Crale”", "whole words in sentences"
    assert described(listed[:0], words, ids).columns.tolist() == table.columns.tolist(), "of no pairs too"
