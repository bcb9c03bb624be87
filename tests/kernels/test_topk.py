"""Attention over the largest scores: kernels against a search in float64, ties, lengths, and one query after a past."""

import math

import numpy as np
import pytest
import torch

from analysis.kernels.topk import _by_torch, smallest_kept, topk_attention


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def states(length, heads=4, kv_heads=2, past=0, size=8, batch=2, seed=0, scale=2.0):
    q = normal(batch, heads, length, size, seed=seed) * scale
    return q, *(normal(batch, kv_heads, past + length, size, seed=seed + offset) for offset in (1, 2))


def oracle(q, k, v, counts, past=0):
    """Query by query in float64: (out, how many keys were read)."""
    q, k, v = q.double(), *(x.double().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    out, retained = torch.zeros_like(q), torch.zeros(q.shape[:3], dtype=torch.int32)
    for b, h, i in np.ndindex(*q.shape[:3]):
        scores = (k[b, h, : past + i + 1] @ q[b, h, i]) * q.shape[-1] ** -0.5
        smallest = scores.sort(descending=True).values[min(int(counts[b, h, i]), len(scores)) - 1]
        read = scores >= smallest
        retained[b, h, i] = int(read.sum())
        out[b, h, i] = torch.softmax(scores[read], 0) @ v[b, h, : past + i + 1][read]
    return out, retained


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("past, length", [(0, 1), (0, 40), (0, 300), (17, 1), (500, 1), (260, 30)])
def test_against_a_search_in_float64(past, length, kv_heads):
    q, k, v = states(length, kv_heads=kv_heads, past=past, batch=1)
    counts = [1, 2, 9, 40]
    wanted, reads = oracle(q, k, v, torch.tensor(counts)[None, :, None].expand(q.shape[:3]), past)
    result, retained = topk_attention(q, k, v, counts, past=past)
    assert (result - wanted).abs().max() < 3e-6 and torch.equal(retained, reads)
    assert result.dtype == torch.float32 and retained.dtype == torch.int32
    exact, retained = topk_attention(q.double(), k.double(), v.double(), counts, past=past)
    assert (exact - wanted).abs().max() < 1e-12 and torch.equal(retained, reads)


def test_counts_of_every_query_scores_far_apart_and_half_precision():
    q, k, v = states(200)
    counts = torch.randint(1, 90, q.shape[:3], generator=torch.Generator().manual_seed(3))
    wanted, reads = oracle(q, k, v, counts)
    for result, retained in (topk_attention(q, k, v, counts), _by_torch(q, k, v, counts, 8**-0.5, 0)):
        assert (result - wanted).abs().max() < 3e-6 and torch.equal(retained, reads)
    q, k, v = states(300, scale=60.0)
    counts = torch.tensor([3, 3, 50, 50])[None, :, None].expand(q.shape[:3])
    assert (topk_attention(q, k, v, [3, 3, 50, 50])[0] - oracle(q, k, v, counts)[0]).abs().max() < 1e-4
    q, k, v = (x.bfloat16() for x in states(300))
    out, _ = topk_attention(q, k, v, [3, 3, 50, 50])
    assert out.dtype == torch.bfloat16 and (out - oracle(q, k, v, counts)[0]).abs().max() < 2e-2


@pytest.mark.parametrize("past", [0, 30])
def test_enough_keys_are_dense_attention(past):
    q, k, v = states(64, past=past)
    mask = torch.arange(past + 64) <= torch.arange(past, past + 64)[:, None]
    dense = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    for count in (past + 64, 10**6):
        out, retained = topk_attention(q, k, v, [count] * 4, past=past)
        assert (out - dense).abs().max() < 2e-6 and (retained == torch.arange(past + 1, past + 65)).all()


@pytest.mark.parametrize("length", [40, 700])
def test_all_that_tie_with_the_last_one_are_read(length):
    q, v = torch.ones(1, 1, 1, 4), normal(1, 1, length, 4)
    k = torch.zeros(1, 1, length, 4)
    k[0, 0, ::7] = 1.0  # the largest scores, all equal
    k[0, 0, 3] = 2.0
    best = len(range(0, length, 7))
    for kernel in (topk_attention, lambda *x, past: _by_torch(*x[:3], torch.tensor([[x[3]]]), 0.5, past)):
        for count, read in {1: 1, 2: 1 + best, best: 1 + best, best + 2: length}.items():
            out, retained = kernel(q, k, v, [count], past=length - 1)
            assert retained.item() == read
        assert kernel(q, k, v, [length], past=length - 1)[1].item() == length


def test_equal_scores_are_all_read_and_the_smallest_that_is_kept():
    q, k, v = torch.zeros(1, 2, 600, 4), normal(1, 2, 600, 4), normal(1, 2, 600, 4)
    out, retained = topk_attention(q, k, v, [5, 5])
    assert (retained == torch.arange(1, 601)).all()
    assert (out - v.cumsum(2) / torch.arange(1, 601)[:, None]).abs().max() < 1e-5
    scores = torch.tensor([[5.0, 2.0, 2.0, 1.0, -math.inf]] * 2)[None, :, None]  # [1, 2, 1, 5]
    for counts, wanted in {(1, 2): [5.0, 2.0], (3, 4): [2.0, 1.0], (5, 9): [-math.inf, -math.inf]}.items():
        assert smallest_kept(scores, list(counts)).flatten().tolist() == wanted
        item = torch.tensor(counts)[None, :, None]
        assert smallest_kept(scores, item).flatten().tolist() == wanted


def test_threads_do_not_change_the_result():
    q, k, v = states(150)
    wanted, threads = topk_attention(q, k, v, [7] * 4), torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        result = topk_attention(q, k, v, [7] * 4)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.allclose(a, b, atol=2e-6) for a, b in zip(result, wanted, strict=True))
