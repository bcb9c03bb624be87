"""Layers that carry a state of fixed size through a text instead of keys: their matrices, and the numbers of a state.

K heads of keys and W heads of values where they differ, N numbers of a Mamba state, a short convolution of k tokens.
"""

from ..errors import BadModel
from .keys import Keys
from .kinds import CONV
from .layer import Layer

MAMBA_1 = ("jamba",)
MAMBA_2 = ("bamba", "falcon_h1", "granitemoehybrid", "nemotron_h")
DELTA = ("qwen3_next", "qwen3_5", "olmo_hybrid", "lara_mini")


def state_layer(keys: Keys, kind: str, width: int, heads: int) -> Layer:
    """The layer that a family has beside those of softmax attention. BadModel for a family that isn't counted here."""
    family = keys.family
    if kind == CONV:
        tokens = keys.number("conv_L_cache", high=10_000, default=3)
        return Layer("convolution", 4 * width * width + width * tokens, state=width * tokens)
    if family.startswith(DELTA):
        # Gated delta rule: a matrix of key by value numbers for every head of values.
        size, out = keys.needed("linear_key_head_dim"), keys.needed("linear_value_head_dim")
        count, many = keys.needed("linear_num_key_heads"), keys.needed("linear_num_value_heads")
        read, mixed = 2 * count * size + many * out, keys.number("linear_conv_kernel_dim", high=10_000, default=4)
        weights = width * (read + many * out + 2 * many) + many * out * width + read * mixed
        return Layer("linear", weights, state=many * size * out + read * mixed)
    if family == "kimi_linear":
        # The same with a gate for every number of a key, made in two steps.
        parts = keys.part("linear_attn_config")
        size = parts.number("head_dim", default=None) or keys.needed("linear_head_dim")
        count = parts.number("num_heads", default=None) or keys.needed("linear_num_heads")
        usual = keys.number("linear_conv_kernel_dim", high=10_000, default=4)
        mixed = parts.number("short_conv_kernel_size", high=10_000, default=usual)
        wide = count * size
        weights = 4 * width * wide + 2 * (width * size + size * wide) + width * count + 3 * wide * mixed
        return Layer("linear", weights, state=wide * size + 3 * wide * mixed)
    if family == "bailing_hybrid":
        # Both gates made in one step.
        size = keys.number("linear_head_dim", default=None) or keys.needed("head_dim")
        count = keys.number("linear_num_heads", default=None) or keys.needed("num_attention_heads")
        tokens = keys.number("linear_conv_kernel_dim", "short_conv_kernel_size", high=10_000, default=4)
        wide = count * size
        weights = 6 * width * wide + width * count + 3 * wide * tokens
        return Layer("linear", weights, state=wide * size + 3 * wide * tokens)
    if family.startswith(MAMBA_2):
        head = keys.number("mamba_head_dim", "mamba_d_head") if keys.values.get("mamba_d_head") != "auto" else None
        count = keys.needed("mamba_num_heads", "mamba_n_heads")
        expanded = keys.number("mamba_expand", "expand", high=1000, default=2) * width
        inner = keys.number("mamba_d_ssm", default=count * head if head else expanded)
        state = keys.needed("ssm_state_size", "mamba_d_state")
        groups = keys.number("n_groups", "mamba_n_groups", high=10_000, default=1)
        tokens = keys.number("conv_kernel", "mamba_d_conv", high=10_000, default=4)
        read = inner + 2 * groups * state
        weights = width * (inner + read + count) + inner * width + read * tokens
        return Layer("Mamba", weights, state=inner * state + read * tokens)
    if family.startswith(MAMBA_1):
        inner = keys.number("mamba_expand", high=1000, default=2) * width
        state, tokens = keys.number("mamba_d_state", default=16), keys.number("mamba_d_conv", high=10_000, default=4)
        # transformers' "auto"
        steps = -(-width // 16)
        if keys.values.get("mamba_dt_rank") != "auto":
            steps = keys.number("mamba_dt_rank", default=steps)
        weights = 3 * width * inner + inner * (tokens + steps + 2 * state + steps + state)
        return Layer("Mamba", weights, state=inner * (state + tokens))
    if family == "recurrent_gemma":
        # A gated linear recurrence, its two gates block by block.
        inner, tokens = keys.number("lru_width", default=width), keys.number("conv1d_width", high=10_000, default=4)
        weights = 3 * width * inner + inner * tokens + 2 * inner * inner // heads
        return Layer("linear", weights, state=inner * (tokens + 1))
    if family.startswith("minimax"):
        # Linear attention with a decay of each head, and an output gate.
        size = keys.number("head_dim", default=0) or width // heads
        return Layer("linear", 5 * width * heads * size, state=heads * size * size)
    raise BadModel(
        f"{family[:40]!r} has linear layers of a make that is not known here, so they cannot be counted: choose "
        "another model."
    )
