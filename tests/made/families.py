"""Families of 2024 to 2026 whose attention is more than a causal softmax: tiny random models of them, made from a
configuration as the check on loading makes them."""

import functools
import inspect
from pathlib import Path

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, DogeModel

from analysis.seam.parity import small_config
from tests.made.tiny_tokenizer import byte_level

SPARSE = ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"]
LATENT = dict(n_group=1, topk_group=1, num_experts_per_tok=2)
HCA, CSA = "heavily_compressed_attention", "compressed_sparse_attention"
HYBRID = ["linear_attention", "full_attention", "linear_attention", "full_attention"]
# family -> what its configuration says besides, where its own default describes no model
MODERN = {
    # A learned logit in every softmax.
    "gpt_oss": {},
    "granite_swa": {},
    "granitemoe_swa": {},
    # MLA: values of another size than keys, a latent cache.
    "deepseek_v2": LATENT,
    "deepseek_v3": {},
    "glm4_moe_lite": {},
    "minicpm3": {},
    "youtu": {},
    "longcat_flash": {},
    # An indexer of their own.
    "deepseek_v32": {},
    "glm_moe_dsa": {},
    "axk2": {},
    "hy_v4": {},
    "minimax_m3_vl_text": dict(num_hidden_layers=3, layer_types=SPARSE),
    "dots3_note": {},
    # Compressed entries beside the tokens, an indexer of them in one layer.
    "deepseek_v4": dict(num_hidden_layers=4, layer_types=["sliding_attention", HCA, CSA, HCA]),
    "qwen4_exp_text": dict(
        indexer_n_heads=4,
        indexer_kv_heads=1,
        indexer_head_dim=256,
        indexer_budget=2048,
        indexer_compress_ratio=16,
        ple_layer_ids=[1],
        eos_token_id=2,
    ),
    # Softmax attention in some layers, something else in the others.
    "recurrent_gemma": {},
    "qwen3_next": {},
    "qwen3_5_text": {},
    "kimi_linear": {},
    "olmo_hybrid": {},
    "nemotron_h": {},
    "lfm2": {},
    "lfm2_moe": dict(num_hidden_layers=4, layer_types=["conv", "conv", "full_attention", "conv"], num_dense_layers=1),
    "lfm3": {},
    "minimax": {},
    "jamba": {},
    "falcon_h1": {},
    "bamba": dict(attn_layer_indices=[1, 2]),
    "granitemoehybrid": dict(num_hidden_layers=4, layer_types=HYBRID),
    # Sizes of heads that differ from layer to layer.
    "gemma4_text": {},
    # Numbers of their own added to the scores.
    "doge": {},
    # Sizes that their configurations leave open.
    "ministral": dict(head_dim=128),
    "hunyuan_v1_dense": dict(head_dim=128, num_key_value_heads=8),
    "hunyuan_v1_moe": dict(head_dim=128, num_key_value_heads=8, num_experts=8, moe_topk=2),
    "nemotron": dict(head_dim=128, num_key_value_heads=8),
    "dots1": dict(n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=2),
}
# Families whose text transformers reads only beside images, with no class for the text alone.
WITHOUT_CLASS = ("glm5_next", "mistral_large4")
# Their scores are not divided by the root of the head's size.
LOUD = ("gemma3n", "gemma4", "granite")
# What makes queries and keys, scaled up so that attention is far from uniform.
SHARPENED = ("q_proj", "k_proj", "q_b_proj", "kv_b_proj")
# One of each kind.
KINDS = ("gpt_oss", "deepseek_v3", "deepseek_v32", "deepseek_v4", "minimax_m3_vl_text", "qwen3_next", "gemma4_text")
KINDS += ("doge",)
BY_KIND = [pytest.param(name, marks=() if name in KINDS else pytest.mark.slow) for name in MODERN]


def configured(family: str, **sizes):
    """A family's configuration; the test is skipped where this transformers lacks it."""
    if family not in CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {family}")
    # Some 5.x leave the causal mask out of the numbers that this model adds to its scores.
    if family == "doge" and "allow_is_causal_skip" not in inspect.getsource(DogeModel.forward):
        pytest.skip("the doge of this transformers reads later tokens itself")
    return CONFIG_MAPPING[family](**MODERN.get(family, {}), **sizes)


@functools.cache
def small(family: str):
    """A small random model of a family, with attention far from uniform. Do not change it."""
    torch.manual_seed(0)
    config = small_config(configured(family))
    lm = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        # a token of padding would read all keys alike, and at ten keys nine of them hold 90% or not
        embedding = lm.get_input_embeddings().weight
        embedding[embedding.abs().sum(-1) == 0] = embedding[-1].clone()
        for name, parameter in lm.named_parameters():
            if "sinks" in name or "position_bias" in name:
                parameter.normal_()
            # Zaya begins with a temperature of nothing
            elif name.endswith("qk_norm.temp"):
                parameter.fill_(1)
            elif "q_norm" in name and family.startswith(("gemma3n", "gemma4")):
                parameter.mul_(0.1)
            elif not family.startswith(LOUD) and any(part in name for part in SHARPENED):
                parameter.mul_(4)
    lm.generation_config.pad_token_id = 0
    return lm


def token_ids(lm, batch: int = 1, length: int = 48, seed: int = 0) -> torch.Tensor:
    """Random tokens [batch, length] of which many come again, without the special ones."""
    return torch.randint(3, 24, (batch, length), generator=torch.Generator().manual_seed(seed))


# One of each kind that people run, as pages are walked with.
WALKED = {
    "gpt_oss": {},
    "qwen3_next": dict(num_hidden_layers=4, layer_types=HYBRID),
    "deepseek_v32": {},
    "deepseek_v4": {},
    "gemma4_text": {},
}
# Tokens that a saved model reads at once, and those that its indexer keeps of them.
READS, KEEPS = 256, 24
COMMIT = "0" * 40


def saved(family: str, hub: Path) -> str:
    """A small random model of a family with a tokenizer, put where the Hugging Face cache `hub` holds models; its
    name."""
    torch.manual_seed(0)
    tokenizer, config = byte_level(), small_config(configured(family))
    for name, value in WALKED[family].items():
        setattr(config, name, value)
    config.max_position_embeddings = READS
    # Gemma 4 has a second embedding
    for name in ("vocab_size", "vocab_size_per_layer_input"):
        if hasattr(config, name):
            setattr(config, name, len(tokenizer))
    config.bos_token_id = config.eos_token_id = tokenizer.eos_token_id
    config.pad_token_id = None
    if hasattr(config, "index_topk"):
        config.index_topk = KEEPS
    lm = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in lm.named_parameters():
            if "sinks" in name:
                parameter.normal_()
            elif not family.startswith(LOUD) and any(part in name for part in SHARPENED):
                parameter.mul_(4)
    place = hub / f"models--tiny--{family}"
    for files in (lm, tokenizer):
        files.save_pretrained(place / "snapshots" / COMMIT)
    (place / "refs").mkdir(exist_ok=True)
    (place / "refs" / "main").write_text(COMMIT)
    return f"tiny/{family}"


def walked(folder: Path) -> None:
    """Those of WALKED in the Hugging Face cache `folder/hub`. Who walks with one stores in `folder/state`, where the
    next one finds what was computed."""
    for family in WALKED:
        saved(family, folder / "hub")
