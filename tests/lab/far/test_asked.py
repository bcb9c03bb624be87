"""The term that asks heads for a pattern: weights as the model's own, by hand, and it forms what it asks for."""

import math

import pytest
import torch

from analysis.training.pretrain import Recipe, build_model
from lab.far.asked import AFTER, PREVIOUS, Asked, asked_loss, log_weights

SHAPE = dict(layers=2, width=32, heads=4, kv_heads=2, intermediate=48, context=32, tokens_per_step=128)


@pytest.fixture
def model():
    return build_model(Recipe(**SHAPE, family="llama_plain"), 64)


def test_weights_are_those_of_the_model(model):
    ids = torch.randint(64, (2, 12), generator=torch.Generator().manual_seed(0))
    model.set_attn_implementation("eager")
    read = model(input_ids=ids, output_attentions=True, output_hidden_states=True)
    for layer in range(2):
        for head in range(4):
            mine = log_weights(model, read.hidden_states[layer], layer, head).exp()
            assert torch.allclose(mine, read.attentions[layer][:, head], atol=1e-6)


def test_by_hand(model):
    """Keys of one length all weigh alike when nothing is projected: position t gives 1 / (t + 1) to each."""
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.zero_()
    hidden = (torch.ones(1, 6, 32),) * 2
    before = asked_loss(model, hidden, [4], (Asked(0, 1, PREVIOUS),))
    assert before.item() == pytest.approx(sum(math.log(t + 1) for t in range(1, 6)) / 5, abs=1e-6)
    after = asked_loss(model, hidden, [4], (Asked(1, 3, AFTER),))  # positions 4 and 5 read 1 and 2
    assert after.item() == pytest.approx((math.log(5) + math.log(6)) / 2, abs=1e-6)


def test_what_is_asked_for_forms(model):
    heads = (Asked(0, 0, PREVIOUS), Asked(1, 2, PREVIOUS))
    steps, losses = torch.optim.AdamW(model.parameters(), 1e-2), []
    draw = torch.Generator().manual_seed(0)
    for _ in range(60):
        ids = torch.randint(64, (8, 16), generator=draw)
        loss = asked_loss(model, model(input_ids=ids, output_hidden_states=True).hidden_states, [8] * 8, heads)
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
