"""Performer: features by hand, right on average, an error that falls with more of them, and what it refuses."""

import math

import pytest
import torch

from analysis.errors import BadModel
from analysis.methods import METHODS
from analysis.methods.performer import EPS, orthogonal_directions, random_features
from tests.made.passes import logits, normal_states, stacked_block
from tests.made.tiny import BY_KIND, tiny, token_ids

PERFORMER = METHODS["performer"]


def weights(query, key, features, seed):
    """Performer's weights [H, T, T] of a whole text, with a scaling of 1."""
    method, tokens = PERFORMER(features=features, seed=seed), stacked_block(query, key)
    method._directions = orthogonal_directions(features, query.shape[2], torch.Generator().manual_seed(seed))[None]
    return torch.softmax(method.scores(tokens).masked_fill(~tokens.visible, -torch.inf), -1)[0]


def error(size, features, rounds=6):
    """Relative error of the output against dense attention, the mean over seeds."""
    query, key, value = normal_states(4, 2, 40, size=size)
    scores = query @ key.repeat_interleave(2, 0).mT
    dense = torch.softmax(scores.masked_fill(~torch.ones(40, 40).tril().bool(), -torch.inf), -1)
    values, off = value.repeat_interleave(2, 0), 0.0
    for seed in range(rounds):
        off += float(((weights(query, key, features, seed) - dense) @ values).norm() / (dense @ values).norm())
    return off / rounds


def test_directions_and_features_by_hand():
    """x = (1, 2), directions (1, 0) and (0, 1): exponents 1 - 2.5 and 2 - 2.5, the larger taken out."""
    features, largest = random_features(torch.tensor([1.0, 2.0]), torch.eye(2))
    assert largest.item() == -0.5 and features.tolist() == pytest.approx([math.exp(-1) + EPS, 1 + EPS])
    for directions in orthogonal_directions(20, 8, torch.Generator().manual_seed(0)).split(8):
        products = directions @ directions.T
        assert (products - products.diag().diag()).abs().max() < 1e-4
    vectors = orthogonal_directions(4000, 8, torch.Generator().manual_seed(0))
    assert float(vectors.square().sum(1).mean()) == pytest.approx(8, rel=0.05)


def test_weights_against_the_formula_in_float64():
    """phi(q) . phi(k) over their sum, with every sum written out."""
    query, key, _ = normal_states(4, 2, 40, size=0.7)
    directions = orthogonal_directions(24, 8, torch.Generator().manual_seed(3)).double()

    def features(x):
        exponents = directions @ x - x.square().sum() / 2
        return torch.exp(exponents), torch.exp(exponents.max())

    computed = weights(query, key, 24, 3)
    for head, i in ((0, 0), (1, 7), (3, 39)):
        q, q_max = features(query[head, i].double())
        products = []
        for row in key[head // 2, : i + 1].double():
            k, k_max = features(row)
            products.append(float((q / q_max + EPS) @ (k / k_max + EPS) * k_max))
        wanted = [product / sum(products) for product in products]
        assert computed[head, i, : i + 1].tolist() == pytest.approx(wanted, rel=1e-4)


def test_a_product_of_features_is_the_exponential_on_average(monkeypatch):
    monkeypatch.setattr("analysis.methods.performer.EPS", 0.0)
    draw = torch.Generator().manual_seed(0)
    x, y = (torch.randn(6, 8, generator=draw, dtype=torch.float64) * 0.2 for _ in range(2))
    rounds = []
    for seed in range(400):
        directions = orthogonal_directions(8, 8, torch.Generator().manual_seed(seed)).double()
        (a, c), (b, d) = random_features(x, directions), random_features(y, directions)
        rounds.append(a @ b.T * (c + d.T).exp() / 8)
    products = torch.stack(rounds)
    off = (products.mean(0) - (x @ y.T).exp()) / (products.std(0) / 20)
    assert off.abs().max() < 4.5


def test_the_error_falls_with_more_features_and_grows_with_longer_vectors():
    errors = [error(0.25, features) for features in (8, 32, 128, 512, 2048)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.05 and 2 < errors[1] / errors[3] < 8, "16 times as many: about a quarter of the error"
    assert error(2.0, 512) > 0.5, "vectors of a trained model: useless"


@pytest.mark.parametrize("family", [case for case in BY_KIND if case.values != ("gemma2",)])
def test_a_model_with_short_vectors_nearly_gets_dense_attention(family):
    ids, itself = token_ids(1, 30), METHODS["streaming_llm"](n_sink=0, window=1)
    torch.manual_seed(0)
    short = type(tiny(family))(tiny(family).config).eval()
    with torch.no_grad():  # queries and keys that are normalised are as long as the norm's weights say
        for name, weight in short.named_parameters():
            weight.mul_(0.2 if name.endswith(("q_norm.weight", "k_norm.weight")) else 1.0)
    dense = logits(short, ids)
    few, many_features = ((logits(short, ids, PERFORMER(features=count)) - dense).norm() for count in (16, 4096))
    assert many_features < few and many_features < 0.1 * (logits(short, ids, itself) - dense).norm()


def test_a_layer_that_changes_its_scores_is_refused():
    class Doubled(PERFORMER):
        def encode_tokens(self, layer, query, *arguments):
            return super().encode_tokens(layer, query * 2, *arguments)

    with pytest.raises(BadModel, match="Layer 0 of this model changes its scores"):
        logits(tiny("llama"), token_ids(), Doubled())
