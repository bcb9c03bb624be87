"""The streaming pair collector against the materialised T x T table, in float64, with windows, blocks and filters."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st

from analysis.errors import BadSetting
from analysis.groups.controls import random_tokens
from analysis.groups.pairs import PAIR_COLUMNS, PairCollector
from analysis.studies.groups.pairs import described
from analysis.studies.text.text import quoted

LAYERS, HEADS, TOKENS, GROUPS, WINDOW = 2, 3, 50, 4, 20  # windows of 20, 20 and 10 tokens


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
    members = [torch.zeros(TOKENS, GROUPS, dtype=torch.bool).scatter_(1, x.topk(top, -1).indices, True) for x in g]
    random = [random_tokens(TOKENS, GROUPS, top, seed=layer) for layer in range(LAYERS)]
    return attention, {"this router": members, "random tokens": random}, g


def feed(collector, attention, block=7):
    for layer, windows in enumerate(attention):
        for index, window in enumerate(windows):
            for rows in torch.randperm(window.shape[1], generator=torch.Generator().manual_seed(index)).split(block):
                width = int(rows.max()) + 1
                collector.add(layer, rows, window[:, rows, :width], start=index * WINDOW)
    return collector


def oracle(attention, arms, g, *, min_distance, content=None, layer=None, group=None, head=None, skip_first=1):
    """Every far pair of every layer as one row; the arms' sums over them."""
    rows, far = [], []
    first = next(iter(arms.values()))
    for at, windows in enumerate(attention):
        for index, window in enumerate(windows):
            p = window if head is None else window[head : head + 1]
            for i in range(window.shape[1]):
                for j in range(skip_first, i - min_distance + 1):
                    q, k = index * WINDOW + i, index * WINDOW + j
                    shares = {name: bool((m[at][q] & m[at][k]).any()) for name, m in arms.items()}
                    far.append((at, i - j, float(p[:, i, j].mean()), shares))
                    both = first[at][q] & first[at][k]
                    if not both.any() or layer not in (None, at) or (group is not None and not both[group]):
                        continue
                    if content is not None and not (content[q] and content[k]):
                        continue
                    parts = torch.where(both, g[at][q] * g[at][k], -1)
                    rows.append(
                        {
                            "layer": at,
                            "head": int(p[:, i, j].argmax()) if head is None else head,
                            "group": int(parts.argmax()) if group is None else group,
                            "query_position": q,
                            "key_position": k,
                            "distance": i - j,
                            "affinity": float(g[at][q] @ g[at][k]),
                            "attention": float(p[:, i, j].max()),
                            "uniform": 1 / (i + 1),
                        }
                    )
    rows.sort(key=lambda r: (-r["attention"], r["layer"], r["query_position"], r["key_position"]))
    return rows, far


def shares(far, arm, layer=None, low=0, high=10**9):
    here = [f for f in far if layer in (None, f[0]) and low <= f[1] < high]
    pairs = sum(f[3][arm] for f in here) / len(here)
    mass = sum(f[2] for f in here if f[3][arm]) / sum(f[2] for f in here)
    return pairs, mass, mass / pairs if pairs else math.nan


@settings(max_examples=25)
@given(
    seed=st.integers(0, 50),
    membership=st.integers(1, 3),
    min_distance=st.integers(1, 12),
    top=st.integers(1, 40),
    block=st.integers(1, 25),
    skip_first=st.integers(0, 3),
    with_content=st.booleans(),
    filters=st.fixed_dictionaries(
        {
            "layer": st.sampled_from([None, 0, 1]),
            "group": st.sampled_from([None, 2]),
            "head": st.sampled_from([None, 0, 2]),
        }
    ),
)
def test_equals_the_materialised_table(seed, membership, min_distance, top, block, skip_first, with_content, filters):
    attention, arms, g = world(seed, membership)
    content = torch.rand(TOKENS, generator=torch.Generator().manual_seed(seed)) < 0.6 if with_content else None
    options = {"min_distance": min_distance, "content": content, "skip_first": skip_first, **filters}
    collector = feed(PairCollector(arms, g, top=top, **options), attention, block)
    rows, far = oracle(attention, arms, g, **options)

    table = collector.table()
    assert list(table.columns) == PAIR_COLUMNS and len(table) == min(top, len(rows))
    for name in PAIR_COLUMNS:
        assert np.allclose(table[name], [row[name] for row in rows[:top]], atol=1e-12), name

    for _, row in collector.controls().iterrows():
        expected = shares(far, row["arm"], layer=row["layer"])
        assert np.allclose([row["pairs_share"], row["mass_share"], row["lift"]], expected, atol=1e-9)
    bins = collector.by_distance()
    for _, row in bins.iterrows():
        if any(row["low"] <= f[1] < row["high"] for f in far):
            expected = shares(far, row["arm"], low=row["low"], high=row["high"])
            assert np.allclose(
                [row["pairs_share"], row["mass_share"], row["lift"]], expected, atol=1e-9, equal_nan=True
            )
    assert collector.numbers() == {
        "far_pairs": len(far),
        "same_group_pairs": sum(f[3]["this router"] for f in far),
    }


