"""Attention with a bias shared by heads: its value and its gradients, against plain formulas in float64."""

import pytest
import torch

from analysis.kernels import biased
from analysis.kernels.biased import biased_attention


def made(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def by_hand(q, k, v, gate, scale, multiply=False):
    repeat = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(repeat, 1).mT * scale
    scores = scores * gate[:, None] if multiply else scores + gate[:, None]
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v.repeat_interleave(repeat, 1)


@pytest.mark.parametrize("multiply", [False, True])
@pytest.mark.parametrize("length", [1, 4, 11])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_value_and_gradients_are_those_of_the_formula(monkeypatch, length, kv_heads, multiply):
    monkeypatch.setattr(biased, "BLOCK", 4)  # several blocks, the last one shorter
    torch.manual_seed(length)
    arguments = (
        made(2, 4, length, 6),
        made(2, kv_heads, length, 6),
        made(2, kv_heads, length, 6),
        made(2, length, length),
    )
    result = biased_attention(*arguments, 0.3, multiply)
    torch.testing.assert_close(result, by_hand(*arguments, 0.3, multiply), rtol=0, atol=1e-14)
    assert torch.autograd.gradcheck(lambda *inputs: biased_attention(*inputs, 0.3, multiply), arguments, fast_mode=True)


@pytest.mark.parametrize(
    "keys, gate, multiply, second",
    [
        # a bias of log 3 on the first key; above the diagonal nothing is read
        ([0.0, 0.0], [[0.0, 9.0], [1.0986123, 0.0]], False, (3 * 1 + 5) / 4),
        # both scores become 1
        ([2.0, 1.0], [[1.0, 9.0], [0.5, 1.0]], True, 3.0),
    ],
)
def test_two_tokens_by_hand(keys, gate, multiply, second):
    q, k, v = torch.ones(1, 1, 2, 1), torch.tensor(keys).view(1, 1, 2, 1), torch.tensor([1.0, 5.0]).view(1, 1, 2, 1)
    out = biased_attention(q, k, v, torch.tensor([gate]), 1.0, multiply=multiply)
    torch.testing.assert_close(out.flatten(), torch.tensor([1.0, second]))


def test_the_bias_needs_no_gradient():
    q, bias = made(1, 2, 9, 4), torch.zeros(1, 9, 9, dtype=torch.float64)
    biased_attention(q, q, q, bias).sum().backward()
    assert q.grad is not None and bias.grad is None


def test_a_mask_leaves_keys_out_and_its_gradient_is_finite(monkeypatch):
    monkeypatch.setattr(biased, "BLOCK", 4)
    q, k, v = made(1, 2, 9, 4), made(1, 2, 9, 4), made(1, 2, 9, 4)
    mask = (torch.rand(1, 9, 9) < 0.5) | torch.eye(9, dtype=torch.bool)
    gate = torch.zeros(1, 9, 9, dtype=torch.float64).masked_fill(~mask, float("-inf"))
    torch.testing.assert_close(biased_attention(q, k, v, gate), by_hand(q, k, v, gate, 0.5), rtol=0, atol=1e-14)
    assert torch.autograd.gradcheck(lambda *inputs: biased_attention(*inputs, gate), (q, k, v), fast_mode=True)
