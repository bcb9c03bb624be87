"""Attention with a bias shared by heads: its value and its gradients, against plain formulas in float64."""

import pytest
import torch

from analysis.groups.gates import GATES, gate_logits, group_affinity
from analysis.kernels import biased
from analysis.kernels.biased import biased_attention


def normal(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def rows_of(gate, start, stop):
    """A gate that is its features [B, T, T]."""
    return gate[:, start:stop, :stop]


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
        normal(2, 4, length, 6),
        normal(2, kv_heads, length, 6),
        normal(2, kv_heads, length, 6),
        normal(2, length, length),
    )
    result = biased_attention(*arguments, rows_of, 0.3, multiply)
    torch.testing.assert_close(result, by_hand(*arguments, 0.3, multiply), rtol=0, atol=1e-14)
    assert torch.autograd.gradcheck(
        lambda *inputs: biased_attention(*inputs, rows_of, 0.3, multiply), arguments, fast_mode=True
    )


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
    out = biased_attention(q, k, v, torch.tensor([gate]), rows_of, 1.0, multiply=multiply)
    torch.testing.assert_close(out.flatten(), torch.tensor([1.0, second]))


def test_the_bias_needs_no_gradient():
    q, bias = normal(1, 2, 9, 4), torch.zeros(1, 9, 9, dtype=torch.float64)
    biased_attention(q, q, q, bias, rows_of).sum().backward()
    assert q.grad is not None and bias.grad is None


def test_a_mask_leaves_keys_out_and_its_gradient_is_finite(monkeypatch):
    monkeypatch.setattr(biased, "BLOCK", 4)
    q, k, v = normal(1, 2, 9, 4), normal(1, 2, 9, 4), normal(1, 2, 9, 4)
    mask = (torch.rand(1, 9, 9) < 0.5) | torch.eye(9, dtype=torch.bool)
    gate = torch.zeros(1, 9, 9, dtype=torch.float64).masked_fill(~mask, float("-inf"))
    torch.testing.assert_close(
        biased_attention(q, k, v, gate, rows_of), by_hand(q, k, v, gate, 0.5), rtol=0, atol=1e-14
    )
    assert torch.autograd.gradcheck(lambda *inputs: biased_attention(*inputs, gate, rows_of), (q, k, v), fast_mode=True)


def groups_of(length, groups=3):
    drawn = torch.randn(2, length, groups, dtype=torch.float64).softmax(-1)
    return drawn.detach().requires_grad_()


@pytest.mark.parametrize("form", GATES)
def test_a_gate_made_of_groups_block_by_block_is_the_gate_in_one_piece(monkeypatch, form):
    monkeypatch.setattr(biased, "BLOCK", 4)
    torch.manual_seed(0)
    q, k, v, groups = normal(2, 4, 11, 6), normal(2, 2, 11, 6), normal(2, 2, 11, 6), groups_of(11)
    multiply = form != "log"

    def gate(groups, start, stop):
        affinity = group_affinity(groups[:, start:stop], groups[:, :stop])
        return gate_logits(torch.full_like(affinity, float(multiply)), affinity, form)

    by_blocks = biased_attention(q, k, v, groups, gate, 0.3, multiply)
    reference = by_hand(q, k, v, gate(groups, 0, 11), 0.3, multiply)
    torch.testing.assert_close(by_blocks, reference, rtol=0, atol=1e-14)
    of_both = (torch.autograd.grad(out.sin().sum(), (q, k, v, groups)) for out in (by_blocks, reference))
    for gradient, wanted in zip(*of_both, strict=True):
        assert wanted.abs().max() > 0
        torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-13)


def test_what_is_held_for_the_way_back_grows_with_the_text_alone():
    def bytes_held(length):
        sizes = []
        arguments = normal(1, 2, length, 4), normal(1, 2, length, 4), normal(1, 2, length, 4), groups_of(length)[:1]
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.nbytes) or x, lambda x: x):
            biased_attention(*arguments, lambda groups, a, b: groups[:, a:b] @ groups[:, :b].mT)
        return sum(sizes)

    assert bytes_held(2048) == 2 * bytes_held(1024)


@pytest.mark.parametrize(("length", "rows"), [(1024, 1024), (16384, 128), (4096, 256)])
def test_an_accelerator_takes_as_many_queries_at_once_as_fit(length, rows):
    """Eight heads, eight tensors of a block's scores in float32: 256 MiB hold 1,048,576 pairs of each."""
    blocks = biased._blocks(torch.empty(1, 8, length, 64, device="meta"))
    assert blocks[0] == (0, rows) and blocks[-1][1] == length
    assert biased._blocks(torch.empty(1, 8, 300, 64)) == [(0, 128), (128, 256), (256, 300)]
