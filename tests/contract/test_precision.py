"""Scores and softmax stand in float32 in the seam, whatever the model computes in."""

from types import SimpleNamespace

import pytest
import torch

from analysis.methods import METHODS
from analysis.seam.attention import LayerState, _attention
from analysis.seam.token_memory import TokenMemory

HEADS, LENGTH, DIM = 2, 160, 16


def read_keys(query, key, method, dtype) -> torch.Tensor:
    """bool [1, H, T, T]: what one layer reads when queries and keys come in `dtype`."""
    reads = []
    state = LayerState(method, 0, TokenMemory(), lambda block, _: reads.append(block.read))
    state.first = torch.zeros(1, dtype=torch.long)
    module = SimpleNamespace(_focuscope=state, training=False)
    query, key = query.to(dtype), key.to(dtype)
    _attention(module, query, key, torch.randn_like(key), None)
    return torch.cat([torch.nn.functional.pad(read, (0, LENGTH - read.shape[-1])) for read in reads], 2)


@pytest.mark.parametrize("offset", [0, 20, 60])
def test_a_common_offset_of_the_scores_changes_no_choice_of_keys(offset):
    """Qwen's biases add the same large number to every score of a query: in bfloat16 the largest keys then tie."""
    random = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, HEADS, LENGTH, DIM, generator=random).bfloat16().float()
    query[..., 0], key[..., 0] = offset * DIM**0.5, 1.0
    method = METHODS["oracle_topk"](k=16)
    exact = read_keys(query, key, method, torch.float64)
    half = read_keys(query, key, method, torch.bfloat16)
    assert (exact != half).float().mean() < 1e-4, "the same keys as in float64"
    expected = sum(min(i + 1, 16) for i in range(LENGTH)) * HEADS
    assert half.sum() <= expected * 1.001, "ties of rounded scores read more keys than were asked for"
