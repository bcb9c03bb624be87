"""A model laid over several devices: the seam and the methods work where each layer lies."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers

from analysis.errors import TooLarge
from analysis.methods import METHODS
from analysis.models import load_model
from analysis.seam.attention import apply
from tests.made.tiny_tokenizer import save_model


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny")


def test_a_model_is_laid_over_all_devices_and_reads_as_it_did(saved, monkeypatch):
    plain, options_of_load = load_model(str(saved)), {}
    from_pretrained = transformers.AutoModelForCausalLM.from_pretrained

    def spy(*arguments, **options):
        options_of_load.update(options)
        return from_pretrained(*arguments, **options)

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", spy)
    spread = load_model(str(saved), device="spread")
    assert options_of_load["device_map"] == "auto" and spread.revision == plain.revision
    ids = torch.arange(40)[None] % 30
    with torch.no_grad():
        assert torch.equal(spread.lm(ids).logits, plain.lm(ids).logits)
        with apply(spread, METHODS["streaming_llm"](window=8)):
            sparse = spread.lm(ids).logits
        with apply(plain, METHODS["streaming_llm"](window=8)):
            assert torch.equal(sparse, plain.lm(ids).logits)
    monkeypatch.setattr("analysis.models.weights.psutil.virtual_memory", lambda: SimpleNamespace(available=1000))
    with pytest.raises(TooLarge, match="free on all devices together"):
        load_model(str(saved), device="spread")


@pytest.mark.gpu
def test_a_model_too_large_for_its_device_reads_as_on_one(saved, monkeypatch):
    """A device that takes a part of the layers only: the rest lies in main memory and is fetched layer by layer."""
    monkeypatch.setattr(
        # Bytes: the embedding and a layer, beside the room for the largest part that is fetched.
        "transformers.integrations.accelerate.get_max_memory",
        lambda *a, **k: {0: 120_000, "cpu": 10**9},
    )
    spread, plain = load_model(str(saved), device="spread"), load_model(str(saved), device="cuda", dtype="float32")
    assert set(spread.lm.hf_device_map.values()) == {0, "cpu"}
    ids = torch.arange(40, device="cuda")[None] % 30
    near = METHODS["streaming_llm"]
    with torch.no_grad(), apply(spread, near(window=8)), apply(plain, near(window=8)):
        torch.testing.assert_close(spread.lm(ids).logits.float(), plain.lm(ids).logits, rtol=1e-3, atol=1e-3)
