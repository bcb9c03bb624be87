"""Routing Transformer: clusters by hand, centroids that are k-means, dense at its limit, and the leak."""

import pytest
import torch
import torch.nn.functional as F

from analysis.errors import BadSetting, NotFitted
from analysis.fitted import Fitted
from analysis.groups.kmeans import spherical_kmeans
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.routing_transformer import normalised
from analysis.metrics.sparsity import ReadCounter
from analysis.models import load_model
from analysis.routers.rotation import unrotate
from analysis.seam.attention import apply
from analysis.studies.context import Context
from analysis.studies.ready.fitted import fit_method, fitted_for
from tests.made.evaluating import tiny_models
from tests.made.tiny import FAMILIES, LAYERS, left_padded, tiny, token_ids

ROUTING = METHODS["routing_transformer"]
C = 5


def centroids(count=C, layers=LAYERS, parts=1, dim=8, seed=0) -> Fitted:
    """Random unit centroids."""
    draw = torch.Generator().manual_seed(seed)
    made = F.normalize(torch.randn(2, layers, parts, count, dim, generator=draw), dim=-1)
    return Fitted("routing_transformer", dict(zip(("kept", "undone"), made, strict=True)))


class Seen(Method):
    """Keeps what `file` is given."""

    def __post_init__(self):
        super().__post_init__()
        self.calls = {}

    def encode_tokens(self, layer, query, key, past, module, tables):
        self.calls[layer] = query, key, module, tables


def vectors(lm, ids):
    """layer -> (queries [B, H, T, D], keys, module, tables) under dense attention."""
    seen = Seen()
    with torch.no_grad(), apply(lm, seen):
        lm(ids, use_cache=False)
    return seen.calls


def logits(lm, ids, method=None, **inputs):
    with torch.no_grad(), apply(lm, method or Method()):
        return lm(ids, use_cache=False, **inputs).logits


def read_by(lm, method, ids):
    """[bool [B, H, T, T]] of each layer."""
    seen = []
    with torch.no_grad(), apply(lm, method, watch=lambda block, mass: seen.append((block, mass))):
        lm(ids, use_cache=False)
    for block, mass in seen:
        scores = block.scores.double().masked_fill(~block.read, -torch.inf)
        assert torch.allclose(mass.double(), torch.softmax(scores, -1), atol=1e-6), (
            "an exact softmax over what it reads"
        )
    return [block.read for block, _ in seen]


def test_normalised_by_hand():
    assert normalised(torch.tensor([1.0, 3.0, 5.0, 7.0])).tolist() == pytest.approx(
        [-3 / 5**0.5, -1 / 5**0.5, 1 / 5**0.5, 3 / 5**0.5]
    )


