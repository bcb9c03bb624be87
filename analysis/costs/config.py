"""From a transformers config.json to a Shape, or one sentence why not. The file may come from anybody.

Keys and defaults are those of transformers' configuration classes; what a file leaves open is filled as its family
does and said in the notes. Nothing is guessed where a wrong guess would change the answer: then it is refused.
"""

import json
from pathlib import Path
from typing import Any

from ..errors import BadModel
from .shape import FeedForward, Shape

MAX_BYTES = 1_000_000
# Well-known models, as their public config.json files state them: what costs need, nothing else.
KNOWN: dict[str, dict] = json.loads(Path(__file__).with_name("known.json").read_text(encoding="utf-8"))
# family -> (matrices of its feed-forward block, whether embedding and head are tied unless the file says otherwise)
GATED, PLAIN = 3, 2
FAMILIES = {name: (GATED, False) for name in "llama mistral mixtral qwen2 qwen3 qwen2_moe qwen3_moe olmo olmo2".split()}
FAMILIES |= {name: (GATED, False) for name in "olmo3 olmoe phi3 phimoe gpt_oss stablelm ministral glm4".split()}
FAMILIES |= {name: (GATED, False) for name in "granite granitemoe smollm3".split()}
FAMILIES |= {name: (GATED, True) for name in "gemma gemma2 gemma3_text cohere cohere2".split()}
FAMILIES |= {name: (PLAIN, True) for name in "gpt2 opt falcon bloom gpt_bigcode starcoder2".split()}
FAMILIES |= {name: (PLAIN, False) for name in "gpt_neox phi gptj codegen nemotron persimmon".split()}
NO_DECODER = set("bert roberta distilbert albert electra deberta deberta-v2 xlm-roberta mpnet modernbert vit".split())
NO_ATTENTION = set("mamba mamba2 falcon_mamba rwkv jamba bamba zamba zamba2 recurrent_gemma falcon_h1".split())
# Each nth layer reads everything.
EVERY = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4, "gpt_oss": 2, "olmo3": 4}
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1}
NAMES = {  # ours -> the keys it goes by
    "layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "width": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocabulary": ("vocab_size",),
}
MOST = {"layers": 1000, "width": 1_000_000, "heads": 10_000, "vocabulary": 100_000_000}
CAUSAL = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


def read_config(text: str, name: str = "The config") -> dict:
    """The object that a config.json holds. BadModel for what is no JSON object, or larger than 1 MB."""
    if len(text) > MAX_BYTES:
        raise BadModel(
            f"{name} is larger than {MAX_BYTES / 1e6:.0f} MB, and a config.json has a few KB: give the file of that "
            "name that lies beside a model's weights."
        )
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise BadModel(f"{name} is not valid JSON{where}: paste the whole config.json, braces included.") from None
    if not isinstance(config, dict):
        raise BadModel(f"{name} holds a {type(config).__name__} and a config.json is an object in braces: give it.")
    return config


def read_shape(config: dict) -> Shape:
    """The shape a config.json describes. BadModel when it is no causal language model whose attention this counts,
    lacks a key, or holds a value that none can have."""
    outer, notes = config, []
    if isinstance(config.get("text_config"), dict):
        config = outer["text_config"]
        notes.append("Only the text part of this model is counted.")
    family = _family(outer, config)
    lacking = [keys[0] for keys in NAMES.values() if all(config.get(key) is None for key in keys)]
    if lacking:
        raise BadModel(
            f"This config lacks {', '.join(lacking)}, without which nothing can be counted: give the config.json of a "
            "causal language model as transformers writes it."
        )
    sizes = {name: _number(config, keys, MOST[name]) for name, keys in NAMES.items()}
    width, heads = sizes["width"], sizes["heads"]
    kv_heads = _kv_heads(config, heads)
    head_dim = _number(config, ("head_dim",), 100_000, default=0) or width // heads
    if not config.get("head_dim") and width % heads:
        raise BadModel(
            f"This config divides a width of {width:,} among {heads:,} heads, which leaves a remainder, and states no "
            "head_dim: check hidden_size and num_attention_heads."
        )
    if heads % kv_heads:
        raise BadModel(f"This config has {heads:,} heads for {kv_heads:,} key-value heads: one must divide the other.")
    matrices, tied = FAMILIES.get(family, (GATED, False))
    if family not in FAMILIES:
        reason = f"The family {family[:40]!r} is not known here" if family else "The config names no family"
        notes.append(f"{reason}: its feed-forward blocks are counted as gated (three matrices), as in Llama.")
    stated = (place.get(key) for place in (config, outer) for key in ("dtype", "torch_dtype"))
    dtype = str(next(filter(None, stated), "")).removeprefix("torch.")
    if dtype not in BYTES:
        notes.append("The config states no known number format (dtype): 2 bytes per number are assumed.")
        dtype = "bfloat16"
    if outer.get("quantization_config"):
        notes.append(
            f"Its weights are quantised, but counted here in {dtype}: with smaller weights attention's share of a "
            "decode step is larger than shown."
        )
    tied = config.get("tie_word_embeddings", outer.get("tie_word_embeddings", tied))
    return Shape(
        family=family[:40] or "unnamed",
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=sizes["vocabulary"],
        tied=tied is True,
        windows=_windows(config, family, sizes["layers"]),
        blocks=_blocks(config, sizes["layers"], width, matrices),
        max_positions=_number(config, ("max_position_embeddings", "n_positions", "max_seq_len"), 1 << 32, default=0)
        or None,
        dtype=dtype,
        value_bytes=BYTES[dtype],
        notes=tuple(notes),
    )


