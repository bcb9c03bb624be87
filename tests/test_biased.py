"""Attention with a bias shared by heads: its value and its gradients, against plain formulas in float64."""

import pytest
import torch

from analysis.kernels import biased
from analysis.kernels.biased import biased_attention


def made(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def by_hand(q, k, v, bias, scale):
    repeat = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(repeat, 1).mT * scale + bias[:, None]
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v.repeat_interleave(repeat, 1)


@pytest.mark.parametrize("length", [1, 4, 11])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_value_and_gradients_are_those_of_the_formula(monkeypatch, length, kv_heads):
    monkeypatch.setattr(biased, "BLOCK", 4)  # several blocks, the last one shorter
    torch.manual_seed(length)
    given = made(2, 4, length, 6), made(2, kv_heads, length, 6), made(2, kv_heads, length, 6), made(2, length, length)
    torch.testing.assert_close(biased_attention(*given, 0.3), by_hand(*given, 0.3), rtol=0, atol=1e-14)
    assert torch.autograd.gradcheck(lambda *inputs: biased_attention(*inputs, 0.3), given)


def test_two_tokens_by_hand():
    q = k = torch.zeros(1, 1, 2, 1)
    v = torch.tensor([[[[1.0], [5.0]]]])
    bias = torch.tensor([[[0.0, 9.0], [torch.tensor(3.0).log(), 0.0]]])  # above the diagonal nothing is read
    out = biased_attention(q, k, v, bias)
    torch.testing.assert_close(out.flatten(), torch.tensor([1.0, (3 * 1 + 5) / 4]))


def test_the_bias_needs_no_gradient():
    q, bias = made(1, 2, 9, 4), torch.zeros(1, 9, 9, dtype=torch.float64)
    biased_attention(q, q, q, bias).sum().backward()
    assert q.grad is not None and bias.grad is None
