"""The attention that models are trained with on a CPU gives what the stock one gives, values and gradients."""

import pytest
import torch

from analysis.training.pretrain import build_model
from lab.far import blocked as module
from lab.far.blocked import blocked, blocked_attention, blocks
from lab.far.recipe import FarRecipe
from lab.far.training import weighted_loss


def test_blocks_cover_every_query():
    assert blocks(300) == [(0, 128), (128, 256), (256, 300)] and blocks(5) == [(0, 5)]


@pytest.mark.parametrize("length", [7, 24, 33])
def test_it_is_causal_attention_with_its_gradients(length, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 8)
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, length, 16, requires_grad=True) for heads in (4, 2, 2))
    out = blocked_attention(None, q, k, v, None, scaling=0.25)[0].float()
    repeated = (part.repeat_interleave(2, 1) for part in (k, v))
    stock = torch.nn.functional.scaled_dot_product_attention(q, *repeated, is_causal=True).transpose(1, 2)
    toward = torch.randn_like(stock)
    mine, theirs = (torch.autograd.grad((made * toward).sum(), (q, k, v)) for made in (out, stock))
    for got, wanted in zip((out, *mine), (stock, *theirs), strict=True):
        assert (got - wanted).norm() < 0.015 * wanted.norm()


def test_a_model_takes_it_for_a_while_and_learns_the_same():
    recipe = FarRecipe(layers=2, width=32, heads=2, kv_heads=1, intermediate=48)
    model, ids = build_model(recipe, 300), torch.randint(0, 300, (2, 40), generator=torch.Generator().manual_seed(0))
    torch.nn.init.normal_(model.model.layers[0].self_attn.o_proj.weight, std=0.3)

    def gradient() -> tuple[float, torch.Tensor]:
        model.zero_grad()
        loss, _ = weighted_loss(model, ids, torch.ones(2, 39))
        loss.backward()
        return loss.item(), model.model.layers[0].self_attn.k_proj.weight.grad.clone()

    stock, there = gradient()
    with blocked(model):
        assert model.config._attn_implementation == "blocked"
        loss, here = gradient()
    assert model.config._attn_implementation == "sdpa"
    assert loss == pytest.approx(stock, abs=2e-3) and (here - there).norm() < 0.05 * there.norm() and there.norm() > 0
