"""What kind each layer of a config.json is, by the names of transformers' `layer_types`, and older ways to say it."""

from ..errors import BadModel
from .keys import Keys

FULL, SLIDING, CHUNKED, LINEAR = "full_attention", "sliding_attention", "chunked_attention", "linear_attention"
INDEXED, BLOCKS, CONV, BOTH = "indexed_attention", "minimax_m3_sparse", "conv", "attention_and_mamba"
# DeepSeek-V4: a window and selected compressed entries, or all of much more compressed ones.
CSA, HCA = "compressed_sparse_attention", "heavily_compressed_attention"
# Layers of Nemotron-H that are feed-forward blocks alone.
MLP, MOE = "mlp", "moe"
KINDS = (FULL, SLIDING, CHUNKED, LINEAR, INDEXED, BLOCKS, CONV, BOTH, CSA, HCA, MLP, MOE)
OLDER = {"attention": FULL, "mamba": LINEAR, "mamba2": LINEAR, "recurrent": LINEAR, "short_conv": CONV}
OLDER |= {"hybrid": BOTH, "deepseek_sparse_attention": INDEXED}
# Its attention mixes queries and keys with those before them.
ZAYA = {"hybrid": FULL, "hybrid_sliding": SLIDING}
# Each nth layer reads everything, the others a window.
EVERY = {"gemma2": 2, "gemma3_text": 6, "gemma4_text": 6, "cohere2": 4, "gpt_oss": 2, "olmo3": 4}
PATTERN = {"M": LINEAR, "*": FULL, "-": MLP, "E": MOE}
RATIOS = {0: SLIDING, 4: CSA, 128: HCA}


def kinds_of(keys: Keys, layers: int) -> tuple[str, ...]:
    """The kind of each of the layers. BadModel for kinds that are not counted here, or for another number of them."""
    listed = [str(kind) for kind in keys.list("layer_types") or keys.list("layers_block_type")]
    older = OLDER | (ZAYA if keys.family == "zaya" else {})
    kinds = [older.get(kind, kind) for kind in listed] or _by_family(keys, layers)
    # MTP layers may stand behind the others
    kinds = kinds[:layers] if keys.family == "deepseek_v4" else kinds
    if len(kinds) != layers:
        raise BadModel(
            f"This config names the types of {len(kinds):,} layers (layer_types) and has {layers:,} layers: give the "
            "file as the model's authors published it."
        )
    if unknown := sorted(set(kinds) - set(KINDS)):
        raise BadModel(
            f"This config has layers of type {unknown[0][:40]!r}, which cannot be counted here: choose a model of "
            "softmax, linear or compressed attention."
        )
    # an indexer without a word about it in the types
    if keys.values.get("index_topk") and keys.values.get("kv_lora_rank"):
        kinds = [INDEXED if kind == FULL else kind for kind in kinds]
    return tuple(kinds)


def window_of(keys: Keys) -> int | None:
    """Tokens in a window; None where none is said."""
    names = ("sliding_window", "attention_window_size", "sliding_window_size")
    return keys.number(*names, high=1 << 32, default=0, low=0) or None


def _by_family(keys: Keys, layers: int) -> list[str]:
    """Where no list names the kinds."""
    family = keys.family
    if family.startswith(("qwen3_next", "qwen3_5")):
        every = keys.number("full_attention_interval", high=1000, default=4)
        return [LINEAR if (layer + 1) % every else FULL for layer in range(layers)]
    if family == "olmo_hybrid":
        return [LINEAR if (layer + 1) % 4 else FULL for layer in range(layers)]
    if family == "jamba":
        period = keys.number("attn_layer_period", high=1000, default=8)
        offset = keys.number("attn_layer_offset", high=1000, default=4, low=0)
        return [FULL if layer % period == offset else LINEAR for layer in range(layers)]
    if family == "bamba":
        return _chosen(keys.list("attn_layer_indices"), layers, LINEAR)
    if family == "lfm2" and keys.list("full_attn_idxs"):
        return _chosen(keys.list("full_attn_idxs"), layers, CONV)
    if family == "falcon_h1":
        return [BOTH] * layers
    if family == "nemotron_h":
        return [PATTERN.get(letter, letter) for letter in str(keys.values.get("hybrid_override_pattern", ""))]
    if family == "kimi_linear":
        full = [at - 1 for at in keys.part("linear_attn_config").list("full_attn_layers") if type(at) is int]
        return _chosen(full or [at for at in range(4, layers, 4)], layers, LINEAR)
    if family.startswith("minimax") and (listed := keys.list("attn_type_list")):
        return [FULL if kind == 1 else LINEAR for kind in listed]
    if family == "minimax":
        return [LINEAR if layer % 2 else FULL for layer in range(layers)]
    if family.startswith("minimax_m3"):
        listed = keys.part("sparse_attention_config").list("sparse_attention_freq")
        return [BLOCKS if sparse else FULL for sparse in listed] or [FULL] * layers
    if family == "recurrent_gemma":
        turn = [str(kind) for kind in keys.list("block_types")] or ["recurrent", "recurrent", "attention"]
        return [SLIDING if turn[layer % len(turn)] == "attention" else LINEAR for layer in range(layers)]
    if family == "deepseek_v4":
        ratios = [RATIOS.get(ratio, str(ratio)) for ratio in keys.list("compress_ratios") if type(ratio) is int]
        return ratios or [CSA if layer > 1 and layer % 2 else HCA for layer in range(layers)]
    if family == "beam":
        return [SLIDING if (layer + 1) % 6 and layer + 1 < layers else FULL for layer in range(layers)]
    if family == "lara_mini":
        cycle = (LINEAR, SLIDING, LINEAR, FULL, SLIDING)
        return [cycle[layer % len(cycle)] for layer in range(layers)]
    if family == "bailing_hybrid":
        every = keys.number("layer_group_size", high=1000, default=6)
        return [LINEAR if (layer + 1) % every else FULL for layer in range(layers)]
    if family == "dots3_note_text":
        return [FULL if layer < 2 or layer % 4 == 1 else SLIDING for layer in range(layers)]
    if family.startswith("llama4"):
        every = keys.number("no_rope_layer_interval", high=1000, default=4)
        rotary = keys.list("no_rope_layers") or [(layer + 1) % every for layer in range(layers)]
        if keys.values.get("attention_chunk_size", 8192) is None:
            return [FULL] * layers
        return [CHUNKED if turned else FULL for turned in rotary]
    return _windows(keys, layers)


def _chosen(full: list, layers: int, other: str) -> list[str]:
    return [FULL if layer in full else other for layer in range(layers)]


def _windows(keys: Keys, layers: int) -> list[str]:
    """As transformers lays the layers out where there is one window for all."""
    family = keys.family
    if not window_of(keys) or not keys.values.get("use_sliding_window", not family.startswith("qwen")):
        return [FULL] * layers
    if family.startswith("qwen"):
        first = keys.number("max_window_layers", high=1 << 32, default=28, low=0)
        return [SLIDING if layer >= first else FULL for layer in range(layers)]
    pattern = ("sliding_window_pattern", "_sliding_window_pattern")
    period = keys.number(*pattern, high=1000, default=EVERY.get(family, 0))
    return [FULL if period and (layer + 1) % period == 0 else SLIDING for layer in range(layers)]
