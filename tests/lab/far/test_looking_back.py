"""The circuit that looks back: random tokens that come again, heads asked for a pattern, and small trainings."""

import math

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting
from analysis.training.pretrain import build_model
from analysis.training.recipe import Recipe
from lab.far.looking_back import SETTLED, Circuit, circuit_scores, copy_losses, repeated, train_circuit
from lab.far.recipe import AFTER, PREVIOUS, Asked
from lab.far.training import asked_loss, log_weights
from tests.made.speaking import Speaking

TINY = {"layers": 1, "width": 16, "heads": 2, "vocabulary": 20, "sequences": 4, "length": 16, "shortest": 4}
SHAPE = dict(layers=2, width=32, heads=4, kv_heads=2, intermediate=48, context=32, tokens_per_step=128)


class Copier(Speaking):
    """Knows that a token comes again after `period` tokens: 20 nats more for it than for any other."""

    def __init__(self, period: int, vocabulary: int):
        super().__init__(self.copied, vocabulary)
        self.period, self.vocabulary = period, vocabulary

    def copied(self, ids):
        logits = torch.zeros(*ids.shape, self.vocabulary)
        # Position p reads p + 1 - period and predicts p + 1.
        copied = torch.arange(self.period - 1, ids.shape[1])
        predicted = ids[:, copied + 1 - self.period]
        logits[:, copied] = 20 * torch.nn.functional.one_hot(predicted, self.vocabulary).float()
        return logits


def test_segments_repeat_and_a_model_that_copies_knows_the_second_copy():
    ids = repeated(50, 24, 100, np.random.default_rng(0), (4, 12))
    assert ids.shape == (50, 24) and ids.min() >= 1
    periods = [next(p for p in range(4, 13) if (row[p:] == row[:-p]).all()) for row in ids]
    assert len(set(periods)) > 5, "nothing is learned from one and the same distance"
    twice = repeated(3, 10, 100, np.random.default_rng(0), (5, 5))
    assert (twice[:, :5] == twice[:, 5:]).all()
    first, second = copy_losses(Copier(8, 30), 8, 4, 30)
    assert first == pytest.approx(math.log(30)) and second < 1e-4
    assert copy_losses(Copier(3, 30), 8, 4, 30)[1] > 10, "it copies from elsewhere and is wrong"
    assert SETTLED == 4


def test_a_run_gives_a_curve_and_ends_when_the_circuit_is_there():
    plan = Circuit(**TINY, steps=4, measured_every=2)
    curve = train_circuit(plan)
    assert [entry["step"] for entry in curve] == [2, 4] and curve[-1]["tokens"] == 4 * 4 * 16
    assert all(abs(entry["first"] - math.log(20)) < 1 for entry in curve)
    assert curve == train_circuit(plan)
    assert len(train_circuit(Circuit(**TINY, steps=4, measured_every=2, formed=100, family="llama"))) == 1
    with pytest.raises(BadSetting, match="must fit twice"):
        Circuit(shortest=60)


def test_scores_of_a_model_that_has_learned_nothing_are_near_even():
    model = build_model(Recipe(**SHAPE, family="llama_plain"), 64).eval()
    previous, induction = circuit_scores(model, length=8, sequences=2)
    assert previous.shape == induction.shape == (2, 4)
    assert 0 < previous.max() < 0.6 and 0 < induction.max() < 0.4
    assert model.config._attn_implementation == "sdpa"


@pytest.fixture
def model():
    return build_model(Recipe(**SHAPE, family="llama_plain"), 64)


def test_log_weights_are_those_of_the_model_and_terms_of_patterns_by_hand(model):
    ids = torch.randint(64, (2, 12), generator=torch.Generator().manual_seed(0))
    model.set_attn_implementation("eager")
    read = model(input_ids=ids, output_attentions=True, output_hidden_states=True)
    for layer in range(2):
        for head in range(4):
            weights = log_weights(model, read.hidden_states[layer], layer, head).exp()
            assert torch.allclose(weights, read.attentions[layer][:, head], atol=1e-6)
    # Keys of one length all weigh alike when nothing is projected: position t gives 1 / (t + 1) to each.
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.zero_()
    hidden = (torch.ones(1, 6, 32),) * 2
    before = asked_loss(model, hidden, [4], (Asked(0, 1, PREVIOUS),))
    assert before.item() == pytest.approx(sum(math.log(t + 1) for t in range(1, 6)) / 5, abs=1e-6)
    # Positions 4 and 5 read 1 and 2.
    after = asked_loss(model, hidden, [4], (Asked(1, 3, AFTER),))
    assert after.item() == pytest.approx((math.log(5) + math.log(6)) / 2, abs=1e-6)


def test_what_is_asked_for_forms(model):
    heads = (Asked(0, 0, PREVIOUS), Asked(1, 2, PREVIOUS))
    optimiser, losses = torch.optim.AdamW(model.parameters(), 1e-2), []
    draw = torch.Generator().manual_seed(0)
    for _ in range(60):
        ids = torch.randint(64, (8, 16), generator=draw)
        loss = asked_loss(model, model(input_ids=ids, output_hidden_states=True).hidden_states, [8] * 8, heads)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
