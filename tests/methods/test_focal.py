"""Focal Attention: temperatures by hand, where the future leaks in and where it does not, and what is learned."""

import math

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting, NotFitted
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.focal import DENSE, FocalWeights, _Clip
from analysis.metrics.sparsity import ReadCounter
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.studies import STUDIES
from analysis.studies.context import Context
from analysis.studies.ready.candidates import candidates
from analysis.studies.training import pretrain
from analysis.training.focal import FocalTraining, train_temperatures
from tests.contract.test_contract import warm
from tests.made.passes import changed_end, logits, watched
from tests.made.tiny import LAYERS, tiny, token_ids

SMALL = {"layers": 1, "width": 32, "heads": 4, "kv_heads": 2, "intermediate": 48}
Focal, Learned = METHODS["focal"], METHODS["focal_learned"]


def test_the_softmax_by_hand_and_the_temperature_before_the_soft_cap():
    """Scores 2, 1 and 0 at t = 0.5 are 4, 2 and 0."""
    query, key = torch.tensor([[[[2.0], [1.0], [1.0]]]]), torch.tensor([[[[2.0], [1.0], [0.0]]]])
    sharper = Focal(t=0.5).scale_queries(0, query, None)
    assert sharper.flatten().tolist() == [4.0, 2.0, 2.0]
    weights = (sharper[0, 0, 2] * key[0, 0, :, 0]).softmax(-1)
    e = math.e
    assert weights.tolist() == pytest.approx([x / (e**4 + e**2 + 1) for x in (e**4, e**2, 1)])
    assert Focal(by_layer=(0.5, 2.0)).scale_queries(1, query, None).flatten().tolist() == [1.0, 0.5, 0.5]
    assert Method().scale_queries(0, query, None) is query
    lm, ids = tiny("gemma2"), token_ids(1, 20)
    plain, sharp = (watched(lm, method, ids)[0][0].scores.double() for method in (Method(), Focal(t=0.5)))
    raw, inside = torch.atanh(plain / 2) * 2, plain.abs() < 1.9
    assert torch.allclose(torch.tanh(raw * 2 / 2)[inside] * 2, sharp[inside], atol=1e-3)
    assert sharp.abs().max() <= 2


def test_tau_by_hand():
    """Three tokens whose x w is 2, 4 and -30, heads of 32: limits and offset are halved, 2.5 to 5 and 3."""
    rows = torch.tensor([[[2.0, 1], [4.0, 1], [-30.0, 1]]])
    ways = {mean: Learned.build(FocalWeights(1, 4, offset=6.0), mean=mean) for mean in ("prefix", "token", "literal")}
    taus = {mean: method.tau(rows, 32).flatten().tolist() for mean, method in ways.items()}
    assert taus["prefix"] == [5.0, 5.0, 2.5]  # 3 + 2, 3 + 3 clipped, 3 - 8 clipped
    assert taus["token"] == [5.0, 5.0, 2.5] and taus["literal"] == [2.5] * 3
    wide = Learned.build(FocalWeights(1, 4, offset=6.0), tau_max=14.0)
    assert wide.tau(rows, 32).flatten().tolist() == [5.0, 6.0, 2.5]
    padded = torch.tensor([[[0.0, 0], [2.0, 1], [4.0, 1]]])
    assert wide.tau(padded, 32).flatten().tolist()[1:] == [5.0, 6.0], "padding counts for nothing"
    scaled = wide.scale_queries(0, torch.ones(1, 1, 3, 32), rows)
    assert scaled[0, 0, :, 0].tolist() == pytest.approx([32**0.5 / tau for tau in (5.0, 6.0, 2.5)])
    last = wide.scale_queries(0, torch.ones(1, 1, 1, 32), rows)
    assert torch.equal(last, scaled[:, :, 2:]), "a step of decoding takes its own temperature"


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2"])
def test_the_literal_mean_reads_the_future_and_the_others_do_not(family):
    lm, ids = tiny(family), token_ids()
    for mean, leaks in (("prefix", False), ("token", False), ("literal", True)):
        method = Learned.build(warm(), mean=mean, tau_min=0.5, tau_max=32.0)
        gap = (logits(lm, ids, method) - logits(lm, changed_end(ids), method))[:, :30].abs().max()
        assert (gap > 1e-3) == leaks, (mean, gap)


def test_the_last_token_of_a_literal_mean_is_that_of_the_prefix_and_all_keys_are_read():
    rows = torch.randn(1, 9, 2).mul(torch.tensor([1.0, 0])).add(torch.tensor([0.0, 1]))
    a, b = (Learned.build(warm(), mean=mean, tau_min=0.5).tau(rows, 128) for mean in ("prefix", "literal"))
    assert a[0, -1] == pytest.approx(float(b[0, -1]), abs=1e-6) and not torch.allclose(a, b)
    for method in (Focal(), Learned.build(warm())):
        counter = ReadCounter(24)
        with torch.no_grad(), apply(tiny("llama"), method, watch=counter):
            tiny("llama")(token_ids(1, 24), use_cache=False)
        reads = counter.reads(method)
        assert reads.reads_causal == reads.kv_read == pytest.approx(1.0) and not method.ceiling