def _family(outer: dict, config: dict) -> str:
    """The name of the family, "" when none stands there; refuses what is no decoder with attention in every layer."""
    family = config.get("model_type") or ("gpt2" if "n_embd" in config else "")
    family = family if isinstance(family, str) else str(family)
    named = [name for name in _list(outer, "architectures") if isinstance(name, str)]
    shown_name = (named[0] if named else family)[:60]
    base = family in FAMILIES and any(name.endswith("Model") for name in named)
    not_causal = bool(named) and not base and not any(name.endswith(CAUSAL) for name in named)
    if not_causal or family in NO_DECODER or outer.get("is_encoder_decoder") is True:
        raise BadModel(
            f"{shown_name!r} is not a causal language model, and only those read a growing context token by token: "
            "give the config.json of a decoder such as Llama, Qwen, Mistral, Gemma 2, OLMo 2, GPT-2 or Pythia."
        )
    if config.get("kv_lora_rank"):
        raise BadModel(
            f"{shown_name!r} keeps its keys and values compressed (kv_lora_rank {config['kv_lora_rank']!s:.20}), which "
            "these formulas do not cover: choose a model with plain or grouped key-value heads."
        )
    kinds = {str(kind)[:40] for kind in _list(config, "layer_types")} - {"full_attention", "sliding_attention"}
    if family in NO_ATTENTION or kinds:
        raise BadModel(
            f"{shown_name!r} has layers that are no softmax attention over all or the last tokens"
            f"{f' ({min(kinds)})' if kinds else ''}, which these formulas do not cover: choose a plain transformer."
        )
    return family


def _number(config: dict, keys: tuple[str, ...], high: int, default: Any = None, low: int = 1) -> Any:
    """The whole number under the first of some keys that is there; BadModel for anything else than one in range."""
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if type(value) is not int or not low <= value <= high:
            raise BadModel(
                f"This config has {key} = {str(value)[:40]!r} where a whole number from {low} to {high:,} belongs: "
                "correct it, or give the file as the model's authors published it."
            )
        return value
    return default


def _list(config: dict, key: str) -> list:
    value = config.get(key)
    return value if isinstance(value, list) else []


def _kv_heads(config: dict, heads: int) -> int:
    """As many as heads unless the file says otherwise; one where all heads share one (multi-query)."""
    if config.get("multi_query") is True and not config.get("new_decoder_architecture"):
        return 1
    return _number(config, ("num_key_value_heads", "num_kv_heads", "n_head_kv"), 10_000, default=heads)


def _windows(config: dict, family: str, layers: int) -> tuple[int | None, ...]:
    """The keys each layer reads at most, as transformers lays the layers out."""
    window = _number(config, ("sliding_window",), 1 << 32, default=0, low=0) or None
    kinds = _list(config, "layer_types")
    if kinds and len(kinds) != layers:
        raise BadModel(
            f"This config names the types of {len(kinds):,} layers (layer_types) and has {layers:,} layers: give the "
            "file as the model's authors published it."
        )
    if kinds:
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    if not config.get("use_sliding_window", not family.startswith("qwen")):
        return (None,) * layers
    if family.startswith("qwen"):
        first = _number(config, ("max_window_layers",), 1 << 32, default=28, low=0)
        return tuple(window if layer >= first else None for layer in range(layers))
    pattern = ("sliding_window_pattern", "_sliding_window_pattern")
    period = _number(config, pattern, MOST["layers"], default=EVERY.get(family, 0))
    return tuple(None if period and (layer + 1) % period == 0 else window for layer in range(layers))


def _blocks(config: dict, layers: int, width: int, matrices: int) -> tuple[FeedForward, ...]:
    """The feed-forward block of each layer: dense, or a mixture of experts."""
    inner = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
    usual = _number(config, inner, 10_000_000, default=4 * width if matrices == PLAIN else 0)
    experts = _number(config, ("num_local_experts", "num_experts", "n_routed_experts"), 100_000, default=1)
    expert_width = _number(config, ("moe_intermediate_size",), 10_000_000, default=usual)
    if not usual and (experts == 1 or not expert_width):
        raise BadModel("This config lacks intermediate_size, the width of the feed-forward blocks: add it.")
    dense = FeedForward(usual or expert_width, matrices)
    if experts == 1:
        return (dense,) * layers
    active = _number(config, ("num_experts_per_tok", "moe_topk"), experts)
    if active is None:
        raise BadModel(f"This config has {experts:,} experts and lacks num_experts_per_tok, how many a token visits.")
    shared = _number(config, ("shared_expert_intermediate_size", "shared_intermediate_size"), 10_000_000, 0, low=0)
    shared = shared or expert_width * _number(config, ("n_shared_experts",), 10_000, 0, low=0)
    sparse = FeedForward(expert_width, matrices, experts, active, shared)
    step = _number(config, ("decoder_sparse_step",), MOST["layers"], default=1)
    first = _number(config, ("first_k_dense_replace",), MOST["layers"], default=0, low=0)
    plain = _list(config, "mlp_only_layers")
    return tuple(dense if layer in plain or layer < first or (layer + 1) % step else sparse for layer in range(layers))
