"""One token reads its groups, the window and the sinks: against the masked softmax, and what it reads and copies."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from analysis.kernels import native
from analysis.kernels.decode import GroupMajor, Growing
from analysis.kernels.gathered import gathered_attention
from analysis.kernels.merge import read_sinks, sink_pairs
from analysis.kernels.native import one_query
from analysis.kernels.native.one_query import Read, attend
from analysis.timing.inference import time_decode
from tests.made.attention import defined, grouped_pairs

BUILT = pytest.mark.skipif(not one_query.programs(), reason="no C++ compiler is here")


def text(length, kv_heads=2, size=4, groups=3, memberships=2, seed=0, dtype=torch.float64):
    """Keys and values [1, G, T, D] and memberships [T, K]: each token in 0 to `memberships` groups."""
    draw = torch.Generator().manual_seed(seed)
    keys, values = (torch.randn(1, kv_heads, length, size, generator=draw, dtype=dtype) for _ in range(2))
    rank = torch.rand(length, groups, generator=draw).argsort(-1)
    return keys, values, rank < torch.randint(0, memberships + 1, (length, 1), generator=draw)


@settings(max_examples=40)
@given(
    prompt=st.integers(1, 40),
    steps=st.integers(1, 30),
    # the compiled program takes no float64
    shape=st.sampled_from([(3, 2), (6, 6), (1, 1), (64, 3)]),
    window=st.sampled_from([1, 2, 7, 16, 100]),
    n_sink=st.integers(0, 5),
    kind=st.sampled_from([torch.float64, torch.float32]),
    seed=st.integers(0, 99),
)
def test_every_step_is_the_masked_softmax(prompt, steps, shape, window, n_sink, kind, seed):
    length, (groups, memberships) = prompt + steps, shape
    keys, values, members = text(length, groups=groups, memberships=memberships, seed=seed, dtype=kind)
    members[seed % length, groups - 1] = True  # the highest bit of 64
    q = torch.randn(1, 4, length, 4, generator=torch.Generator().manual_seed(seed + 1), dtype=kind)
    read = grouped_pairs(members, window, n_sink)
    stored = GroupMajor(keys[:, :, :prompt], values[:, :, :prompt], members[:prompt], window, n_sink)
    atol = 1e-5 if kind == torch.float32 else 1e-9
    for place in range(prompt, length):
        row = slice(place, place + 1)
        stored.put(keys[:, :, row], values[:, :, row], members[place])
        wanted, _ = defined(
            q[:, :, row], keys[:, :, : place + 1], values[:, :, : place + 1], read[row, : place + 1], 0.7
        )
        with torch.no_grad():
            assert torch.allclose(stored.attend(q[:, :, row], 0.7).double(), wanted, atol=atol)
    assert stored.length == length
    for ordered, as_given in zip(stored.in_order(), (keys, values), strict=True):
        assert torch.equal(ordered, as_given), "nothing is lost, and the order of the text comes back"


def test_a_step_reads_its_groups_and_the_window_alone():
    length, groups, window, n_sink = 4096, 8, 16, 4
    keys, values, _ = text(length, size=8, dtype=torch.float32)
    members = torch.nn.functional.one_hot(torch.arange(length) % groups, groups).bool()
    stored = GroupMajor(keys, values, members, window, n_sink)
    stored.put(keys[:, :, :1], values[:, :, :1], members[3])
    stored.attend(torch.randn(1, 4, 1, 8), 0.3)
    assert stored.read_bytes == (length // groups + 1 + window + n_sink) * 2 * 2 * 8 * 4
    everything = keys.nbytes + values.nbytes
    assert stored.nbytes < 1.3 * everything and stored.read_bytes < everything / 7


def test_no_step_copies_the_past():
    """Buffers stay where they are from step to step, but for the few that grow."""
    keys, values, members = text(400, groups=3, memberships=1, dtype=torch.float32)
    stored = GroupMajor(keys[:, :, :100], values[:, :, :100], members[:100], 8)

    def places():
        return [buffer.keys.rows.data_ptr() for buffer in (*stored._groups, stored._near)]

    moves = 0
    for place in range(100, 400):
        before = places()
        stored.put(keys[:, :, place : place + 1], values[:, :, place : place + 1], members[place])
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


@pytest.mark.parametrize("window", [1, 5, 40])
def test_sinks_are_merged_exactly(window):
    length, n_sink = 30, 3
    keys, values, members = text(length, memberships=2)
    q = torch.randn(1, 4, length, 4, dtype=torch.float64)
    without, with_sinks = (grouped_pairs(members, window, count) for count in (0, n_sink))
    result = read_sinks(*defined(q, keys, values, without, 0.7), q, keys, values, members[None], window, 3, 0.7)
    wanted = defined(q, keys, values, with_sinks, 0.7)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(result, wanted, strict=True))
    assert sink_pairs(members[None], window, n_sink) == int(with_sinks.sum() - without.sum())
    assert sink_pairs(members[None], window, 0) == 0


@pytest.mark.parametrize("k, kv_heads", [(1, 4), (2, 2)])
def test_a_decode_step_is_timed(k, kv_heads):
    timed = time_decode(600, 4, 16, 8, 16, k=k, dtype="float32", kv_heads=kv_heads, repeats=3, n_sink=1)
    assert timed.dense.median > 0 and timed.sparse.median > 0 and len(timed.speedup.seconds) == 3
    assert timed.kernel == "group-major cache" and timed.dense_kernel.startswith("torch")
    assert timed.bound == pytest.approx(timed.dense_bytes / timed.sparse_bytes)
    assert (3 if k == 1 else 1.5) < timed.bound < (8 if k == 1 else 4)


# --- one query over buffers, by the program and by torch -----------------------------------------------------------


@st.composite
def cases(draw):
    """Heads that share keys or do not, sizes that fill no vector, buffers shorter and longer than a block."""
    kv_heads, repeat = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    size, rows = draw(st.sampled_from([4, 8, 17, 40, 64])), draw(st.integers(1, 200))
    return kv_heads * repeat, kv_heads, size, rows, draw(st.integers(0, 999))


@settings(max_examples=60)
@given(cases(), st.sampled_from([torch.float32, torch.bfloat16, torch.float64]), st.booleans())
def test_what_is_read_is_a_softmax_over_it(case, dtype, compiled):
    heads, kv_heads, size, rows, seed = case
    draw = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, n, m, size, generator=draw).to(dtype) for n, m in ((heads, 1), *[(kv_heads, rows)] * 2))
    read = torch.rand(heads, rows, generator=draw) < 0.5
    read[:, rows // 2] = True
    # the program takes no query with a gradient
    with torch.set_grad_enabled(not compiled):
        out, lse = attend(q, [Read(k, v, (~read).view(torch.uint8), 1)], 0.3)
    wanted, sums = defined(q, k, v, read[None, :, None], 0.3)
    assert out.dtype == dtype and (out - wanted).abs().max() < (2e-2 if dtype == torch.bfloat16 else 1e-5)
    assert (lse - sums).abs().max() < (1e-5 if compiled or dtype != torch.bfloat16 else 2e-2)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=BUILT)])
def test_by_hand_and_where_nothing_is_read(compiled, monkeypatch):
    """Of four keys of score 0 the second and the third: the mean of 2 and 3; then none; then two buffers as one."""
    if not compiled:
        monkeypatch.setattr(native, "library", lambda: None)
    q, k, v = torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 4, 2), torch.tensor([1.0, 2, 3, 4]).view(1, 1, 4, 1)
    v, sets = v.expand(1, 1, 4, 2).contiguous(), torch.tensor([1, 2, 2, 1], dtype=torch.int16)
    with torch.no_grad():
        assert one_query.compiled(q) == compiled and not one_query.compiled(q.double())
        for skips, mean, keys in (((1,), 2.5, 2), ((3,), 0, 0), ((1, 2), 2.5, 4)):
            out, lse = attend(q, [Read(k, v, sets, skip) for skip in skips], 1.0)
            assert out.flatten().tolist() == [mean, mean] and lse.exp().item() == pytest.approx(keys)


@BUILT
def test_a_step_of_both_paths_is_the_same(monkeypatch):
    """By group, with sinks and several groups a token, and gathered; on one thread and on several."""
    draw = torch.Generator().manual_seed(0)
    keys, values, q = (torch.randn(1, n, m, 64, generator=draw) for n, m in ((2, 3000), (2, 3000), (4, 1)))
    members, read = torch.rand(3000, 5, generator=draw) < 0.3, torch.rand(1, 4, 3000, generator=draw) < 0.6
    result = []
    with torch.no_grad():
        for _ in range(2):
            stored = GroupMajor(keys, values, members, 40, 4)
            stored.put(keys[:, :, :1], values[:, :, :1], members[1])
            result.append((stored.attend(q, 0.125), gathered_attention(q, keys, values, read, 0.125)))
            monkeypatch.setattr(native, "library", lambda: None)
    for compiled, plain in zip(*result, strict=True):
        assert (compiled - plain).abs().max() < 1e-5
