"""MagicPIG: codes and collisions by hand, what a collision is worth, sums right on average, and calibration."""

import math

import pytest
import torch

from analysis.errors import BadSetting, BadText, NotFitted
from analysis.fitted import Fitted
from analysis.kernels.collisions import _by_torch, collide, hash_codes
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.models import load_model
from analysis.seam.attention import Block, apply
from analysis.studies.context import Context
from analysis.studies.ready.fitted import fit_method, fitted_for
from tests.made.evaluating import tiny_models
from tests.made.tiny import FAMILIES, LAYERS, tiny, token_ids

PIG = METHODS["magicpig"]
ALL_READ = {"n_sink": 0, "window": 1, "dense_every": 128}


def nothing(layers=LAYERS, heads=4, kv_heads=1, dim=8) -> Fitted:
    """Means of zero and norms of 9."""
    shapes = {"query": (layers, heads, dim), "key": (layers, kv_heads, dim)}
    return Fitted("magicpig", {n: torch.zeros(s) for n, s in shapes.items()} | {"norm": torch.full((layers, 1), 9.0)})


def drawn(method, dim, seed):
    """`method` with its random planes, as `check` draws them for heads of `dim`."""
    rows = dim + (method.variant == "hub")
    method._planes = torch.randn(rows, method.tables, method.bits, generator=torch.Generator().manual_seed(seed))
    return method


