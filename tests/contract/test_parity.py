"""Loading a model compares the seam with the stock model on a small copy: what is not the same is refused."""

from dataclasses import replace

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from analysis.errors import BadModel
from analysis.files import read_json
from analysis.kernels.scoring import Scoring
from analysis.models import load_model
from analysis.seam import attention, parity, reference
from analysis.seam.layers import has_attention
from tests.made.families import configured
from tests.made.tiny import CONFIGS, GROUPED, VERIFIED, tiny, token_ids
from tests.made.tiny_tokenizer import byte_level

LARGE = {  # sizes of models that people load; every other number is the configuration's own
    "llama": dict(num_hidden_layers=80, hidden_size=8192, num_attention_heads=64, num_key_value_heads=8),
    "gpt2": {},
    "mistral": {},
    "gemma2": {},
    "gemma3_text": dict(num_hidden_layers=48),
    "qwen3_moe": dict(num_hidden_layers=48),
    "mixtral": {},
    "llama4_text": {},
    "phi3": {},
    "smollm3": {},
    "olmo3": {},
    "granite": {},
    "helium": {},
    "cohere2": {},
    "glm4_moe": {},
    "ernie4_5_moe": {},
    "hunyuan_v1_dense": {},
}
REFUSED = {  # family -> a word of the sentence
    "diffllama": "attends twice",
    "bert": "both directions",
    "bart": "places of its KV cache",
    "falcon": "no layer of softmax attention",
}


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
    """Nothing was tried yet."""
    monkeypatch.setattr(parity, "_checked", {})
    monkeypatch.setattr(parity, "KEPT", parity.KEPT.with_name("missing.json"))


def spans(text) -> dict[str, int]:
    """The windows, chunks, blocks and top-k of a configuration."""
    numbers = {name: value for name, value in vars(text).items() if parity.SPAN.search(name) and "layer" not in name}
    return {name: value for name, value in numbers.items() if type(value) is int}


@pytest.mark.parametrize("family", LARGE)
def test_a_small_copy_has_every_kind_of_layer_and_agrees(family):
    config = configured(family, **LARGE[family])
    before, small = config.to_dict(), parity.small_config(config)
    assert config.to_dict() == before
    text = small.get_text_config()
    assert set(getattr(text, "layer_types", None) or []) == set(getattr(config, "layer_types", None) or [])
    assert all(value <= 32 < parity.LENGTH for value in spans(text).values())
    assert 2 <= text.num_hidden_layers <= 8 and text.vocab_size == parity.VOCABULARY
    with torch.device("meta"):
        assert sum(p.numel() for p in AutoModelForCausalLM.from_config(small).parameters()) < 12e6
    agreement = parity.check(config)
    assert agreement.same and agreement.tokens == parity.LENGTH and agreement.largest > 0.01
    assert agreement.difference < parity.ROUNDING / 5 * agreement.largest, "far from what is refused"


@pytest.mark.slow
@pytest.mark.parametrize("family", [*CONFIGS, *VERIFIED])
def test_every_verified_family_loads(family):
    lm, state = tiny(family), torch.random.get_rng_state()
    assert load_model(lm, tokenizer=byte_level()).lm is lm
    assert torch.equal(torch.random.get_rng_state(), state)


def why(family):
    """A word of the sentence; the attention of an older transformers' DiffLlama cannot be followed at all."""
    if family == "diffllama":
        with torch.device("meta"):
            followed = has_attention(AutoModelForCausalLM.from_config(configured(family)))
        return REFUSED[family if followed else "falcon"]
    return REFUSED[family]


@pytest.mark.parametrize("family", REFUSED)
def test_what_would_be_computed_otherwise_is_refused_in_one_sentence(family):
    with pytest.raises(BadModel) as caught:
        parity.check(configured(family))
    sentence = str(caught.value)
    assert why(family) in sentence and sentence.endswith(".") and "\n" not in sentence and len(sentence) < 400


def test_a_refused_model_is_refused_before_its_weights_are_read(tmp_path, monkeypatch):
    family = configured("diffllama")
    parity.small_config(family).save_pretrained(tmp_path)
    byte_level().save_pretrained(tmp_path)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *a, **k: pytest.fail("weights were read"))
    with pytest.raises(BadModel, match=why("diffllama")):
        load_model(str(tmp_path))


BROKEN = {
    "the kernel": (attention, "dense", lambda real: lambda *a: real(*a) * 1.01),
    "the scores": (reference, "_probabilities", lambda real: lambda *a: real(*a) * 1.01),
    "where a continued text begins": (reference, "past_length", lambda real: lambda *arguments: 0),
    "a token in the cache": (reference, "past_length", lambda real: lambda *arguments: max(0, real(*arguments) - 1)),
}


@pytest.mark.parametrize("part", BROKEN)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_seam_that_computes_otherwise_is_refused(part, family, monkeypatch):
    module, name, broken = BROKEN[part]
    config = tiny(family).config
    assert parity.check(config).same
    parity._checked.clear()
    monkeypatch.setattr(module, name, broken(getattr(module, name)))
    with pytest.raises(BadModel):
        parity.check(config)


def test_what_counts_as_agreement(monkeypatch):
    exact = parity.Parity(0.0, 0.0, 1.0, 96)
    assert exact.same and not replace(exact, decoded=float("nan")).same and not replace(exact, one_pass=1e-3).same
    result = parity.parity(tiny("mistral"), token_ids(1, 40))
    assert result.tokens == 40 and result.same and result.difference == max(result.one_pass, result.decoded)
    config = configured("granite", **GROUPED, attention_multiplier=0.5)
    monkeypatch.setattr(reference, "Scoring", lambda factor, softcap: Scoring(0.25, softcap))  # 1 / sqrt(16)
    with pytest.raises(BadModel, match="compute something else"):
        parity.check(config)


def test_a_kind_is_tried_once(monkeypatch):
    runs = []
    real = parity.of_random_weights
    monkeypatch.setattr(parity, "of_random_weights", lambda small: runs.append(small) or real(small))
    first = configured("llama", **GROUPED)
    longer = configured("llama", **{**GROUPED, "num_hidden_layers": 9, "vocab_size": 500, "bos_token_id": 129})
    assert parity.check(first) is parity.check(longer) and len(runs) == 1
    parity.check(configured("llama", **GROUPED, attention_bias=True))
    assert len(runs) == 2


def test_the_bundled_model_was_tried_with_the_tested_versions(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(parity, "_checked", {})
    config = CONFIG_MAPPING["llama"].from_pretrained(parity.KEPT.parent)
    stored, small = read_json(parity.KEPT), parity.small_config(config)
    fresh = parity.of_random_weights(small)
    assert fresh.same and parity.Parity(**stored["parity"]).same
    if stored["versions"] == parity.versions():
        assert stored["kind"] == parity.kind(small)
        monkeypatch.setattr(parity, "of_random_weights", lambda small: pytest.fail("nobody waits for it"))
    parity.check(config)
