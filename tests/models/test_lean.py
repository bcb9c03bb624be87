"""transformers imported in half the time computes the same, and leaves torch and transformers as they are."""

import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GptOssConfig, LlamaConfig

from analysis.seam.layers import empty_model
from analysis.seam.lean import NoNumbers
from tests.conftest import ROOT

SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 64}
LLAMA = LlamaConfig(**SIZES, intermediate_size=48, num_key_value_heads=2)
GPT_OSS = GptOssConfig(**SIZES, intermediate_size=48, num_key_value_heads=2, head_dim=16, num_local_experts=4)
GPT2 = GPT2Config(n_embd=32, n_head=4, n_layer=2, vocab_size=64)
AFTER = """
import sys
import analysis.seam
from transformers.utils import is_scipy_available
import torch
print("torch._dynamo" in sys.modules, is_scipy_available())
from transformers import models
from transformers.utils.import_utils import define_import_structure
parts = [*define_import_structure(models.__file__).values()]
read = {one: name for part in parts for name, named in part.items() for one in named}
print(read == vars(models)["_class_to_module"])
print(torch.compile(lambda x: x * 2, backend="eager")(torch.ones(2)).tolist(), hasattr(torch._dynamo, "convert_frame"))
"""

INSTALLED = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("focuscope.analysis.seam.lean", "analysis/seam/lean.py")
spec.loader.exec_module(importlib.util.module_from_spec(spec))
print("transformers.modeling_utils" in sys.modules)
"""


@pytest.mark.parametrize("config", [LLAMA, GPT_OSS, GPT2], ids=lambda config: config.model_type)
def test_weights_buffers_and_logits_are_those_of_a_stock_load(config, tmp_path):
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    stock = AutoModelForCausalLM.from_pretrained(tmp_path)
    with NoNumbers():
        lean = AutoModelForCausalLM.from_pretrained(tmp_path)
    for tensors, theirs in (
        (lean.named_parameters(), stock.named_parameters()),
        (lean.named_buffers(), stock.named_buffers()),
    ):
        tensors, theirs = dict(tensors), dict(theirs)
        assert tensors.keys() == theirs.keys() and all(torch.equal(tensors[name], theirs[name]) for name in tensors)
    ids = torch.arange(12)[None]
    with torch.no_grad():
        assert torch.equal(lean(ids).logits, stock(ids).logits)


def test_an_empty_model_has_no_weights_and_ranges_on_a_real_device_are_as_ever():
    empty, full = empty_model(LLAMA), AutoModelForCausalLM.from_config(LLAMA)
    assert all(weights.is_meta for weights in empty.parameters())
    assert {n: w.shape for n, w in empty.named_parameters()} == {n: w.shape for n, w in full.named_parameters()}
    with NoNumbers():
        assert torch.arange(3).tolist() == [0, 1, 2] and torch.arange(2, device="cpu").device.type == "cpu"
        assert torch.zeros(1000).normal_().std() > 0.5
        assert torch.empty(2, device="meta").normal_().is_meta


@pytest.mark.slow
def test_libraries_are_there_for_who_asks_afterwards_or_has_them_installed():
    done = subprocess.run([sys.executable, "-c", AFTER], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False True", "True", "[2.0, 2.0] True"]
    done = subprocess.run([sys.executable, "-c", INSTALLED], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["False"]