def block(method, query, key, layer=1):
    """A whole text of queries [H, T, D] and keys [G, T, D] as the seam hands it to a method, with a scaling of 1."""
    rows = method.encode_tokens(layer, query[None], key[None], 0, None, None)
    places = torch.arange(query.shape[1])
    scores = (query @ key.repeat_interleave(len(query) // len(key), 0).mT)[None]
    visible = (places <= places[:, None])[None, None]
    return Block(layer, scores, visible, places, places, torch.zeros(1).long(), rows, rows)


def random_states(heads=2, kv_heads=1, length=10, dim=6, seed=0, size=0.6):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(n, length, dim, generator=draw) * size for n in (heads, kv_heads, kv_heads)]


def logits(lm, ids, method=None):
    with torch.no_grad(), apply(lm, method or Method()):
        return lm(ids, use_cache=False).logits


# --- hashing ----------------------------------------------------------------------------------------------------------


def test_codes_by_hand():
    planes = torch.tensor([[[1.0, 0, -1], [0, 1, 1]], [[0, 1, 1], [1, 0, -1]]])  # [D 2, L 2, K 3]
    # table 0: x, y, y - x; table 1: y, x, x - y
    assert hash_codes(torch.tensor([[3.0, 1.0], [-1.0, 2.0]]), planes).tolist() == [[1 + 2, 1 + 2 + 4], [2 + 4, 1]]


@pytest.mark.parametrize("collide", [collide, _by_torch])
def test_collisions_are_counted_table_by_table(collide):
    draw = torch.Generator().manual_seed(0)
    for enough, apart in ((1, 1), (2, 1), (5, 1), (1, 100), (2, 100)):
        queries = torch.randint(0, 4, (2, 4, 7, 9), generator=draw).short() * apart
        keys = torch.randint(0, 4, (2, 2, 11, 9), generator=draw).short() * apart
        found = collide(queries, keys, enough)
        for b in range(2):
            for h in range(4):
                for i in range(7):
                    same = (queries[b, h, i] == keys[b, h // 2]).sum(-1)
                    assert torch.equal(found[b, h, i], same >= enough)
    many = torch.zeros(1, 1, 1, 600, dtype=torch.int16)
    assert collide(many, many, 600).all() and not collide(many, many, 601).any(), "counts do not run over"


@pytest.mark.parametrize("variant, needed", [("paper", 2), ("hub", 1)])
def test_the_chance_of_being_found_is_how_often_it_happens(variant, needed):
    method = PIG(nothing(), bits=4, tables=8, variant=variant)
    cosine = torch.tensor([-0.6, 0.0, 0.4, 0.8, 1.0])
    told, draw = method.chance(cosine), torch.Generator().manual_seed(0)
    p = (1 - cosine.double().acos() / math.pi) ** 4
    by_hand = [
        sum(math.comb(8, n) * x**n * (1 - x) ** (8 - n) for n in range(needed, 9)) for x in p.tolist()
    ]  # at least so many of 8 independent tables
    assert told.tolist() == pytest.approx(by_hand, abs=1e-5)
    query, rounds = torch.tensor([[1.0, 0.0]]), 4000
    key = torch.stack([cosine, (1 - cosine.square()).sqrt()], -1)
    planes = torch.randn(2, 8 * rounds, 4, generator=draw)
    same = (hash_codes(query, planes) == hash_codes(key, planes)).unflatten(-1, (rounds, 8)).sum(-1) >= needed
    assert torch.allclose(same.float().mean(-1), told, atol=4 * 0.5 / rounds**0.5)


@pytest.mark.parametrize("variant", ["paper", "hub"])
def test_chances_are_exact_also_where_hardly_a_table_finds_a_key(variant):
    cosine = torch.linspace(-1, 1, 2001)
    for bits in (1, 4, 10, 15):
        method = PIG(nothing(), bits=bits, variant=variant)
        told, exact = method.chance(cosine), method.chance(cosine.double())
        assert torch.allclose((told + 1e-4).log().double(), (exact + 1e-4).log(), atol=1e-4)
        p = (1 - cosine[1:].double().acos() / math.pi) ** bits
        missed = (1 - p) ** 150 if variant == "hub" else (1 - p) ** 149 * (1 + 149 * p)
        assert torch.allclose(exact[1:], 1 - missed, atol=1e-6)


def test_the_papers_chances():
    """K = 10, L = 150: orthogonal keys are found with 1%, keys of cosine 0.6 with 94%; one table would find 14%."""
    cosine = torch.tensor([0.0, 0.6])
    assert PIG(nothing()).chance(cosine).tolist() == pytest.approx([0.0097, 0.943], abs=1e-3)
    assert PIG(nothing(), variant="hub").chance(cosine).tolist() == pytest.approx([0.136, 0.990], abs=1e-3)


# --- sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["paper", "hub"])
def test_both_sums_are_right_on_average_over_seeds(variant, monkeypatch):
    """Numerator and denominator of the softmax over sampled keys, against those over all keys, without the slack."""
    monkeypatch.setattr("analysis.methods.magicpig.SLACK", 0.0)
    query, key, value = random_states()
    found, plain, rounds = [], [], 600
    for seed in range(rounds):
        method = drawn(PIG(nothing(heads=2, dim=6), bits=2, tables=8, variant=variant, **ALL_READ), 6, seed)
        one = block(method, query, key)
        weights = (method.scores(one).double().exp() * (method.mask(one) & one.visible))[0]  # [H, T, T]
        found.append(torch.cat([weights.sum(-1, keepdim=True), weights @ value.double()], -1))
        plain.append((one.scores.double().exp() * (weights > 0))[0].sum(-1))
    found, plain = torch.stack(found), torch.stack(plain)  # [rounds, H, T, 1 + D]
    dense = ((query @ key.mT).double().exp()) * torch.ones(10, 10).tril()
    wanted = torch.cat([dense.sum(-1, keepdim=True), dense @ value.double()], -1)
    error = found.std(0) / rounds**0.5
    off = (found.mean(0) - wanted)[:, 1:] / error[:, 1:]  # the first query reads itself, always
    assert off.abs().max() < 4.5, "as far off as chance takes it"
    unweighted = (plain.mean(0) - wanted[..., 0])[:, 1:] / (plain.std(0) / rounds**0.5)[:, 1:]
    assert unweighted.max() < -4.5, "sums without the weights are far too small, and that would be seen"


def test_the_error_of_the_output_falls_with_more_tables(monkeypatch):
    query, key, value = random_states(length=40, dim=8, size=1.0)
    dense = torch.softmax((query @ key.mT).masked_fill(~torch.ones(40, 40).tril().bool(), -torch.inf), -1) @ value
    errors = []
    for tables in (4, 20, 100, 500):
        off = 0.0
        for seed in range(5):
            method = drawn(PIG(nothing(heads=2), bits=4, tables=tables, **ALL_READ), 8, seed)
            one = block(method, query, key)
            read = method.mask(one) & one.visible
            out = torch.softmax(method.scores(one).masked_fill(~read, -torch.inf), -1)[0] @ value
            off += (out - dense).norm() / 5
        errors.append(float(off / dense.norm()))
    assert errors == sorted(errors, reverse=True) and errors[-1] < 0.05 < errors[0]


def test_what_is_always_read_keeps_its_score():
    query, key, _ = random_states(length=12, dim=8)
    method = drawn(PIG(nothing(heads=2), bits=5, tables=4, n_sink=2, window=3, dense_every=2), 8, 0)
    one = block(method, query, key)
    scores, kept = method.scores(one), method.mask(one)
    near = (one.distances() < 3) | (one.columns < 2)
    assert kept[..., near].all() and torch.equal(scores[..., near], one.scores[..., near])
    rest = ~near & one.visible[0, 0]
    assert (scores[..., rest] > one.scores[..., rest]).any() and not kept[..., rest].all()
    cosine = torch.nn.functional.cosine_similarity(query[:, :, None].double(), key[:, None].double(), dim=-1)
    wanted = one.scores[0].double() - (method.chance(cosine) + 1e-4).log()
    assert torch.allclose(scores[0, :, rest].double(), wanted[:, rest], atol=1e-3)
    assert method.mask(block(drawn(method, 8, 0), query, key, layer=1)) is not None
    assert method.reads_all(0) and method.reads_all(2) and not method.reads_all(1)


def test_a_mean_taken_from_all_keys_is_nothing_to_the_softmax():
    """Only what is hashed is centred: with everything read, any mean gives dense attention."""
    lm, ids = tiny("llama"), token_ids()
    fitted = nothing()
    fitted.tensors["key"] += 3.0
    assert torch.equal(logits(lm, ids, PIG(fitted, window=48)), logits(lm, ids))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_window_over_the_text_or_dense_layers_are_dense(family):
    lm, ids = tiny(family), token_ids()
    for settings in ({"window": 48}, {"n_sink": 48}, {"dense_every": 1, "window": 1}):
        assert torch.equal(logits(lm, ids, PIG(nothing(), **settings)), logits(lm, ids))
    few = PIG(nothing(), bits=12, tables=2, window=2, n_sink=0, dense_every=128)
    assert (logits(lm, ids, few) - logits(lm, ids)).abs().max() > 1e-3


def test_a_seed_decides_everything():
    lm, ids = tiny("llama"), token_ids()
    settings = {"bits": 4, "tables": 4, "window": 2, "n_sink": 0}
    one, same, other = (logits(lm, ids, PIG(nothing(), seed=seed, **settings)) for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)


# --- the mean of the keys before a block ------------------------------------------------------------------------------


@pytest.mark.parametrize("variant, needed", [("paper", 2), ("hub", 1)])
def test_keys_are_hashed_without_the_mean_of_those_before_their_block(variant, needed, monkeypatch):
    monkeypatch.setattr("analysis.methods.magicpig.QUERIES", 4)
    query, key, _ = random_states(length=11, dim=6)
    fitted = nothing(heads=2, dim=6)
    fitted.tensors["key"] += 0.7
    settings = {"bits": 3, "tables": 6, "n_sink": 0, "window": 1, "dense_every": 0, "variant": variant}
    method = drawn(PIG(fitted, centre="blocks", **settings), 6, 0)
    one = block(method, query, key)
    kept, scores = method.mask(one)[0], method.scores(one)[0]
    for i in range(11):
        begin = i // 4 * 4
        plain = Fitted("magicpig", dict(fitted.tensors))
        if begin:
            plain.tensors["key"] = plain.tensors["key"].clone()
            plain.tensors["key"][1] = key[:, :begin].mean(1)
        alone = drawn(PIG(plain, **settings), 6, 0)
        other = block(alone, query, key)
        assert torch.equal(kept[:, i], alone.mask(other)[0, :, i]), "as with that mean for the whole text"
        assert torch.allclose(scores[:, i], alone.scores(other)[0, :, i], atol=1e-5)
    assert not torch.equal(kept[:, 4:], method_kept(PIG(fitted, **settings), query, key)[:, 4:])


def method_kept(method, query, key):
    method = drawn(method, 6, 0)
    return method.mask(block(method, query, key))[0]


def test_a_block_reads_no_future_and_padding_moves_no_block(monkeypatch):
    monkeypatch.setattr("analysis.methods.magicpig.QUERIES", 8)
    lm, ids = tiny("llama"), token_ids(1, 30)
    method = PIG(nothing(), centre="blocks", bits=3, tables=6, window=2, n_sink=1, dense_every=0)
    whole = logits(lm, ids, method)
    changed = ids.clone()
    changed[0, 20:] = (changed[0, 20:] + 7) % 50
    assert torch.allclose(logits(lm, changed, method)[:, :20], whole[:, :20], atol=1e-5)
    assert (
        whole - logits(lm, ids, PIG(nothing(), bits=3, tables=6, window=2, n_sink=1, dense_every=0))
    ).abs().max() > 0
    padded = torch.cat([torch.zeros(1, 5, dtype=ids.dtype), ids], 1)
    mask = torch.ones_like(padded)
    mask[:, :5] = 0
    places = (mask.cumsum(1) - 1).clamp(min=0)  # hashes are of rotated keys
    with torch.no_grad(), apply(lm, method):
        found = lm(padded, attention_mask=mask, position_ids=places, use_cache=False).logits[:, 5:]
    assert torch.allclose(found, whole, atol=1e-4)


# --- calibration ------------------------------------------------------------------------------------------------------


def test_means_are_those_of_the_calibration_text():
    model, ids, states = load_model(tiny("qwen3"), tokenizer=None), token_ids(3, 20), {}

    class Seen(Method):
        def encode_tokens(self, layer, query, key, past, module, tables):
            states[layer] = query.double(), key.double()

    fitted = PIG().fit(model, ids).fitted
    with torch.no_grad(), apply(model, Seen()):
        model.lm(ids, use_cache=False)
    for layer, (query, key) in states.items():
        assert torch.allclose(fitted["query"][layer].double(), query.mean((0, 2)), atol=1e-5)
        assert torch.allclose(fitted["key"][layer].double(), key.mean((0, 2)), atol=1e-5)
        away = (key - key.mean((0, 2))[:, None]).norm(dim=-1)
        assert torch.allclose(fitted["norm"][layer].double(), away.amax((0, 2)), atol=1e-4)


def test_what_is_fitted_is_stored_found_again_and_refused_when_damaged(tmp_path):
    tiny_models(tmp_path)
    context = Context(state=tmp_path / "state", browser=False)
    model = context.model(str(tmp_path / "tiny"))
    made = fitted_for(context, model, "magicpig")
    path = tmp_path / "state" / "methods" / "magicpig.safetensors"
    assert path.is_file() and made.about["revision"] == model.revision
    assert "without the story" in made.about["protocol"]["texts"]
    again = fitted_for(Context(state=tmp_path / "state", browser=False), model, "magicpig")
    assert all(torch.equal(made[name], again[name]) for name in ("query", "key", "norm")) and again.about == made.about
    text = context.add_text("a text", "the cat sat on the mat and saw a dog far from home. " * 20)
    result = fit_method(str(tmp_path / "tiny"), "magicpig", [text], context=context)
    assert result.numbers["path"] == str(path) and result.numbers["tensors"]["key"] == [LAYERS, 2, 8]
    assert not torch.equal(fitted_for(context, model, "magicpig")["key"], made["key"])
    with pytest.raises(BadSetting, match="'dense' is not calibrated by this verb; it calibrates: focal_learned"):
        fit_method(str(tmp_path / "tiny"), "dense", context=context)
    short = context.add_text("short", "the cat")
    with pytest.raises(BadText, match="a calibration window needs 64: give more"):
        fit_method(str(tmp_path / "tiny"), "magicpig", [short], context=context)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(BadSetting, match="run `fit-method magicpig` again"):
        Fitted.load(path)
    with pytest.raises(NotFitted, match="Nothing was fitted for magicpig"):
        Fitted.load(tmp_path / "magicpig.safetensors")


def test_what_it_cannot_run_on_is_refused():
    lm = tiny("llama")
    with pytest.raises(NotFitted, match="no key means yet: calibrate it with `fit-method magicpig`"):
        PIG().check(lm)
    with pytest.raises(BadSetting, match=r"query of shape \[2, 4, 8\] and this model needs \[3, 4, 8\]"):
        PIG(nothing(layers=2)).check(lm)
    with pytest.raises(BadSetting, match=r"key of shape \[3, 4, 8\] and this model needs \[3, 2, 8\]"):
        PIG(nothing(kv_heads=4)).check(lm)
    for settings, said in {"bits": 16, "tables": 1, "variant": "pig", "seed": -1}.items():
        with pytest.raises(BadSetting, match=f"{settings} of MagicPIG is {said!r} and must"):
            PIG(**{settings: said})
