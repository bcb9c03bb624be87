"""One token reads its groups, the window and the sinks: against the masked softmax, and what it reads and copies."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from analysis.kernels.decode import GroupMajor, Growing, one_query
from analysis.kernels.merge import read_sinks, sink_pairs
from analysis.timing.inference import time_decode


def text(length, kv_heads=2, size=4, groups=3, most=2, seed=0, dtype=torch.float64):
    """Keys and values [1, G, T, D] and memberships [T, K]: each token in 0 to `most` groups."""
    draw = torch.Generator().manual_seed(seed)
    keys, values = (torch.randn(1, kv_heads, length, size, generator=draw, dtype=dtype) for _ in range(2))
    rank = torch.rand(length, groups, generator=draw).argsort(-1)
    return keys, values, rank < torch.randint(0, most + 1, (length, 1), generator=draw)


def kept(members, window, n_sink):
    """bool [T, T], True = read."""
    at = torch.arange(len(members))
    shared = (members[:, None] & members).any(-1)
    return (shared | (at[:, None] - at < window) | (at < n_sink)) & (at <= at[:, None])


def by_definition(q, keys, values, read, scale):
    """Attention of q [1, H, n, D] over the keys, read bool [n, T]."""
    keys, values = (x.double().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (keys, values))
    scores = (q.double() @ keys.transpose(2, 3) * scale).masked_fill(~read, float("-inf"))
    return torch.softmax(scores, -1) @ values, torch.logsumexp(scores, -1)


@settings(max_examples=60)
@given(
    prompt=st.integers(1, 40),
    steps=st.integers(1, 30),
    groups=st.integers(1, 6),
    most=st.integers(0, 6),
    window=st.sampled_from([1, 2, 7, 16, 100]),
    n_sink=st.integers(0, 5),
    kind=st.sampled_from([torch.float64, torch.float32]),
    seed=st.integers(0, 99),
)
def test_every_step_is_the_masked_softmax(prompt, steps, groups, most, window, n_sink, kind, seed):
    length = prompt + steps
    keys, values, members = text(length, groups=groups, most=min(most, groups), seed=seed, dtype=kind)
    q = torch.randn(1, 4, length, 4, generator=torch.Generator().manual_seed(seed + 1), dtype=kind)
    read = kept(members, window, n_sink)
    held = GroupMajor(keys[:, :, :prompt], values[:, :, :prompt], members[:prompt], window, n_sink)
    for at in range(prompt, length):
        row = slice(at, at + 1)
        held.put(keys[:, :, row], values[:, :, row], members[at])
        wanted, _ = by_definition(q[:, :, row], keys[:, :, : at + 1], values[:, :, : at + 1], read[row, : at + 1], 0.7)
        assert torch.allclose(
            held.attend(q[:, :, row], 0.7).double(), wanted, atol=1e-5 if kind == torch.float32 else 1e-9
        )
    assert held.length == length
    for mine, own in zip(held.in_order(), (keys, values), strict=True):
        assert torch.equal(mine, own), "nothing is lost, and the order of the text comes back"


def test_sixty_four_groups():
    keys, values, members = text(80, groups=64, most=3)
    members[5:8, 63] = True
    held = GroupMajor(keys[:, :, :40], values[:, :, :40], members[:40], 2)
    for at in range(40, 80):
        members[at, 63] = at % 2 == 0
        held.put(keys[:, :, at : at + 1], values[:, :, at : at + 1], members[at])
    q = torch.randn(1, 2, 1, 4, dtype=torch.float64)
    assert torch.allclose(held.attend(q, 0.5), by_definition(q, keys, values, kept(members, 2, 0)[-1:], 0.5)[0])
    assert torch.equal(held.in_order()[0], keys)


def test_a_step_reads_its_groups_and_the_window_alone():
    length, groups, window, n_sink = 4096, 8, 16, 4
    keys, values, _ = text(length, size=8, dtype=torch.float32)
    members = torch.nn.functional.one_hot(torch.arange(length) % groups, groups).bool()
    held = GroupMajor(keys, values, members, window, n_sink)
    held.put(keys[:, :, :1], values[:, :, :1], members[3])
    held.attend(torch.randn(1, 4, 1, 8), 0.3)
    assert held.read_bytes == (length // groups + 1 + window + n_sink) * 2 * 2 * 8 * 4
    everything = keys.nbytes + values.nbytes
    assert held.nbytes < 1.3 * everything and held.read_bytes < everything / 7


def test_no_step_copies_the_past():
    """Buffers stay where they are from step to step, but for the few that grow."""
    keys, values, members = text(400, groups=3, most=1, dtype=torch.float32)
    held = GroupMajor(keys[:, :, :100], values[:, :, :100], members[:100], 8)

    def places():
        return [h.keys.rows.data_ptr() for h in (*held._groups, held._near)]

    moves = 0
    for at in range(100, 400):
        before = places()
        held.put(keys[:, :, at : at + 1], values[:, :, at : at + 1], members[at])
        moves += sum(a != b for a, b in zip(before, places(), strict=True))
    assert moves <= 12, "each of the five buffers grew by half two or three times in 300 steps"


def test_growing_rows():
    rows = Growing(torch.arange(6.0).reshape(1, 3, 2), dim=1)
    rows.put(torch.full((1, 2, 2), 9.0))
    rows.put(torch.zeros(1, 1, 2), at=0)
    assert rows.rows.tolist() == [[[0, 0], [2, 3], [4, 5], [9, 9], [9, 9]]] and rows.length == 5
    rows.length = 2
    rows.put(torch.ones(1, 1, 2))
    assert rows.rows.tolist() == [[[0, 0], [2, 3], [1, 1]]] and rows.nbytes > rows.rows.nbytes


def test_a_part_of_which_nothing_is_read():
    q, k = torch.randn(1, 4, 1, 8), torch.randn(1, 2, 5, 8)
    assert one_query(q, k, k, torch.ones(5, dtype=torch.bool), 0.5) is None
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        skip = torch.tensor([True, False, False, True, False])
        out, lse = one_query(q.to(dtype), k.to(dtype), k.to(dtype), skip, 0.5)
        wanted, sums = by_definition(q, k, k, ~skip[None], 0.5)
        assert out.shape == (1, 4, 1, 8) and lse.shape == (1, 4, 1)
        assert torch.allclose(out.double(), wanted, atol=2e-2 if dtype == torch.bfloat16 else 1e-5)
        assert torch.allclose(lse.double(), sums, atol=2e-2 if dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("window", [1, 5, 40])
def test_sinks_are_merged_exactly(window):
    length, n_sink = 30, 3
    keys, values, members = text(length, most=2)
    q = torch.randn(1, 4, length, 4, dtype=torch.float64)
    out, lse = by_definition(q, keys, values, kept(members, window, 0), 0.7)
    mine = read_sinks(out, lse, q, keys, values, members[None], window, n_sink, 0.7)
    wanted = by_definition(q, keys, values, kept(members, window, n_sink), 0.7)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(mine, wanted, strict=True))
    more = int(kept(members, window, n_sink).sum() - kept(members, window, 0).sum())
    assert sink_pairs(members[None], window, n_sink) == more and sink_pairs(members[None], window, 0) == 0


@pytest.mark.parametrize("k, kv_heads", [(1, 4), (2, 2)])
def test_a_decode_step_is_timed(k, kv_heads):
    timed = time_decode(600, 4, 16, 8, 16, k=k, dtype="float32", kv_heads=kv_heads, repeats=3, n_sink=1)
    assert timed.dense.median > 0 and timed.sparse.median > 0 and len(timed.speedup.seconds) == 3
    assert timed.kernel == "group-major cache" and timed.dense_kernel.startswith("torch")
    assert timed.bound == pytest.approx(timed.dense_bytes / timed.sparse_bytes)
    assert (3 if k == 1 else 1.5) < timed.bound < (8 if k == 1 else 4)
