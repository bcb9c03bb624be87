"""What the top-k kernels cost: rows and ratios that belong together; no time is held to a limit here."""

import json

import pytest
import torch

from analysis.commands.budgets import TopkCost
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
    reports = []
    context = Context(progress=lambda fraction, stage: reports.append(fraction))
    numbers = topk_cost(TopkCost(lengths=[64, 128], **SIZES), context=context).numbers
    json.dumps(numbers, allow_nan=False)
    rows = numbers["rows"]
    assert [(row["what"], row["length"]) for row in rows] == [(w, n) for n in (64, 128) for w in ("pass", "step")]
    for row in rows:
        assert row["times_dense_low"] <= row["times_dense"] <= row["times_dense_high"]
        assert min(row["dense_ms"], row["topk_ms"], row["masked_ms"], row["faster_than_masked"]) > 0
    assert rows[-1]["bytes_dense"] == 2 * 2 * 128 * 8 * 4 and rows[-1]["bytes_topk"] == 8 * 4 * (2 * 128 + 4 * 8)
    assert numbers["met"] is None and reports == sorted(reports) and reports[-1] <= 1


@pytest.mark.parametrize(
    "wrong", [{"lengths": [4]}, {"keys": 0}, {"kv_heads": 3}, {"kv_heads": 9}, {"repeats": 0}, {"seed": -1}], ids=str
)
def test_sizes_out_of_range_are_refused(wrong):
    with pytest.raises(BadSetting):
        topk_cost(TopkCost(**{"lengths": [32], **SIZES, **wrong}), context=Context())