def test_one_window_by_hand():
    # Groups a b a b; query 3 reads keys 0..3 with .4 .3 .2 .1; far from distance 1 on; key 0 is the sink and left out.
    members = [torch.tensor([[1, 0], [0, 1], [1, 0], [0, 1]]).bool()]
    g = [torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.1, 0.9]])]
    collector = PairCollector({"this router": members}, g, min_distance=1)
    collector.add(0, torch.tensor([3]), torch.tensor([[[0.4, 0.3, 0.2, 0.1]]]))
    row = collector.table().iloc[0]
    assert len(collector.table()) == 1
    assert row[["layer", "head", "group", "query_position", "key_position", "distance"]].tolist() == [0, 0, 1, 3, 1, 2]
    assert row["affinity"] == pytest.approx(0.1 * 0.2 + 0.9 * 0.8)
    assert row["attention"] == pytest.approx(0.3) and row["uniform"] == 0.25
    controls = collector.controls().iloc[0]
    assert controls["pairs_share"] == 0.5 and controls["mass_share"] == pytest.approx(0.6)
    assert controls["lift"] == pytest.approx(1.2)
    assert collector.by_distance()[["low", "high", "mass_share"]].values.tolist() == [[1, 2, 0], [2, 4, 1]]


def test_bins_double_from_the_smallest_distance_on():
    members, g = [torch.ones(400, 1).bool()], [torch.ones(400, 1)]
    collector = PairCollector({"all": members}, g, min_distance=100, top=3)
    collector.add(0, torch.arange(400), torch.full((1, 400, 400), 1 / 400).tril())
    bins = collector.by_distance()
    assert bins[["low", "high"]].values.tolist() == [[100, 128], [128, 256], [256, 512]]
    assert bins[["pairs_share", "mass_share", "lift"]].values == pytest.approx(1.0)
    # Equal attention: ordered by query, then key; the sink at 0 is skipped.
    assert collector.table()[["query_position", "key_position"]].values.tolist() == [[101, 1], [102, 1], [102, 2]]


def test_a_text_without_far_pairs_gives_empty_tables_and_nan_shares():
    attention, arms, g = world()
    collector = feed(PairCollector(arms, g, min_distance=60), attention)
    assert collector.table().empty and list(collector.table().columns) == PAIR_COLUMNS
    assert collector.by_distance().empty and collector.numbers()["far_pairs"] == 0
    assert collector.controls()[["pairs_share", "mass_share", "lift"]].isna().all(axis=None)
    assert PairCollector(arms, g, top=0).table().empty


def test_half_precision_and_nothing_listed_when_top_is_0():
    attention, arms, g = world()
    exact = feed(PairCollector(arms, g, min_distance=2, top=0), attention)
    rough = feed(PairCollector(arms, g, min_distance=2, top=0), [[w.bfloat16() for w in layer] for layer in attention])
    assert exact.table().empty
    assert np.allclose(exact.controls()["mass_share"], rough.controls()["mass_share"], atol=5e-3)


def test_a_group_that_the_router_has_not_is_refused():
    _, arms, g = world()
    with pytest.raises(BadSetting, match="0 to 3"):
        PairCollector(arms, g, group=4)


def test_kinds_and_names_of_pairs_by_hand():
    """C ra le . C ra le Le 林(two bytes) .: the second C reads ra (what followed the first C) and the first C; le reads
    the first ra, another piece of its word; the last le of another case the same; . reads a byte."""
    pieces = ["C", "ra", "le", ".", " C", "ra", "le", " Le", "⟨E6⟩", "⟨9E⟩"]
    word = ["Crale"] * 3 + ["."] + ["Crale"] * 3 + ["Le", "林", "林"]
    words, ids = pd.DataFrame({"piece": pieces, "word": word}), np.array([5, 6, 7, 8, 5, 6, 7, 9, 10, 11])
    listed = pd.DataFrame({"query_position": [4, 4, 6, 6, 7, 9], "key_position": [1, 0, 5, 1, 3, 3]})
    found = described(listed, words, ids)
    assert found["kind"].tolist() == ["induction", "copy", "same word", "same word", "same group", "same group"]
    assert found["query"].tolist() == ["Crale", "Crale", "Crale", "Crale", "Le", "林"]
    assert found["query_named"].tolist() == ["C in C|ra|le"] * 2 + ["le in C|ra|le"] * 2 + ["Le", "林"]
    assert found["key_named"].tolist()[:2] == ["ra in C|ra|le", "C in C|ra|le"] and quoted("Le") == "'Le'"
    assert quoted(found["key_named"][0]) == "'ra' in 'C|ra|le'"
    assert described(listed[:0], words, ids).columns.tolist() == found.columns.tolist(), "of no pairs too"
