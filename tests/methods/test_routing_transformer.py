"""Routing Transformer: clusters by hand, centroids that are k-means, and the literal choice over a whole text."""

import pytest
import torch
import torch.nn.functional as F

from analysis.groups.kmeans import spherical_kmeans
from analysis.methods import METHODS
from analysis.methods.routing_transformer import normalised
from analysis.models import load_model
from analysis.routers.rotation import unrotate
from tests.contract.test_contract import clusters
from tests.made.passes import logits, seen, watched
from tests.made.tiny import LAYERS, left_padded, tiny, token_ids

ROUTING = METHODS["routing_transformer"]
C = 5


def read_by(lm, method, ids) -> torch.Tensor:
    """bool [H, T, T] of the first layer; everywhere the softmax is exact over what is read."""
    layers = watched(lm, method, ids)
    for attended, mass in layers:
        scores = attended.scores.double().masked_fill(~attended.read, -torch.inf)
        assert torch.allclose(mass.double(), torch.softmax(scores, -1), atol=1e-6)
    return layers[0][0].read[0]


def test_normalised_vectors_and_the_literal_choice_by_hand():
    assert normalised(torch.tensor([1.0, 3.0, 5.0, 7.0])).tolist() == pytest.approx(
        [-3 / 5**0.5, -1 / 5**0.5, 1 / 5**0.5, 3 / 5**0.5]
    )
    # Each cluster takes the ceil(T / C) queries, and as many keys, of largest similarity in the whole text.
    lm, ids, fitted = tiny("llama"), token_ids(1, 23), clusters()
    read = read_by(lm, ROUTING(fitted, window=2, n_sink=0, membership="literal"), ids)
    query, key, *_ = seen(lm, ids).tokens[0]
    for head in range(4):
        sides = []
        for x in (query[0, head], key[0, head // 2]):
            similar = F.layer_norm(x.double(), (8,)) @ fitted["kept"][0, 0].double().T  # [T, C]
            sides.append([set(similar[:, c].topk(5).indices.tolist()) for c in range(C)])
        for i in range(23):
            shared = {j for c in range(C) if i in sides[0][c] for j in sides[1][c]}
            assert read[head, i].tolist() == [j <= i and (i - j < 2 or j in shared) for j in range(23)]


@pytest.mark.parametrize("rotary", ["kept", "undone"])
def test_clusters_by_hand(rotary):
    """The first layer's mask against a loop over queries, keys and heads in float64."""
    lm, ids, fitted = tiny("llama"), token_ids(1, 30), clusters()
    read = read_by(lm, ROUTING(fitted, window=3, n_sink=1, rotary=rotary), ids)
    query, key, module, tables = seen(lm, ids).tokens[0]
    if rotary == "undone":
        query, key = (unrotate(x, module, tables) for x in (query, key))
    means, nearest = fitted[rotary][0, 0].double(), []
    for head in range(4):
        q, k = (F.layer_norm(x.double(), (8,)) for x in (query[0, head], key[0, head // 2]))
        of_queries, of_keys = ((x @ means.T).argmax(-1).tolist() for x in (q, k))
        nearest.append(of_queries)
        for i in range(30):
            wanted = [j <= i and (i - j < 3 or j < 1 or of_keys[j] == of_queries[i]) for j in range(30)]
            assert read[head, i].tolist() == wanted
    assert len(set(map(tuple, nearest))) > 1, "heads choose by themselves"


def test_of_equal_centroids_the_first_is_nearest(monkeypatch):
    """Whole numbers, so that equal centroids are equally near on every processor."""
    monkeypatch.setattr("analysis.methods.routing_transformer.normalised", lambda x: x)
    draw = torch.Generator().manual_seed(0)
    x, means = (torch.randint(-3, 4, (*shape, 8), generator=draw).float() for shape in ((1, 2, 40), (2, 5)))
    method = ROUTING(clusters(), window=3)
    members, two = method._members(x, means), method._members(x, torch.cat([means, means[..., :1, :]], -2))
    assert members[..., 0].any() and torch.equal(two[..., :-1], members) and not two[..., -1].any()


def test_padding_takes_no_place_in_a_cluster():
    _, mask = left_padded(2, 40)
    literal = ROUTING(clusters(), membership="literal")
    literal.real_ = mask.bool()
    draw = torch.Generator().manual_seed(0)
    rows = literal.encode_tokens(0, *(torch.randn(2, n, 40, 8, generator=draw) for n in (4, 2)), 0, None, None)
    assert rows.shape == (2, 40, 6, C) and not rows[1, :5].any() and (rows[1].sum(0) == 8).all()


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_centroids_are_k_means_of_queries_and_keys(family):
    model, ids = load_model(tiny(family), tokenizer=None), token_ids(2, 30)
    fitted = ROUTING(clusters=3, seed=4).fit(model, ids).fitted
    kv_heads = 4 if family == "gpt2" else 2
    assert {name: tuple(x.shape) for name, x in fitted.tensors.items()} == dict.fromkeys(
        ("kept", "undone"), (LAYERS, kv_heads, 3, 8)
    )
    calls = [seen(model.lm, row[None]).tokens for row in ids]
    for layer in range(LAYERS):
        for head in range(kv_heads):
            rows = []
            for call in calls:
                query, key, *_ = call[layer]
                rows += [
                    normalised(query[0].unflatten(0, (kv_heads, -1))[head].flatten(0, 1)),
                    normalised(key[0, head]),
                ]
            assert torch.allclose(fitted["kept"][layer, head], spherical_kmeans(torch.cat(rows), 3, 4)[0], atol=1e-5)
    assert torch.equal(fitted["kept"], fitted["undone"]) == (family == "gpt2")
    assert ROUTING(fitted).clusters == 3, "what was fitted"
    assert logits(model.lm, ids, ROUTING(fitted, window=4)).isfinite().all()
