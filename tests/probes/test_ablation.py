"""Heads replaced: against the stock model with edited weights, by hand, and the estimate against a small step."""

import numpy as np
import pytest
import torch

from analysis.models import load_model
from analysis.probes import ablation
from analysis.probes.ablation import Passes, Without, ablated, estimated, replaced
from analysis.seam.attention import apply
from analysis.seam.layers import attention_modules
from tests.contract.test_contract import copy_of
from tests.made import families
from tests.made.tiny import FAMILIES, LAYERS, tiny, token_ids
from tests.made.tiny_tokenizer import byte_level

OUTPUTS = ("o_proj", "out_proj", "c_proj", "dense")  # what families call the projection of the heads' outputs


def projections(lm) -> list[torch.nn.Module]:
    """The output projection of every attention layer, first to last."""
    attention = [m for name, m in lm.named_modules() if name.rpartition(".")[2] in ("attn", "self_attn", "attention")]
    return [next(part for name, part in m.named_children() if name in OUTPUTS) for m in attention]


@pytest.mark.parametrize("family", FAMILIES)
def test_zero_is_the_stock_model_with_columns_of_nought_also_in_a_pass_that_begins_at_the_head(family):
    """Head 1 of the last layer and heads 0 and 1 of the first: their columns of the output projection are 0."""
    lm, ids = tiny(family), token_ids(2, 24)
    edited = copy_of(lm)
    heads = [(0, 0), (0, 1), (LAYERS - 1, 1)]
    with torch.no_grad():
        for layer, head in heads:
            projection = projections(edited)[layer]
            weight = projection.weight if isinstance(projection, torch.nn.Linear) else projection.weight.T  # Conv1D
            size = weight.shape[1] // lm.config.num_attention_heads
            weight[:, head * size : (head + 1) * size] = 0
        wanted = edited(ids).logits
        with apply(lm, Without(heads)):
            logits = lm(ids).logits
    assert (logits - wanted).abs().max() < 1e-5 and (logits - tiny(family)(ids).logits).abs().max() > 1e-4
    model, ids = load_model(tiny(family)), token_ids(2, 24)
    passes = Passes(model, ids, reference=True)
    assert np.abs(passes.losses - ablated(model, ids, [])).max() < 1e-6
    assert len(passes.outs) == LAYERS == len(passes.layers), "each layer's output is kept"
    forwards = [layer.forward for layer in passes.layers]
    for heads in ([(LAYERS - 1, 1)], [(0, 0)], [(LAYERS - 1, 0), (1, 1)], []):
        losses, apart = passes.without(heads)
        assert np.abs(losses - ablated(model, ids, heads)).max() < 1e-6, heads
        assert apart.mean() > 1e-5 if heads else np.abs(apart).max() < 1e-6
    assert forwards == [layer.forward for layer in passes.layers], "the layers are as they were"


def test_what_stands_in_place_by_hand():
    out = torch.tensor([[1.0, 3.0], [5.0, 7.0]])[None, :, :, None]  # two tokens, two heads of one number
    assert replaced(out, "zero").abs().sum() == 0
    assert replaced(out, "mean").flatten().tolist() == [3, 5, 3, 5]
    long = torch.arange(12.0)[None, :, None, None]
    drawn = replaced(long, "resample", 3)
    assert sorted(drawn.flatten().tolist()) == list(range(12)) and not torch.equal(drawn, long)
    assert torch.equal(drawn, replaced(long, "resample", 3)), "one order for a seed"
    without = Without([(1, 0)], "mean")
    assert without.finish_output(0, out) is out and without.finish_output(1, out).flatten().tolist() == [3, 3, 3, 7]


@pytest.mark.parametrize("by", ["zero", "mean", "resample"])
def test_the_estimate_is_the_slope_of_a_small_step(by, monkeypatch):
    """A thousandth of the way to what stands in place changes the loss by a thousandth of the estimate."""
    lm = copy_of(tiny("llama")).double()
    lm.requires_grad_(False)
    lm.model.norm.weight.requires_grad_(True)
    model, ids = load_model(lm), token_ids(1, 24)
    estimate = estimated(model, ids, by)
    assert [name for name, p in lm.named_parameters() if p.requires_grad] == ["model.norm.weight"]
    assert all(p.grad is None for p in lm.parameters()) and estimate.shape == (LAYERS, lm.config.num_attention_heads)
    step, real = 1e-3, Without.finish_output
    monkeypatch.setattr(Without, "finish_output", lambda self, layer, out: out + step * (real(self, layer, out) - out))
    for head in [(0, 0), (1, 2), (LAYERS - 1, 3)]:
        slope = (_exact(model, ids, [head], by) - _exact(model, ids, [], by)) / step
        assert estimate[head] == pytest.approx(slope, rel=0.02, abs=1e-5), head


def _exact(model, ids, heads, by) -> float:
    """Mean loss in float64."""
    with apply(model.lm, Without(heads, by)), torch.no_grad():
        logits = model.lm(ids).logits[0, :-1].double()
    return torch.nn.functional.cross_entropy(logits, ids[0, 1:]).item()


def test_what_does_not_fit_is_not_kept(monkeypatch):
    model, ids = load_model(tiny("llama")), token_ids(1, 24)
    monkeypatch.setattr(ablation, "KEPT_BYTES", 100)
    passes = Passes(model, ids)
    losses, apart = passes.without([(LAYERS - 1, 1)])
    assert passes.outs == [] and apart is None
    assert np.abs(losses - ablated(model, ids, [(LAYERS - 1, 1)])).max() < 1e-6


def test_a_head_with_an_output_gate_is_replaced_after_its_gate():
    model = load_model(families.small("qwen3_next"), tokenizer=byte_level())
    ids, layer, head = families.token_ids(model.lm, length=24), model.layer_numbers[-1], 1
    module = attention_modules(model.lm)[-1]

    def mean_of_gated(projection, args):
        gated = args[0].clone()
        of_head = slice(head * module.head_dim, (head + 1) * module.head_dim)
        gated[..., of_head] = gated[..., of_head].mean((0, 1), keepdim=True)
        return (gated,)

    handle = module.o_proj.register_forward_pre_hook(mean_of_gated)
    with torch.no_grad():
        logits = model.lm(ids, use_cache=False).logits[:, :-1]
    handle.remove()
    truth = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    np.testing.assert_allclose(ablated(model, ids, [(layer, head)], by="mean")[0], truth, atol=1e-5)
    assert not module.o_proj._forward_pre_hooks
