"""Trained copies that stay: a LoRA as an adapter of peft's own format, others whole; both load as models."""

import json
from dataclasses import replace

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from analysis import available, places
from analysis.errors import BadModel
from analysis.models import load_model
from analysis.models.adapters import CONFIG, WEIGHTS
from analysis.training.copies import keep_copy
from analysis.training.focus import lora_copy
from analysis.training.steps import copy_of
from tests.made.models import save_models
from tests.made.tiny import token_ids


@pytest.fixture
def base(tmp_path, monkeypatch):
    """A model in a models_cache of its own."""
    monkeypatch.setattr(places, "CACHE", tmp_path)
    monkeypatch.setattr(available.places.hub().constants, "HF_HUB_CACHE", str(tmp_path / "no hub"))
    save_models(tmp_path, tiny=512)
    return load_model("tiny")


def changed(copy):
    """A copy whose trained weights are others than at the start."""
    torch.manual_seed(1)
    with torch.no_grad():
        for p in copy.lm.parameters():
            if p.requires_grad:
                p.add_(0.05 * torch.randn_like(p))
    return copy


def logits_of(model):
    with torch.no_grad():
        return model.lm(token_ids(1, 16), use_cache=False).logits


def test_a_lora_is_a_small_adapter_that_loads_merged_and_in_peft(base, tmp_path):
    tuned = changed(lora_copy(base, 2))
    name = keep_copy(tuned, base, "tiny-lora", {"rate": 1e-3})
    folder = tmp_path / name
    assert (folder / WEIGHTS).is_file() and not (folder / "model.safetensors").exists()
    loaded = load_model(name)
    assert not hasattr(loaded.lm, "peft_config") and type(loaded.lm) is type(base.lm)
    torch.testing.assert_close(logits_of(loaded), logits_of(tuned), rtol=1e-4, atol=1e-5)
    assert (logits_of(loaded) - logits_of(base)).abs().max() > 1e-3
    by_peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "tiny"), str(folder))
    with torch.no_grad():
        stock = by_peft(token_ids(1, 16), use_cache=False).logits
    torch.testing.assert_close(stock, logits_of(tuned), rtol=1e-4, atol=1e-5)
    assert loaded.revision not in ("", base.revision)
    assert json.loads((folder / "about.json").read_text())["base_revision"] == base.revision


def test_a_whole_copy_is_a_model_and_both_are_offered(base, tmp_path):
    tuned = changed(copy_of(base))
    keep_copy(tuned, base, "tiny-full", {})
    keep_copy(changed(lora_copy(base, 2)), base, "tiny-lora", {})
    torch.testing.assert_close(logits_of(load_model("finetuned/tiny-full")), logits_of(tuned))
    assert {"tiny", "finetuned/tiny-full", "finetuned/tiny-lora"} <= {model.name for model in available.on_hand()}


def test_adapters_of_other_weights_are_refused_and_of_a_copy_in_memory_merged(base, tmp_path):
    name = keep_copy(changed(lora_copy(base, 2)), base, "tiny-lora", {})
    config = tmp_path / name / CONFIG
    about = json.loads(config.read_text())
    config.write_text(json.dumps(about | {"revision": "0" * 12}))
    with pytest.raises(BadModel, match="adapter of tiny"):
        load_model(name)
    hidden = replace(changed(copy_of(base)), revision="in memory")
    tuned = changed(lora_copy(hidden, 2))
    name = keep_copy(tuned, hidden, "tiny-merged", {})
    assert not (tmp_path / name / CONFIG).exists()
    torch.testing.assert_close(logits_of(load_model(name)), logits_of(tuned), rtol=1e-4, atol=1e-5)
