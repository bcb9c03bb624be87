"""MagicPIG: codes and collisions by hand, what a collision is worth, sums right on average, and calibration."""

import math

import pytest
import torch

from analysis.errors import BadSetting, BadText, NotFitted
from analysis.fitted import Fitted
from analysis.kernels.collisions import _by_torch, collide, hash_codes
from analysis.methods import METHODS
from analysis.models import load_model
from analysis.studies.context import Context
from analysis.studies.ready.calibration import fitted_for
from tests.made.evaluating import tiny_models
from tests.made.fitting import fit
from tests.made.passes import block, logits, normal_states, seen
from tests.made.tiny import LAYERS, tiny, token_ids

PIG = METHODS["magicpig"]
ALL_READ = {"n_sink": 0, "window": 1, "dense_every": 128}


def zeros(heads=4, dim=8) -> Fitted:
    """Means of zero and norms of 9."""
    shapes = {"query": (LAYERS, heads, dim), "key": (LAYERS, 1, dim)}
    return Fitted("magicpig", {n: torch.zeros(s) for n, s in shapes.items()} | {"norm": torch.full((LAYERS, 1), 9.0)})


def drawn(method, dim, seed=0):
    """`method` with its random planes, as `check` draws them for heads of `dim`."""
    rows = dim + (method.variant == "hub")
    method._planes = torch.randn(rows, method.tables, method.bits, generator=torch.Generator().manual_seed(seed))
    return method


