"""What the fake device says of memory is what machines took, and what the program says before a run."""

import json

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import DynamicCache

from analysis.kernels.collisions import hash_codes
from analysis.methods import METHODS
from analysis.methods.performer import random_features
from analysis.models import Model
from analysis.places import CACHE
from analysis.seam import reference
from analysis.seam.attention import apply
from analysis.seam.calls import MASKED
from analysis.timing.inference import next_token
from analysis.timing.memory import model_bytes
from lab.rehearsal.device import NAME, fake_device
from lab.rehearsal.held import Held
from lab.rehearsal.rehearsal import rehearsed
from lab.rehearsal.shapes import SHAPES, on_devices, qwen

# Of what was taken.
TOLERANCE = 0.25
SMALL = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2}
SMALL |= {"vocab_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 2048}
DENSE, MASKS = METHODS["dense"], METHODS["streaming_llm"]


@torch.no_grad()
def peak(lm, method, tokens: int, memory: Held, kernels: bool = True) -> int:
    """Most bytes that a prompt and its KV cache take beside what was there before."""
    ids = torch.zeros(1, tokens, dtype=torch.long, device=lm.device)
    with apply(lm, method, kernels=kernels):
        before = memory.peak = memory.now
        cache = DynamicCache(config=lm.config)
        next_token(lm, ids, cache)
        bytes_taken = memory.peak - before
        del cache
        assert memory.now - before < bytes_taken / 20, "nobody keeps the cache of a text that is done"
    return bytes_taken


@pytest.mark.parametrize("method", [DENSE, MASKS])
def test_a_small_model_on_the_processor_takes_as_much(method):
    config = LlamaConfig(**SMALL)
    real = LlamaForCausalLM(config).eval()
    with Held("cpu") as memory:
        bytes_taken = peak(real, method(), 700, memory, kernels=False)
    at_once = min(reference.BLOCK_BYTES, reference.CPU_BLOCK_BYTES)
    with fake_device(at_once) as device, device.held:
        lm = on_devices(config, f"{NAME}:0", kind=torch.float32)
        assert peak(lm, method(), 700, device.held, kernels=False) == pytest.approx(bytes_taken, rel=TOLERANCE)


def test_a_gpu_took_as_much():
    """A prompt of 4,096 tokens through all layers, as an H200 measured it."""
    stored = json.loads((CACHE / "demo" / "studies" / "gpu-check.json").read_text("utf-8"))
    rows = stored.get("numbers", stored)["rows"]
    row = next(row for row in rows if row["what"] == "model" and row["method"] == "dense" and "Qwen" in row["model"])
    config = qwen(layers=24)
    with fake_device() as device, device.held:
        bytes_taken = peak(on_devices(config, f"{NAME}:0"), DENSE(), row["length"], device.held)
    assert bytes_taken == pytest.approx(row["peak_bytes"], rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [4096, 32768])
@pytest.mark.parametrize("shape", ["llama", "qwen"])
def test_what_is_said_before_is_about_what_is_taken(shape, tokens):
    config = SHAPES[shape]()
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    with fake_device() as device, device.held:
        lm = on_devices(config, f"{NAME}:0")
        about = config.num_hidden_layers, heads, kv_heads, config.hidden_size // heads, config.max_position_embeddings
        model = Model(lm, None, shape, "none", *about)
        for method, kernels in ((DENSE, []), (MASKS, [MASKED])) if tokens == 4096 else ((DENSE, []),):
            predicted = model_bytes(model, tokens, method, kernels)
            assert predicted == pytest.approx(peak(lm, method(), tokens, device.held), rel=TOLERANCE), method


def test_hashes_and_features_of_keys_are_made_block_by_block():
    at_once, rows = 1 << 20, 1 << 16
    with fake_device(at_once) as device, device.held:
        vectors, planes = torch.empty(rows, 128, device=NAME), torch.empty(128, 150, 10, device=NAME)
        before = device.held.peak = device.held.now
        codes = hash_codes(vectors, planes)
        assert codes.shape == (rows, 150)
        # the codes of all parts and what they are joined into, and one block of products
        assert device.held.peak - before <= 2 * codes.nbytes + 2 * at_once < rows * 150 * 10
    with torch.no_grad(), Held("cpu") as memory:
        keys, directions = torch.rand(1, 2, 4096, 8), torch.rand(64, 8)
        before = memory.peak = memory.now
        features, _ = random_features(keys, directions)
        assert memory.peak - before < 1.5 * features.nbytes


@pytest.mark.slow
def test_methods_that_remember_much_of_a_token_are_priced_at_length():
    for row in rehearsed("llama", 8192, {"performer", "magicpig"})["rows"]:
        assert row["said_bytes"] == pytest.approx(row["peak_bytes"], rel=TOLERANCE), row["method"]
