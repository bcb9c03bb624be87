"""One query by compiled code: against torch's attention in float64, and what the two paths of a decode step share."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from analysis.kernels import step
from analysis.kernels.decode import GroupMajor, one_query
from analysis.kernels.gathered import gathered_attention

BUILT = pytest.mark.skipif(not step.programs(), reason="no C++ compiler is here")


@st.composite
def cases(draw):
    """Heads that share keys or do not, sizes that fill no vector, buffers shorter and longer than a block."""
    kv_heads, repeat = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    size, rows = draw(st.sampled_from([4, 8, 17, 40, 64])), draw(st.integers(1, 200))
    return kv_heads * repeat, kv_heads, size, rows, draw(st.integers(0, 999))


@BUILT
@settings(max_examples=60)
@given(cases(), st.sampled_from([torch.float32, torch.bfloat16]))
def test_what_is_read_is_a_softmax_over_it(case, dtype):
    heads, kv_heads, size, rows, seed = case
    draw = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, n, m, size, generator=draw).to(dtype) for n, m in ((heads, 1), *[(kv_heads, rows)] * 2))
    read = torch.rand(heads, rows, generator=draw) < 0.5
    read[:, rows // 2] = True
    with torch.no_grad():
        out, lse = step.attend(q, [step.Read(k, v, (~read).view(torch.uint8), 1)], 0.3)
    every = [x.double().repeat_interleave(heads // kv_heads, 1) for x in (k, v)]
    scores = (q.double() @ every[0].mT * 0.3).masked_fill(~read[None, :, None], float("-inf"))
    assert out.dtype == dtype and (out - scores.softmax(-1) @ every[1]).abs().max() < (2e-2, 1e-5)[dtype.itemsize // 4]
    assert (lse - scores.logsumexp(-1)).abs().max() < 1e-5


@BUILT
def test_by_hand_and_where_nothing_is_read():
    """Of four keys of score 0 the second and the third: the mean of 2 and 3; then none; then two buffers as one."""
    q, k, v = torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 4, 2), torch.tensor([1.0, 2, 3, 4]).view(1, 1, 4, 1)
    v, sets = v.expand(1, 1, 4, 2).contiguous(), torch.tensor([1, 2, 2, 1], dtype=torch.int16)
    with torch.no_grad():
        out, lse = step.attend(q, [step.Read(k, v, sets, 1)], 1.0)
        assert out.flatten().tolist() == [2.5, 2.5] and lse.exp().item() == pytest.approx(2)
        nothing, none = step.attend(q, [step.Read(k, v, sets, 3)], 1.0)
        assert nothing.flatten().tolist() == [0, 0] and none.item() == float("-inf")
        both, total = step.attend(q, [step.Read(k, v, sets, 1), step.Read(k, v, sets, 2)], 1.0)
    assert both.flatten().tolist() == [2.5, 2.5] and total.exp().item() == pytest.approx(4)


@BUILT
def test_a_step_of_both_paths_is_the_same(monkeypatch):
    """By group, with sinks and several groups a token, and gathered; on one thread and on several."""
    draw = torch.Generator().manual_seed(0)
    keys, values, q = (torch.randn(1, n, m, 64, generator=draw) for n, m in ((2, 3000), (2, 3000), (4, 1)))
    members, read = torch.rand(3000, 5, generator=draw) < 0.3, torch.rand(1, 4, 3000, generator=draw) < 0.6
    found = []
    with torch.no_grad():
        for _ in range(2):
            text = GroupMajor(keys, values, members, 40, 4)
            text.put(keys[:, :, :1], values[:, :, :1], members[1])
            found.append((text.attend(q, 0.125), gathered_attention(q, keys, values, read, 0.125)))
            monkeypatch.setattr(step, "programs", dict)
    for mine, other in zip(*found, strict=True):
        assert (mine - other).abs().max() < 1e-5


def test_a_query_with_a_gradient_is_not_taken():
    q = torch.zeros(1, 1, 1, 4)
    assert not step.runs(q) and not step.runs(q.half())
    with torch.no_grad():
        assert step.runs(q) == bool(step.programs()) and not step.runs(q.double())
    assert one_query(q, torch.zeros(1, 1, 3, 4), torch.ones(1, 1, 3, 4), None, 1.0)[0].flatten().tolist() == [1] * 4