def test_a_gradient_reaches_the_weights_unless_the_paper_s_clip_stops_it():
    lm, ids = tiny("llama"), token_ids(1, 24)
    for kernels in (False, True):
        weights = warm()
        with apply(lm, Learned.build(weights), kernels=kernels):
            lm(ids, labels=ids, use_cache=False).loss.backward()
        assert all(weights.w.grad[layer].abs().max() > 0 for layer in range(LAYERS))
        lm.zero_grad()
    raw = torch.tensor([1.0, 1.0, 3.0, 9.0, 9.0], requires_grad=True)
    _Clip.apply(raw, 2.0, 5.0).backward(torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0]))
    assert raw.grad.tolist() == [0, -1, 1, 1, 0], "at a limit only what leads back inside"


def test_weights_come_back_from_a_file(tmp_path):
    path, weights = tmp_path / "a" / "learned.safetensors", warm()
    with pytest.raises(NotFitted, match="'learned.safetensors'"):
        FocalWeights.load(path)
    weights.save(path, kind="trained", mean="token", tau_max=11.0)
    again = FocalWeights.load(path)
    assert torch.equal(again.w, weights.w) and again.offset == 7.5 and again.about["kind"] == "trained"
    method = Learned.build(again, tau_min=4.0)
    assert (method.mean, method.tau_min, method.tau_max) == ("token", 4.0, 11.0)
    path.write_bytes(b"torn")
    with pytest.raises(BadSetting, match="damaged"):
        FocalWeights.load(path)


def test_training_moves_the_temperatures_and_leaves_the_model():
    model, ids = load_model(tiny("llama")), token_ids(1, 400, seed=5)[0].numpy()
    before = {name: (p.clone(), p.requires_grad) for name, p in model.lm.named_parameters()}
    plan = FocalTraining(steps=30, tokens_per_step=64, length=32, rate=0.02, warm_up=2, offset=8.0)
    weights, log = train_temperatures(model, ids, plan)
    assert log[-1]["held_out"] < log[0]["held_out"] and len(log) == 30
    assert np.allclose(log[0]["temperature"], 8.0 / DENSE, atol=1e-6) and len(log[-1]["temperature"]) == LAYERS
    assert weights.w.abs().max() > 0 and not weights.w.requires_grad and weights.about["steps"] == 30
    for name, p in model.lm.named_parameters():
        assert torch.equal(p, before[name][0]) and p.requires_grad == before[name][1] and p.grad is None
    with pytest.raises(BadSetting, match="needs 256"):
        train_temperatures(model, ids[:100], plan)


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["focal", "focal_learned"])
def test_pretraining_with_a_temperature_and_the_weights_beside_the_model(attention, tmp_path, monkeypatch):
    monkeypatch.setitem(pretrain.SIZES, "llama", SMALL)
    words = " ".join(f"w{n % 17} is {n % 5}" for n in range(1500))
    for folder, suffix in (("books", "txt"), ("python", "py")):
        for split in ("train", "valid"):
            (tmp_path / "corpus" / folder / split).mkdir(parents=True)
            (tmp_path / "corpus" / folder / split / f"a.{suffix}").write_text(f"{split} {words}")
    (tmp_path / "corpus" / "wikitext2").mkdir()
    for split in ("train", "valid"):
        (tmp_path / "corpus" / "wikitext2" / f"wiki.{split}.tokens").write_text(f" \n = {split} = \n \n {words} . \n")
    sizes = {"steps": 6, "length": 64, "tokens_per_step": 128, "vocabulary": 300, "attention": attention}
    out, context = tmp_path / "out", Context(device="cpu", browser=False)
    numbers = STUDIES["pretrain"](corpus=str(tmp_path / "corpus"), output=str(out), **sizes, context=context).numbers
    assert numbers["tokens"] == 6 * 128 and not (out / "focus").exists()
    text = context.add_text("words", words)

    def evaluate(method):
        ask = {"model": str(out), "text": text, "window": 64, "methods": [{"name": method}]}
        return STUDIES["evaluate"](**ask, context=context).numbers["rows"][0]

    if attention == "focal":
        assert not (out / "focal").exists()
        with pytest.raises(NotFitted, match="no learned temperatures"):
            evaluate("focal_learned")
        assert evaluate("focal")["method"] == "focal"
        return
    weights = FocalWeights.load(out / FocalWeights.place)
    assert weights.w.abs().max() > 0 and weights.about["kind"] == "trained", "they were trained with the model"
    row = evaluate("focal_learned")
    assert row["settings"] == {"mean": "prefix", "tau_min": 5.0, "tau_max": 10.0} and row["reads_causal"] == 1
    assert "focal_learned" in [candidate.name for candidate in candidates(context, context.model(str(out)), None)]
