"""Performer: features by hand, right on average, an error that falls with more of them, and what it refuses."""

import math

import pytest
import torch

from analysis.errors import BadModel
from analysis.kernels.scoring import Scoring
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.performer import EPS, orthogonal_directions, random_features
from analysis.metrics.sparsity import ReadCounter
from analysis.models import load_model
from analysis.seam.attention import Block, apply
from analysis.studies.context import Context
from analysis.studies.ready.candidates import candidates
from tests.made.tiny import FAMILIES, LAYERS, left_padded, tiny, token_ids

PERFORMER = METHODS["performer"]


def states(size=1.0, heads=4, kv_heads=2, length=40, dim=8, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(n, length, dim, generator=draw) * size for n in (heads, kv_heads, kv_heads)]


def weights(query, key, features, seed):
    """Performer's weights [H, T, T] of a whole text, with a scaling of 1."""
    method, places = PERFORMER(features=features, seed=seed), torch.arange(query.shape[1])
    method._directions = orthogonal_directions(features, query.shape[2], torch.Generator().manual_seed(seed))[None]
    rows = torch.cat([query, key])[None].transpose(1, 2)
    scores = (query @ key.repeat_interleave(len(query) // len(key), 0).mT)[None]
    visible = (places <= places[:, None])[None, None]
    first = torch.zeros(1).long()
    found = method.scores(Block(0, scores, visible, places, places, first, rows, rows, scoring=Scoring(1.0)))
    return torch.softmax(found.masked_fill(~visible, -torch.inf), -1)[0]


def error(size, features, rounds=6):
    """Relative error of the output against dense attention, the mean over seeds."""
    query, key, value = states(size)
    scores = query @ key.repeat_interleave(2, 0).mT
    dense = torch.softmax(scores.masked_fill(~torch.ones(40, 40).tril().bool(), -torch.inf), -1)
    values, off = value.repeat_interleave(2, 0), 0.0
    for seed in range(rounds):
        off += float(((weights(query, key, features, seed) - dense) @ values).norm() / (dense @ values).norm())
    return off / rounds


def logits(lm, ids, method=None, **inputs):
    with torch.no_grad(), apply(lm, method or Method()):
        return lm(ids, use_cache=False, **inputs).logits


def test_features_by_hand():
    """x = (1, 2), directions (1, 0) and (0, 1): exponents 1 - 2.5 and 2 - 2.5, the larger taken out."""
    found, largest = random_features(torch.tensor([1.0, 2.0]), torch.eye(2))
    assert largest.item() == -0.5 and found.tolist() == pytest.approx([math.exp(-1) + EPS, 1 + EPS])


def test_weights_against_the_formula_in_float64():
    """phi(q) . phi(k) over their sum, with every sum written out."""
    query, key, _ = states(0.7)
    directions = orthogonal_directions(24, 8, torch.Generator().manual_seed(3)).double()

    def features(x):
        exponents = directions @ x - x.square().sum() / 2
        return torch.exp(exponents), torch.exp(exponents.max())

    found = weights(query, key, 24, 3)
    for head, i in ((0, 0), (1, 7), (3, 39)):
        (q, q_max), rows = features(query[head, i].double()), key[head // 2, : i + 1].double()
        told = []
        for row in rows:
            k, k_max = features(row)
            told.append(float((q / q_max + EPS) @ (k / k_max + EPS) * k_max))
        assert found[head, i, : i + 1].tolist() == pytest.approx([x / sum(told) for x in told], rel=1e-4)


def test_a_product_of_features_is_the_exponential_on_average(monkeypatch):
    monkeypatch.setattr("analysis.methods.performer.EPS", 0.0)
    draw = torch.Generator().manual_seed(0)
    x, y = (torch.randn(6, 8, generator=draw, dtype=torch.float64) * 0.2 for _ in range(2))
    found = []
    for seed in range(400):
        directions = orthogonal_directions(8, 8, torch.Generator().manual_seed(seed)).double()
        (a, c), (b, d) = random_features(x, directions), random_features(y, directions)
        found.append(a @ b.T * (c + d.T).exp() / 8)
    found = torch.stack(found)
    off = (found.mean(0) - (x @ y.T).exp()) / (found.std(0) / 20)
    assert off.abs().max() < 4.5


def test_directions_are_orthogonal_in_blocks_and_as_long_as_normal_vectors():
    made = orthogonal_directions(20, 8, torch.Generator().manual_seed(0))
    assert made.shape == (20, 8)
    for block in made.split(8):
        products = block @ block.T
        assert (products - products.diag().diag()).abs().max() < 1e-4
    many = orthogonal_directions(4000, 8, torch.Generator().manual_seed(0))
    assert float(many.square().sum(1).mean()) == pytest.approx(8, rel=0.05)


def test_the_error_falls_with_more_features_and_grows_with_longer_vectors():
    errors = [error(0.25, features) for features in (8, 32, 128, 512, 2048)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.05 and 2 < errors[1] / errors[3] < 8, "16 times as many: about a quarter of the error"
    assert error(2.0, 512) > 0.5, "vectors of a trained model: useless"


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "gemma2"])
def test_a_model_with_short_vectors_nearly_gets_dense_attention(family):
    lm, ids = tiny(family), token_ids(1, 30)
    torch.manual_seed(0)
    short = type(lm)(lm.config).eval()
    with torch.no_grad():  # queries and keys that are normalised are as long as the norm's weights say
        for name, weight in short.named_parameters():
            weight.mul_(0.2 if name.endswith(("q_norm.weight", "k_norm.weight")) else 1.0)
    dense, itself, far = logits(short, ids), METHODS["streaming_llm"](n_sink=0, window=1), []
    for features in (16, 4096):
        far.append((logits(short, ids, PERFORMER(features=features)) - dense).norm())
    assert far[1] < far[0] and far[1] < 0.1 * (logits(short, ids, itself) - dense).norm()


def test_reads_are_a_matrix_of_fixed_size():
    lm, counter, method = tiny("llama"), ReadCounter(40), PERFORMER()
    with torch.no_grad(), apply(lm, method, watch=counter):
        lm(token_ids(1, 40), use_cache=False)
    assert method._directions.shape == (LAYERS, 16, 8), "8 ln 8"
    assert counter.reads(method).kv_read == pytest.approx(16 * 9 / 16 * 40 / 820)


def test_a_seed_decides_everything_and_padding_nothing():
    lm, (ids, mask) = tiny("llama"), left_padded(2, 40)
    one, same, other = (logits(lm, ids[:1], PERFORMER(seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)
    padded = logits(lm, ids, PERFORMER(), attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0))
    assert (padded[1:, 5:] - logits(lm, ids[1:, 5:], PERFORMER())).abs().max() < 1e-4


# --- what it refuses --------------------------------------------------------------------------------------------------


def test_capped_scores_are_refused_by_name_and_not_offered():
    lm = tiny("gemma2")
    with (
        pytest.raises(BadModel, match=r"cannot run gemma2 models: they cap their attention scores \(at 2\)"),
        apply(lm, PERFORMER()),
    ):
        pass
    context, asked = Context(browser=False), [{"name": "performer"}]
    assert candidates(context, load_model(tiny("llama")), asked)[0].method.title == "Performer"
    with pytest.raises(BadModel, match="cannot run gemma2 models"):
        candidates(context, load_model(lm), asked)


def test_a_layer_that_changes_its_scores_is_refused():
    lm = tiny("llama")
    method = PERFORMER()
    method.encode_tokens = lambda layer, query, key, *more: PERFORMER.encode_tokens(
        method, layer, query * 2, key, *more
    )
    with pytest.raises(BadModel, match="Layer 0 of this model changes its scores"):
        logits(lm, token_ids(), method)
