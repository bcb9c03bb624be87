"""Tiny random models of many families: fakes made from a configuration, nothing is downloaded."""

import functools

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, GPT2Config, GPTNeoXConfig

VOCABULARY, WIDTH, LAYERS = 96, 32, 3
GROUPED = dict(
    vocab_size=VOCABULARY,
    hidden_size=WIDTH,
    intermediate_size=48,
    num_hidden_layers=LAYERS,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)


def grouped(**families: dict) -> dict:
    """Family -> what makes its configuration, of GROUPED and what that family needs besides."""
    return {name: functools.partial(CONFIG_MAPPING[name], **GROUPED, **besides) for name, besides in families.items()}


CONFIGS = {
    "gpt2": lambda: GPT2Config(
        vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=4, n_positions=512, bos_token_id=1, eos_token_id=2
    ),
    "gpt_neox": lambda: GPTNeoXConfig(
        **{k: v for k, v in GROUPED.items() if k != "num_key_value_heads"}, rotary_pct=0.25
    ),
}
CONFIGS |= grouped(llama={}, qwen2={}, qwen3=dict(head_dim=8), mistral=dict(sliding_window=12))
CONFIGS |= grouped(gemma2=dict(head_dim=8, sliding_window=12, attn_logit_softcapping=2.0), olmo2={})
FAMILIES = list(CONFIGS)  # every test of every method
KINDS = ("llama", "gpt2", "gemma2")  # shared keys, own keys, capped scores with a window: others are like one of them
BY_KIND = [pytest.param(name, marks=() if name in KINDS else pytest.mark.slow) for name in FAMILIES]  # what takes long
# And those that the table of docs/models.md tries besides.
VERIFIED = grouped(phi3={}, gemma3_text=dict(head_dim=8, sliding_window=12), smollm3={}, olmo={})
VERIFIED |= grouped(olmo3=dict(sliding_window=12), granite={}, starcoder2={})
VERIFIED |= grouped(mixtral=dict(num_local_experts=4, num_experts_per_tok=2))


def tiny(family: str):
    """A tiny random model, its weights scaled up so that attention is far from uniform. Do not change it; what a
    training left on it (frozen weights, gradients) is taken off."""
    lm = _tiny(family).requires_grad_(True)
    lm.zero_grad()
    return lm


@functools.cache
def _tiny(family: str):
    torch.manual_seed(0)
    lm = AutoModelForCausalLM.from_config((CONFIGS | VERIFIED)[family](), attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in lm.named_parameters():
            if any(part in name for part in ("q_proj", "k_proj", "qkv_proj", "c_attn", "query_key_value")):
                parameter.mul_(20)
    lm.generation_config.pad_token_id = 0
    return lm


def token_ids(batch: int = 2, length: int = 48, seed: int = 0) -> torch.Tensor:
    """Random tokens [batch, length] without the special ones."""
    return torch.randint(3, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


def left_padded(batch: int = 2, length: int = 48) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and their mask [batch, length], row b padded on the left by 5 b."""
    ids, mask = token_ids(batch, length), torch.ones(batch, length, dtype=torch.long)
    for row in range(batch):
        ids[row, : 5 * row], mask[row, : 5 * row] = 0, 0
    return ids, mask