def text(method, query, key):
    """A whole text of queries [H, T, D] and keys [G, T, D] as the seam hands it to a method, with a factor of 1."""
    rows = method.encode_tokens(1, query[None], key[None], 0, None, None)
    return block(query @ key.repeat_interleave(len(query) // len(key), 0).mT, layer=1, rows=rows)


def test_codes_and_the_papers_chances_by_hand():
    planes = torch.tensor([[[1.0, 0, -1], [0, 1, 1]], [[0, 1, 1], [1, 0, -1]]])  # [D 2, L 2, K 3]
    # table 0: x, y, y - x; table 1: y, x, x - y
    assert hash_codes(torch.tensor([[3.0, 1.0], [-1.0, 2.0]]), planes).tolist() == [[1 + 2, 1 + 2 + 4], [2 + 4, 1]]
    # K = 10, L = 150: orthogonal keys are found with 1%, keys of cosine 0.6 with 94%; one table would find 14%.
    cosine = torch.tensor([0.0, 0.6])
    assert PIG(zeros()).chance(cosine).tolist() == pytest.approx([0.0097, 0.943], abs=1e-3)
    assert PIG(zeros(), variant="hub").chance(cosine).tolist() == pytest.approx([0.136, 0.990], abs=1e-3)


@pytest.mark.parametrize("collide", [collide, _by_torch])
def test_collisions_are_counted_table_by_table(collide):
    draw = torch.Generator().manual_seed(0)
    for enough, apart in ((1, 1), (2, 1), (5, 1), (1, 100), (2, 100)):
        queries = torch.randint(0, 4, (2, 4, 7, 9), generator=draw).short() * apart
        keys = torch.randint(0, 4, (2, 2, 11, 9), generator=draw).short() * apart
        equal = queries.unflatten(1, (2, 2))[:, :, :, :, None] == keys[:, :, None, None]
        assert torch.equal(collide(queries, keys, enough), (equal.sum(-1) >= enough).flatten(1, 2))
    codes = torch.zeros(1, 1, 1, 600, dtype=torch.int16)
    assert collide(codes, codes, 600).all() and not collide(codes, codes, 601).any(), "counts do not run over"


@pytest.mark.parametrize("variant, needed", [("paper", 2), ("hub", 1)])
def test_the_chance_of_being_found_is_how_often_it_happens(variant, needed):
    method = PIG(zeros(), bits=4, tables=8, variant=variant)
    cosine = torch.tensor([-0.6, 0.0, 0.4, 0.8, 1.0])
    chances, draw = method.chance(cosine), torch.Generator().manual_seed(0)
    p = (1 - cosine.double().acos() / math.pi) ** 4
    by_hand = [
        sum(math.comb(8, n) * x**n * (1 - x) ** (8 - n) for n in range(needed, 9)) for x in p.tolist()
    ]  # at least so many of 8 independent tables
    assert chances.tolist() == pytest.approx(by_hand, abs=1e-5)
    query, rounds = torch.tensor([[1.0, 0.0]]), 4000
    key = torch.stack([cosine, (1 - cosine.square()).sqrt()], -1)
    planes = torch.randn(2, 8 * rounds, 4, generator=draw)
    collided = (hash_codes(query, planes) == hash_codes(key, planes)).unflatten(-1, (rounds, 8)).sum(-1) >= needed
    assert torch.allclose(collided.float().mean(-1), chances, atol=4 * 0.5 / rounds**0.5)


@pytest.mark.parametrize("variant", ["paper", "hub"])
def test_chances_are_exact_also_where_hardly_a_table_finds_a_key(variant):
    cosine = torch.linspace(-1, 1, 2001)
    for bits in (1, 4, 10, 15):
        method = PIG(zeros(), bits=bits, variant=variant)
        single, exact = method.chance(cosine), method.chance(cosine.double())
        assert torch.allclose((single + 1e-4).log().double(), (exact + 1e-4).log(), atol=1e-4)
        p = (1 - cosine[1:].double().acos() / math.pi) ** bits
        missed = (1 - p) ** 150 if variant == "hub" else (1 - p) ** 149 * (1 + 149 * p)
        assert torch.allclose(exact[1:], 1 - missed, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["paper", "hub"])
def test_both_sums_are_right_on_average_over_seeds(variant, monkeypatch):
    """Numerator and denominator of the softmax over sampled keys, against those over all keys, without the slack."""
    monkeypatch.setattr("analysis.methods.magicpig.SLACK", 0.0)
    query, key, value = normal_states(2, 1, 10, 6, size=0.6)
    sums, unweighted, rounds = [], [], 600
    for seed in range(rounds):
        method = drawn(PIG(zeros(2, 6), bits=2, tables=8, variant=variant, **ALL_READ), 6, seed)
        tokens = text(method, query, key)
        weights = (method.scores(tokens).double().exp() * (method.mask(tokens) & tokens.visible))[0]  # [H, T, T]
        sums.append(torch.cat([weights.sum(-1, keepdim=True), weights @ value.double()], -1))
        unweighted.append((tokens.scores.double().exp() * (weights > 0))[0].sum(-1))
    sums, unweighted = torch.stack(sums), torch.stack(unweighted)  # [rounds, H, T, 1 + D]
    dense = ((query @ key.mT).double().exp()) * torch.ones(10, 10).tril()
    wanted = torch.cat([dense.sum(-1, keepdim=True), dense @ value.double()], -1)
    off = (sums.mean(0) - wanted)[:, 1:] / (sums.std(0) / rounds**0.5)[:, 1:]  # the first query always reads itself
    assert off.abs().max() < 4.5, "as far off as chance takes it"
    short = (unweighted.mean(0) - wanted[..., 0])[:, 1:] / (unweighted.std(0) / rounds**0.5)[:, 1:]
    assert short.max() < -4.5, "sums without the weights are far too small, and that would be seen"


def test_the_error_of_the_output_falls_with_more_tables():
    query, key, value = normal_states(2, 1, 40)
    dense = torch.softmax((query @ key.mT).masked_fill(~torch.ones(40, 40).tril().bool(), -torch.inf), -1) @ value
    errors = []
    for tables in (4, 20, 100, 500):
        off = 0.0
        for seed in range(5):
            method = drawn(PIG(zeros(2), bits=4, tables=tables, **ALL_READ), 8, seed)
            tokens = text(method, query, key)
            read = method.mask(tokens) & tokens.visible
            out = torch.softmax(method.scores(tokens).masked_fill(~read, -torch.inf), -1)[0] @ value
            off += (out - dense).norm() / 5
        errors.append(float(off / dense.norm()))
    assert errors == sorted(errors, reverse=True) and errors[-1] < 0.05 < errors[0]


def test_what_is_always_read_keeps_its_score():
    query, key, _ = normal_states(2, 1, 12, size=0.6)
    method = drawn(PIG(zeros(2), bits=5, tables=4, n_sink=2, window=3, dense_every=2), 8)
    tokens = text(method, query, key)
    scores, reads = method.scores(tokens), method.mask(tokens)
    near = (tokens.distances() < 3) | (tokens.columns < 2)
    assert reads[..., near].all() and torch.equal(scores[..., near], tokens.scores[..., near])
    far = ~near & tokens.visible[0, 0]
    assert (scores[..., far] > tokens.scores[..., far]).any() and not reads[..., far].all()
    cosine = torch.nn.functional.cosine_similarity(query[:, :, None].double(), key[:, None].double(), dim=-1)
    wanted = tokens.scores[0].double() - (method.chance(cosine) + 1e-4).log()
    assert torch.allclose(scores[0, :, far].double(), wanted[:, far], atol=1e-3)
    assert method.reads_all(0) and method.reads_all(2) and not method.reads_all(1)


@pytest.mark.parametrize("variant", ["paper", "hub"])
def test_keys_are_hashed_without_the_mean_of_those_before_their_block(variant, monkeypatch):
    monkeypatch.setattr("analysis.methods.magicpig.QUERIES", 4)
    query, key, _ = normal_states(2, 1, 11, 6, size=0.6)
    fitted = zeros(2, 6)
    fitted.tensors["key"] += 0.7
    settings = {"bits": 3, "tables": 6, "n_sink": 0, "window": 1, "dense_every": 0, "variant": variant}
    by_blocks = drawn(PIG(fitted, centre="blocks", **settings), 6)
    tokens = text(by_blocks, query, key)
    reads, scores = by_blocks.mask(tokens)[0], by_blocks.scores(tokens)[0]
    for i in range(11):
        plain = Fitted("magicpig", dict(fitted.tensors))
        if begin := i // 4 * 4:
            plain.tensors["key"] = plain.tensors["key"].clone()
            plain.tensors["key"][1] = key[:, :begin].mean(1)
        alone = drawn(PIG(plain, **settings), 6)
        tokens_alone = text(alone, query, key)
        assert torch.equal(reads[:, i], alone.mask(tokens_alone)[0, :, i]), "as with that mean for the whole text"
        assert torch.allclose(scores[:, i], alone.scores(tokens_alone)[0, :, i], atol=1e-5)
    of_whole_text = drawn(PIG(fitted, **settings), 6)
    assert not torch.equal(reads[:, 4:], of_whole_text.mask(text(of_whole_text, query, key))[0][:, 4:])


def test_a_block_reads_no_future_and_padding_moves_no_block(monkeypatch):
    monkeypatch.setattr("analysis.methods.magicpig.QUERIES", 8)
    lm, ids = tiny("llama"), token_ids(1, 30)
    settings = {"bits": 3, "tables": 6, "window": 2, "n_sink": 1, "dense_every": 0}
    method = PIG(zeros(), centre="blocks", **settings)
    logits_before = logits(lm, ids, method)
    changed = ids.clone()
    changed[0, 20:] = (changed[0, 20:] + 7) % 50
    assert torch.allclose(logits(lm, changed, method)[:, :20], logits_before[:, :20], atol=1e-5)
    assert (logits_before - logits(lm, ids, PIG(zeros(), **settings))).abs().max() > 0
    padded = torch.cat([torch.zeros(1, 5, dtype=ids.dtype), ids], 1)
    mask = torch.ones_like(padded)
    mask[:, :5] = 0
    places = (mask.cumsum(1) - 1).clamp(min=0)  # hashes are of rotated keys
    beside = logits(lm, padded, method, attention_mask=mask, position_ids=places)[:, 5:]
    assert torch.allclose(beside, logits_before, atol=1e-4)


def test_means_are_those_of_the_calibration_text_and_nothing_to_the_softmax():
    model, ids = load_model(tiny("qwen3"), tokenizer=None), token_ids(3, 20)
    fitted = PIG().fit(model, ids).fitted
    for layer, (query, key, *_) in seen(model.lm, ids).tokens.items():
        query, key = query.double(), key.double()
        assert torch.allclose(fitted["query"][layer].double(), query.mean((0, 2)), atol=1e-5)
        assert torch.allclose(fitted["key"][layer].double(), key.mean((0, 2)), atol=1e-5)
        away = (key - key.mean((0, 2))[:, None]).norm(dim=-1)
        assert torch.allclose(fitted["norm"][layer].double(), away.amax((0, 2)), atol=1e-4)
    # Only what is hashed is centred: with everything read, any mean gives dense attention.
    lm, ids, fitted = tiny("llama"), token_ids(), zeros()
    fitted.tensors["key"] += 3.0
    assert torch.equal(logits(lm, ids, PIG(fitted, window=48)), logits(lm, ids))


def test_what_is_fitted_is_stored_found_again_and_refused_when_damaged(tmp_path):
    tiny_models(tmp_path)
    context = Context(state=tmp_path / "state", browser=False)
    model = context.model(str(tmp_path / "tiny"))
    fitted = fitted_for(context, model, "magicpig")
    path = tmp_path / "state" / "methods" / "magicpig.safetensors"
    assert path.is_file() and fitted.about["revision"] == model.revision
    again = fitted_for(Context(state=tmp_path / "state", browser=False), model, "magicpig")
    assert all(torch.equal(fitted[name], again[name]) for name in ("query", "key", "norm"))
    assert again.about == fitted.about
    text = context.add_text("a text", "the cat sat on the mat and saw a dog far from home. " * 20)
    result = fit("magicpig", model, context, texts=[text])
    assert result.numbers["path"] == str(path) and result.numbers["tensors"]["key"] == [LAYERS, 2, 8]
    assert not torch.equal(fitted_for(context, model, "magicpig")["key"], fitted["key"])
    with pytest.raises(BadSetting, match="'dense' is not calibrated by this verb; it calibrates: focal_learned"):
        fit("dense", model, context)
    with pytest.raises(BadText, match="a calibration window needs 64: give more"):
        fit("magicpig", model, context, texts=[context.add_text("short", "the cat")])
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(BadSetting, match="run `fit-method magicpig` again"):
        Fitted.load(path)
    with pytest.raises(NotFitted, match="Nothing was fitted for magicpig"):
        Fitted.load(tmp_path / "magicpig.safetensors")
