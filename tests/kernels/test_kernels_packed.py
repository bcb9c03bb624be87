"""The kernels for packed texts: their algorithm through stand-ins with the real signatures, and on a GPU."""

import importlib.machinery
import sys
import types

import pytest
import torch
from hypothesis import given, settings
from torch.nn.attention import varlen as torch_varlen

from analysis.errors import BadSetting
from analysis.kernels import cuda, grouped_attention, plan
from tests.kernels.test_kernels import by_hand, cases, made, one_group


def texts(q, k, v, starts, scale, window):
    """What a packed kernel computes, text by text: out [N, H, D], lse [H, N]; a window of -1 has no end."""
    out, lse = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0])
    for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        distance = torch.arange(stop - start)[:, None] - torch.arange(stop - start)
        keep = (distance >= 0) & ((distance <= window[0]) | (window[0] == -1))
        repeat = q.shape[1] // k.shape[1]
        a, b, c = (x[start:stop].transpose(0, 1).float() for x in (q, k, v))
        b, c = b.repeat_interleave(repeat, 0), c.repeat_interleave(repeat, 0)
        scores = (a @ b.mT * scale).masked_fill(~keep, float("-inf"))
        out[start:stop] = (scores.softmax(-1) @ c).transpose(0, 1).to(q.dtype)
        lse[:, start:stop] = scores.logsumexp(-1)
    return out, lse


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
    block_table=None,
):
    """The signature of flash-attn 2.8; with return_attn_probs it returns (out, lse [H, N], None)."""
    assert causal and return_attn_probs and cu_seqlens_q.dtype == torch.int32 and q.shape[-1] % 8 == 0
    assert max_seqlen_q == int((cu_seqlens_q[1:] - cu_seqlens_q[:-1]).max())
    return *texts(q, k, v, cu_seqlens_q, softmax_scale, window_size), None


def of_torch_2_13(
    query,
    key,
    value,
    cu_seq_q,
    cu_seq_k,
    max_q,
    max_k,
    *,
    return_aux=None,
    scale=None,
    window_size=(-1, -1),
    enable_gqa=False,
    seqused_k=None,
    block_table=None,
    num_splits=None,
):
    """The signature of torch 2.13, and the shape of the logsumexp that its documentation promises."""
    assert return_aux.lse and window_size[1] == 0 and enable_gqa == (query.shape[1] != key.shape[1])
    out, lse = texts(query, key, value, cu_seq_q, scale, window_size)
    return out, lse.T


def of_an_older_torch(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False, return_aux=None):
    """No scale, no windows, no shared heads."""
    assert is_causal and query.shape[1] == key.shape[1]
    return texts(query, key, value, cu_seq_q, query.shape[-1] ** -0.5, (-1, 0))


@pytest.fixture
def flash_attn(monkeypatch):
    """A stand-in for the package flash-attn."""
    module = types.ModuleType("flash_attn")
    module.__spec__ = importlib.machinery.ModuleSpec("flash_attn", None)
    module.flash_attn_varlen_func = flash_attn_varlen_func
    monkeypatch.setitem(sys.modules, "flash_attn", module)


@settings(max_examples=40)
@given(cases())
def test_the_packed_algorithm_is_exact(case):
    shape, members, window = case
    q, k, v = made(*shape[:4], 8)
    out, lse, _ = by_hand(q, k, v, members, window)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_varlen, "varlen_attn", of_torch_2_13)
        mine, sums = cuda.grouped(q, k, v, members, window, 8**-0.5, "torch")
    assert (mine - out).abs().max() < 5e-6 and (sums - lse).abs().max() < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("several", [False, True])
def test_flash_attn_runs_the_same_algorithm(flash_attn, dtype, several):
    q, k, v = made(2, 4, 2, 150, 16, dtype)
    members = one_group(150, 5, 2) | (one_group(150, 5, 2, seed=3) & several)
    out, lse, _ = by_hand(q, k, v, members, 9)
    mine, sums = cuda.grouped(q, k, v, members, 9, 0.25, "flash_attn")
    bound = 5e-6 if dtype == torch.float32 else 3e-2
    assert mine.dtype == dtype and (mine - out).abs().max() < bound and (sums - lse).abs().max() < max(1e-5, bound / 10)


def test_flash_attn_is_planned_on_a_gpu_only(flash_attn):
    members = one_group(4096, 8)
    made_plan = plan(members, 128, 8, 64, torch.bfloat16, "cuda", "flash_attn")
    assert (made_plan.kernel, made_plan.backend) == ("groups", "flash_attn")
    with pytest.raises(BadSetting, match="runs on CUDA only, and the tensors are on cpu: use torch or auto"):
        grouped_attention(*made(1, 2, 2, 300, 8, torch.bfloat16), members[:, :300], 9, backend="flash_attn")
    with pytest.raises(BadSetting, match="takes bfloat16 and float16, not float32"):
        plan(members, 128, 8, 64, torch.float32, "cuda", "flash_attn")


def test_an_older_torch_gets_what_it_knows(monkeypatch):
    monkeypatch.setattr(torch_varlen, "varlen_attn", of_an_older_torch)
    q, k, v = (x[0].transpose(0, 1) for x in made(1, 4, 2, 30, 8))
    starts = torch.tensor([0, 10, 30], dtype=torch.int32)
    out, lse = cuda.packed("torch", q, k, v, starts, 20, 0.7)
    wanted, sums = texts(q, k, v, starts, 0.7, (-1, 0))
    assert (out - wanted).abs().max() < 1e-6 and (lse - sums).abs().max() < 1e-5
    with pytest.raises(BadSetting, match="no windowed varlen_attn: install a newer one"):
        cuda.packed("torch", q, k, v, starts, 20, 0.7, window=3)


def test_a_logsumexp_of_neither_shape_is_no_silent_error():
    with pytest.raises(AssertionError, match="shape"):
        cuda._heads_first(torch.zeros(3, 4, 5), torch.zeros(4, 3, 8))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype, bound", [(torch.bfloat16, 3e-2), (torch.float16, 4e-3), (torch.float32, 1e-5)])
@pytest.mark.parametrize("groups, several", [(8, False), (8, True), (1, False)])
@pytest.mark.parametrize("size", [64, 128])
def test_on_a_gpu(dtype, bound, groups, several, size):
    q, k, v = (x.cuda() for x in made(2, 8, 4, 1500, size, dtype))
    members = one_group(1500, groups, 2) | (one_group(1500, groups, 2, seed=3) & several)
    members[1, 700:710] = False
    out, lse, _ = by_hand(q, k, v, members.cuda(), 128)
    mine, sums = grouped_attention(q, k, v, members, 128)
    assert (mine - out).abs().max() < bound and (sums - lse).abs().max() < max(1e-4, bound / 10)
    if dtype != torch.float32 and groups > 1:
        mine, sums = cuda.grouped(q, k, v, members.cuda(), 128, size**-0.5, "torch")
        assert (mine - out).abs().max() < bound and (sums - lse).abs().max() < bound / 10
