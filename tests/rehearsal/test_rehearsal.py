"""Every method reads a prompt and goes on from it on an accelerator that computes shapes alone: no tensor is left
behind on another device, and the host asks at most once a layer in a prompt and never in a step after it."""

from collections.abc import Set

import pytest
import torch
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from analysis.methods.base import Method
from analysis.seam.arguments import as_past
from analysis.seam.attention import apply, ran
from tests.rehearsal.device import NAME, Crossings, Device, fake_device
from tests.rehearsal.shapes import LAYERS, SHAPES, methods, on_devices

# Blocks of queries in a prompt: what is asked in each of them shows.
BLOCKS = 2


def written(lm: PreTrainedModel, method: Method, device: Device, length: int, kernels: bool, tokens: int = 2) -> dict:
    """Reads a prompt of `length` tokens and writes some, the likeliest each -> how often the host asked in the prompt
    and in the steps, and the kernels that ran."""
    ids = torch.zeros(1, length, dtype=torch.long, device=f"{NAME}:0")
    device.tokens = length
    with apply(lm, method, kernels=kernels), Crossings():
        device.asked.clear()
        cache = (method.cache(lm) if kernels else None) or DynamicCache(config=lm.config)
        read = lm(ids, **as_past(lm, cache), use_cache=True, logits_to_keep=1)
        in_prompt = device.asked.total()
        device.asked.clear()
        for _ in range(tokens):
            token = read.logits[:, -1:].argmax(-1).to(ids.device)
            read = lm(token, **as_past(lm, cache), use_cache=True)
        return {"prompt": in_prompt, "steps": device.asked.total(), "ran": {(one.phase, one.kernel) for one in ran(lm)}}


def rehearse(
    monkeypatch, shape: str, length: int, kernels: bool, devices: int = 1, left_out: Set[str] = frozenset()
) -> dict[str, dict]:
    """Every method on a model of this shape; fails with the names and reasons of those that stop or ask too often."""
    config, failed, found = SHAPES[shape](), [], {}
    at_once = 4 * config.num_attention_heads * length * -(-length // BLOCKS)
    with fake_device(monkeypatch, at_once) as device:
        lm = on_devices(config, *(f"{NAME}:{number}" for number in range(devices)))
        for name, made in methods(config).items():
            if name in left_out:
                continue
            try:
                found[name] = about = written(lm, made(), device, length, kernels)
                if about["prompt"] > LAYERS or about["steps"]:
                    failed.append(f"{name} asks {about['prompt']} times in a prompt and {about['steps']} after it")
            except Exception as error:
                failed.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
    assert not failed, "\n".join(failed)
    return found


# Tokens of a prompt that has several pages, blocks and buckets; the longer ones run with `--all`.
SHORT = 1024


def test_methods_get_through_on_two_devices(monkeypatch):
    found = rehearse(monkeypatch, "llama", SHORT, kernels=True, devices=2)
    assert {("prefill", "groups (torch)"), ("decode", "group-major cache")} <= found["focus"]["ran"]
    assert ("decode", "gathered pages") in found["quest"]["ran"]
    assert ("decode", "compacted cache") in found["ada_kv"]["ran"]
    assert ("prefill", "kept blocks") in found["xattention"]["ran"]


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_with_kernels_and_masks(monkeypatch, shape, kernels, devices):
    rehearse(monkeypatch, shape, 4096, kernels, devices)


# They take a text in so many pieces that their shapes alone take minutes beyond 32k.
PIECES = {"oracle_topp", "skip_softmax", "xattention"}
# It repeats a text behind itself, and these models have no position after 131,072.
TWICE = {"kvzip_plus"}


@pytest.mark.slow
@pytest.mark.parametrize(("length", "left_out"), [(1 << 15, set()), (1 << 17, PIECES | TWICE)])
@pytest.mark.parametrize("shape", SHAPES)
def test_long_texts(monkeypatch, shape, length, left_out):
    rehearse(monkeypatch, shape, length, kernels=True, devices=2, left_out=left_out)