@pytest.mark.parametrize("rotary", ["kept", "undone"])
def test_clusters_by_hand(rotary):
    """The first layer's mask against a loop over queries, keys and heads in float64."""
    lm, ids, fitted = tiny("llama"), token_ids(1, 30), centroids(parts=2)
    read = read_by(lm, ROUTING(fitted, window=3, n_sink=1, rotary=rotary), ids)[0][0]
    query, key, module, tables = vectors(lm, ids)[0]
    if rotary == "undone":
        query, key = (unrotate(x, module, tables) for x in (query, key))
    means, found = fitted[rotary][0].double(), {}
    for head in range(4):
        q, k = (F.layer_norm(x.double(), (8,)) for x in (query[0, head], key[0, head // 2]))
        found[head] = [(x @ means[head // 2].T).argmax(-1).tolist() for x in (q, k)]
        for i in range(30):
            mine, others = found[head][0][i], found[head][1]
            wanted = [j <= i and (i - j < 3 or j < 1 or others[j] == mine) for j in range(30)]
            assert read[head, i].tolist() == wanted
    assert len({tuple(own[0]) for own in found.values()}) > 1, "heads choose by themselves"


@pytest.mark.parametrize("family", FAMILIES)
def test_one_cluster_or_a_window_over_the_text_are_dense(family):
    lm, ids = tiny(family), token_ids()
    for fitted, window in ((centroids(1), 1), (centroids(), 48)):
        assert torch.equal(logits(lm, ids, ROUTING(fitted, window=window, n_sink=0)), logits(lm, ids))
    assert (logits(lm, ids, ROUTING(centroids(), window=2, n_sink=0)) - logits(lm, ids)).abs().max() > 1e-3


def test_of_equal_centroids_the_first_is_nearest(monkeypatch):
    """Whole numbers, so that equal centroids are equally near on every processor."""
    monkeypatch.setattr("analysis.methods.routing_transformer.normalised", lambda x: x)
    draw = torch.Generator().manual_seed(0)
    x, kept = (torch.randint(-3, 4, (*shape, 8), generator=draw).float() for shape in ((1, 2, 40), (2, 5)))
    method = ROUTING(centroids(), window=3)
    one, two = method._members(x, kept), method._members(x, torch.cat([kept, kept[..., :1, :]], -2))
    assert one[..., 0].any() and torch.equal(two[..., :-1], one) and not two[..., -1].any()


def test_reads_count_the_centroids():
    lm, counter, method = tiny("llama"), ReadCounter(40), ROUTING(centroids(), window=40)
    with torch.no_grad(), apply(lm, method, watch=counter):
        lm(token_ids(1, 40), use_cache=False)
    reads = counter.reads(method)
    assert reads.reads_causal == 1.0 and reads.kv_read == pytest.approx(1 + C / 2 * 40 / (40 * 41 / 2))


# --- the literal choice -----------------------------------------------------------------------------------------------


def test_the_literal_choice_by_hand():
    """Each cluster takes the ceil(T / C) queries, and as many keys, of largest similarity in the whole text."""
    lm, ids, fitted = tiny("llama"), token_ids(1, 23), centroids()
    read = read_by(lm, ROUTING(fitted, window=2, n_sink=0, membership="literal"), ids)[0][0]
    query, key, _, _ = vectors(lm, ids)[0]
    for head in range(4):
        sides = []
        for x in (query[0, head], key[0, head // 2]):
            similar = F.layer_norm(x.double(), (8,)) @ fitted["kept"][0, 0].double().T  # [T, C]
            sides.append([set(similar[:, c].topk(5).indices.tolist()) for c in range(C)])
        for i in range(23):
            shared = {j for c in range(C) if i in sides[0][c] for j in sides[1][c]}
            assert read[head, i].tolist() == [j <= i and (i - j < 2 or j in shared) for j in range(23)]


def test_the_literal_choice_lets_the_future_in_and_the_causal_one_does_not():
    lm, ids = tiny("llama"), token_ids()
    changed = ids.clone()
    changed[:, 30:] = token_ids(seed=9)[:, 30:]
    moved = {}
    for membership in ("causal", "literal"):
        method = ROUTING(centroids(), window=3, membership=membership)
        moved[membership] = (logits(lm, ids, method) - logits(lm, changed, method))[:, :30].abs().max()
    assert moved["causal"] < 1e-5 and moved["literal"] > 1e-2
    with apply(lm, method), pytest.raises(BadSetting, match="cannot decode token by token"):
        lm.generate(ids, max_new_tokens=3, do_sample=False)


def test_padding_takes_no_place_in_a_cluster():
    lm, (ids, mask) = tiny("llama"), left_padded(2, 40)
    method = ROUTING(centroids(), window=3)
    padded = logits(lm, ids, method, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0))[1:, 5:]
    assert (padded - logits(lm, ids[1:, 5:], method)).abs().max() < 1e-4
    literal = ROUTING(centroids(), membership="literal")
    literal.real_ = mask.bool()
    draw = torch.Generator().manual_seed(0)
    rows = literal.encode_tokens(0, *(torch.randn(2, n, 40, 8, generator=draw) for n in (4, 2)), 0, None, None)
    assert rows.shape == (2, 40, 6, C) and not rows[1, :5].any() and (rows[1].sum(0) == 8).all()


# --- calibration ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_centroids_are_k_means_of_queries_and_keys(family):
    model, ids = load_model(tiny(family), tokenizer=None), token_ids(2, 30)
    fitted = ROUTING(clusters=3, seed=4).fit(model, ids).fitted
    kv_heads = 4 if family == "gpt2" else 2
    assert {name: tuple(x.shape) for name, x in fitted.tensors.items()} == dict.fromkeys(
        ("kept", "undone"), (LAYERS, kv_heads, 3, 8)
    )
    calls = [vectors(model.lm, row[None]) for row in ids]
    for layer in range(LAYERS):
        for head in range(kv_heads):
            rows = []
            for call in calls:
                query, key, _, _ = call[layer]
                mine = query[0].unflatten(0, (kv_heads, -1))[head].flatten(0, 1)
                rows += [normalised(mine), normalised(key[0, head])]
            assert torch.allclose(fitted["kept"][layer, head], spherical_kmeans(torch.cat(rows), 3, 4)[0], atol=1e-5)
    assert torch.equal(fitted["kept"], fitted["undone"]) == (family == "gpt2")
    with apply(model, ROUTING(fitted, window=4)):
        model.lm(ids, use_cache=False)


def test_what_is_fitted_is_stored_and_found_again(tmp_path):
    tiny_models(tmp_path)
    context = Context(state=tmp_path / "state", browser=False)
    model = context.model(str(tmp_path / "tiny"))
    made = fitted_for(context, model, "routing_transformer")
    assert (tmp_path / "state" / "methods" / "routing_transformer.safetensors").is_file()
    assert made["kept"].shape == (model.num_layers, model.num_kv_heads, 16, model.head_dim)
    again = fitted_for(Context(state=tmp_path / "state", browser=False), model, "routing_transformer")
    assert torch.equal(made["undone"], again["undone"])
    other = fit_method(str(tmp_path / "tiny"), "routing_transformer", seed=1, context=context)
    assert other.numbers["protocol"]["seed"] == 1
    assert not torch.equal(fitted_for(context, model, "routing_transformer")["kept"], made["kept"])


def test_what_it_cannot_run_on_is_refused():
    lm = tiny("llama")
    with pytest.raises(NotFitted, match="no centroids yet"):
        ROUTING().check(lm)
    with pytest.raises(BadSetting, match=r"kept of shape \[2, 1, 5, 8\] and this model needs \[3, 1, 'any', 8\]"):
        ROUTING(centroids(layers=2)).check(lm)
    with pytest.raises(BadSetting, match="window of Routing Transformer is 0 and must lie between"):
        ROUTING(centroids(), window=0)
    with pytest.raises(BadSetting, match="rotary of Routing Transformer is .half. and must"):
        ROUTING(centroids(), rotary="half")
    assert ROUTING(centroids()).clusters == C, "what was fitted"
