"""What the top-k kernels cost: rows and ratios that belong together; no time is held to a limit here."""

import json

import pytest
import torch

from analysis.errors import BadSetting
from analysis.kernels.topk import topk_attention
from analysis.studies.context import Context
from analysis.studies.speed.topk_cost import masked_eager, topk_cost

SIZES = {"keys": 8, "heads": 4, "head_dim": 8, "kv_heads": 2, "repeats": 2}


def test_the_masked_pass_is_the_same_attention():
    q, k, v = (torch.randn(1, heads, 50, 8, generator=torch.Generator().manual_seed(heads)) for heads in (4, 2, 2))
    assert (masked_eager(q, k, v, 7) - topk_attention(q, k, v, [7] * 4)[0]).abs().max() < 2e-6
    last = topk_attention(q[:, :, -1:], k, v, [7] * 4, past=49)[0]
    assert (masked_eager(q[:, :, -1:], k, v, 7) - last).abs().max() < 2e-6


def test_rows_of_passes_and_steps():
    told = []
    numbers = topk_cost([64, 128], **SIZES, context=Context(progress=lambda f, s: told.append((f, s)))).numbers
    json.dumps(numbers, allow_nan=False)
    assert [(row["what"], row["length"]) for row in numbers["rows"]] == [
        ("pass", 64),
        ("step", 64),
        ("pass", 128),
        ("step", 128),
    ]
    for row in numbers["rows"]:
        assert row["times_dense_low"] <= row["times_dense"] <= row["times_dense_high"]
        assert min(row["dense_ms"], row["topk_ms"], row["masked_ms"], row["faster_than_masked"]) > 0
    step = numbers["rows"][-1]
    assert step["bytes_dense"] == 2 * 2 * 128 * 8 * 4 and step["bytes_topk"] == 8 * 4 * (2 * 128 + 4 * 8)
    assert numbers["met"] is None and "cannot be much faster than dense" in numbers["sentence"]
    assert [f for f, _ in told] == sorted(f for f, _ in told) and told[-1][0] <= 1


@pytest.mark.parametrize(
    "wrong", [{"lengths": [4]}, {"keys": 0}, {"kv_heads": 3}, {"kv_heads": 9}, {"repeats": 0}, {"seed": -1}], ids=str
)
def test_sizes_out_of_range_are_refused(wrong):
    with pytest.raises(BadSetting):
        topk_cost(**{"lengths": [32], **SIZES, **wrong}, context=Context())
