"""Two parametrisations of one function read alike: no method takes a model's scale, cap, norm or bias for granted.

A model may put the factor before its softmax into a multiplier, a scalar, a norm or its projections, and its scores are
the same. So every method must keep the same keys, read the same pairs and give the same logits on both.
"""

import functools

import pytest
import torch

from analysis.methods import METHODS
from analysis.models import load_model
from analysis.seam.attention import apply
from tests.contract.test_contract import CASES, REFUSED, SAMPLED, logits
from tests.made.tiny import CONFIGS, LAYERS, VERIFIED, token_ids

PLAIN = 8**-0.5  # 1/sqrt(D) of the tiny models
WHOLE = ["full_attention"] * LAYERS  # a layer with a sliding window drops nothing


def times(factor):
    return lambda weight: weight.mul_(factor)


def queries_of_three(factor):
    """GPT-2's one projection for queries, keys and values, its queries multiplied."""
    return lambda weight: weight[..., : weight.shape[-1] // 3].mul_(factor)


def keys_moved(bias):
    """GPT-2's keys all moved by the same vector: every score of a query moves by the same number."""
    size = len(bias) // 3
    return bias[size : 2 * size].add_(torch.linspace(-2, 2, size))


# Name -> family, two configurations, and what the weights of the second are changed by.
TWINS = {
    "Granite's multiplier": (
        "granite",
        {"attention_multiplier": PLAIN / 8},
        {"attention_multiplier": PLAIN},
        {"q_proj.weight": times(1 / 8)},
    ),
    "Gemma 2's scalar under a cap": (
        "gemma2",
        {"query_pre_attn_scalar": 512},
        {"query_pre_attn_scalar": 8},
        {"q_proj.weight": times(1 / 8)},
    ),
    "Gemma 3's scalar before a norm": (
        "gemma3_text",
        {"query_pre_attn_scalar": 512, "layer_types": WHOLE},
        {"query_pre_attn_scalar": 8, "layer_types": WHOLE},
        {"q_norm.weight": lambda weight: weight.add_(1).div_(8).sub_(1)},
    ),
    "Qwen 3's norms": ("qwen3", {}, {}, {"q_norm.weight": times(4), "k_norm.weight": times(1 / 4)}),
    "Olmo 2's norms": ("olmo2", {}, {}, {"q_norm.weight": times(4), "k_norm.weight": times(1 / 4)}),
    "Qwen 2's biases": (
        "qwen2",
        {},
        {},
        {f"{side}_proj.{kind}": times(by) for side, by in (("q", 4), ("k", 1 / 4)) for kind in ("weight", "bias")},
    ),
    "GPT-2 without a factor": (
        "gpt2",
        {"scale_attn_weights": False},
        {"scale_attn_weights": True},
        {"c_attn.weight": queries_of_three(1 / PLAIN), "c_attn.bias": queries_of_three(1 / PLAIN)},
    ),
    "GPT-2's bias of keys": ("gpt2", {}, {}, {"c_attn.bias": keys_moved}),
}
# By their authors' rule these see how a score is split into query and key, not the score alone.
SPLIT = {"performer"}  # the chance in its features grows with the lengths of both
LATER = {"Olmo 2's norms", "Gemma 3's scalar before a norm"}  # as those of Qwen 3 and Gemma 2 are, with `--all`
DIRECTIONS = {  # and these the directions of keys, which a common bias turns
    *("keydiff", "expected_attention", "bucket_routing", "bucket_routing by centroid"),
    *("routing_transformer", "routing_transformer undone"),
}
# The steps of few bits begin at a smallest key that is stored in 16 bits, or at zero.
STORED = {"kv_int8", "kv_int4", "kv_int2", "kv_fp8", "kv_turbo", "snapkv in 4 bits"}
SEEN = {**dict.fromkeys(TWINS, SPLIT), "GPT-2's bias of keys": SPLIT | DIRECTIONS | STORED}


@functools.cache
def twins(name):
    """The two models of TWINS, of the same weights but for what is said there."""
    from transformers import AutoModelForCausalLM

    family, first, second, changes = TWINS[name]
    torch.manual_seed(0)
    models = []
    for overrides in (first, second):
        config = (CONFIGS | VERIFIED)[family]()
        config.update(overrides)
        models.append(AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval())
    with torch.no_grad():
        for parameter, weight in models[0].named_parameters():
            if any(part in parameter for part in ("q_proj", "k_proj", "c_attn")):
                weight.mul_(20).add_(0.5 * torch.randn(weight.shape) if "bias" in parameter else 0)
            if "q_norm" in parameter:
                weight.add_(1)
        models[1].load_state_dict(models[0].state_dict())
        for parameter, weight in models[1].named_parameters():
            for part, change in changes.items():
                if parameter.endswith(part):
                    change(weight)
    return models


def read_by(case, lm, ids):
    """(logits, what was chosen of the prompt, what was read) of a case on a model."""
    method, read = CASES[case](), []
    if case.startswith("magicpig"):  # its means are those of a model's own keys
        method = METHODS["magicpig"](**SAMPLED, variant=method.variant).fit(load_model(lm), token_ids(2, 40, seed=5))
    with apply(lm, method, watch=lambda block, _: read.append(block.read.expand(2, 4, -1, -1))):
        output = logits(lm, input_ids=ids)
    chosen = [*getattr(method, "kept_", {}).values()]
    chosen += [blocks for maps in getattr(method, "maps_", {}).values() for blocks in maps]
    return output, chosen, read


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LATER)) for name in TWINS])
def test_both_read_alike(name):
    (lm, twin), ids, failed = twins(name), token_ids(), []
    wanted = logits(lm, input_ids=ids)
    assert (logits(twin, input_ids=ids) - wanted).abs().max() < 1e-5, "they are one function"
    for case in CASES:
        if case in SEEN[name] or (case, TWINS[name][0]) in REFUSED:
            continue
        (a, *chosen), (b, *again) = (read_by(case, model, ids) for model in (lm, twin))
        apart = [
            bool((x != y).any())
            for ours, its in zip(chosen, again, strict=True)
            for x, y in zip(ours, its, strict=True)
        ]
        # a number in the middle of two steps of few bits is stored as either, by the last bit of what came before
        if any(apart) or (a - b).abs().max() > (1e-2 if case in STORED else 1e-4):
            failed.append(f"{case}: {sum(apart)} of {len(apart)} choices, logits by {float((a - b).abs().max()):.2g}")
    assert not failed, "\n".join(failed)
