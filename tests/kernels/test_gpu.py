"""Grouped attention on a GPU: groups padded side by side, and the kernel of the window, against the definition."""

import pytest
import torch

from analysis.kernels import gpu, packed, plan
from analysis.kernels.constants import Accelerator
from analysis.kernels.dense import dense_with_lse
from tests.kernels.test_grouped import by_hand, close, one_group
from tests.made.attention import defined, states

ON_GPU = torch.device("cuda")


def test_padded_lengths_are_few_and_at_most_an_eighth_longer():
    assert [gpu.padded_length(n) for n in (1, 64, 65, 1000, 1025, 8192, 8193)] == [64, 64, 128, 1024, 1152, 8192, 9216]
    assert gpu.padded_length(0) == 64
    lengths = {gpu.padded_length(n) for n in range(1024, 16384)}
    assert len(lengths) == 33 and all(n <= gpu.padded_length(n) <= 1.125 * n + 1 for n in range(1024, 16384, 7))


@pytest.mark.parametrize("none", [False, True])
def test_groups_side_by_side_are_attention_inside_each_group(none):
    q, k, v = states(2, 4, 2, 150, 16)
    members = one_group(150, 3, 2)
    members[:, 20:40] &= not none
    out, lse, slot = gpu.side_by_side(q, k, v, members, int(members.sum(1).max()), 0.25)
    wanted, sums, _ = by_hand(q, k, v, members, 0)
    for text in range(2):
        for token in range(150):
            row = slot[text, token]
            assert (row < 0) == (not members[text, token].any())
            if row >= 0:
                torch.testing.assert_close(out[row].double(), wanted[text, :, token], atol=5e-6, rtol=0)
                torch.testing.assert_close(lse[:, row].double(), sums[text, :, token], atol=1e-5, rtol=0)


def test_what_a_gpu_is_predicted_to_take_by_hand():
    """Two groups of 512 tokens, a window of 64, one head of 64: pairs in the groups and in the window's tiles."""
    members = torch.arange(1024)[:, None] % 2 == torch.arange(2)
    chosen = plan(members, 64, 1, 64, torch.bfloat16, ON_GPU)
    rates = Accelerator()
    dense = rates.call + 4 * 64 * (1024 * 1025 / 2) / rates.dense_rate
    inner, near = 2 * (512 * 513 / 2), 1024 * (64 + gpu.ROWS)
    sparse = (
        rates.sparse_call
        + 4 * 64 * (inner / rates.dense_rate + near / rates.window_rate)
        + 12 * 64 * 1024 / rates.copy_rate
    )
    assert chosen.kernel == "groups" and chosen.cost == pytest.approx(sparse / dense)
    assert chosen.computed == pytest.approx((inner + near) / (1024 * 1025 / 2))


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
@pytest.mark.parametrize("size", [64, 128, 80])
@pytest.mark.parametrize("length", [2048, 9000])
@pytest.mark.parametrize("kind", ["even", "skewed", "some without", "none", "several"])
def test_grouped_attention_on_a_gpu(dtype, bound, size, length, kind):
    """Even groups are padded, skewed ones packed; 9,000 tokens in 4 groups are long enough for cuDNN."""
    q, k, v = (x.cuda() for x in states(1, 4, 2, length, size, dtype))
    members = one_group(length, 4)
    if kind == "skewed":
        members[:, length // 8 :] = torch.arange(4) == 1
    elif kind == "some without":
        members[:, 300:900] = False
    elif kind == "none":
        members[:] = False
    elif kind == "several":
        members |= one_group(length, 4, seed=1)
    members = members.cuda()
    wanted = by_hand(q, k, v, members, 128)[:2]
    computed = packed.grouped(q, k, v, members, 128, size**-0.5)
    assert close(computed, wanted, bound, max(2e-3, bound / 10)) and computed[0].isfinite().all()


@pytest.mark.gpu
@pytest.mark.parametrize("length", [300, 2500])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dense_attention_gives_its_logsumexp_on_a_gpu(length, causal, dtype):
    q, k, v = states(2, 4, 2, length, 64, dtype)
    members = torch.ones(2, length, 1, dtype=torch.bool)
    wanted = (
        by_hand(q, k, v, members, 1)[:2] if causal else defined(q, k, v, torch.ones(length, length, dtype=torch.bool))
    )
    computed = dense_with_lse(*(x.cuda() for x in (q, k, v)), None, causal, 64**-0.5)
    bound = 1e-4 if dtype == torch.float32 else 3e-2
    assert close([x.cpu() for x in computed], wanted, bound, max(1e-4, bound / 10))
