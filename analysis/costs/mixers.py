"""What mixes the tokens in each layer of a config.json: its matrices, what it caches of a text, and its state.

Sizes of softmax attention: H query heads, G key-value heads, D numbers of a query and a key, V of a value. What the
layers compute stands in transformers' classes of the families, which the tests count too.
"""

from dataclasses import replace
from typing import Any

from ..errors import BadModel
from . import states
from .keys import Keys
from .kinds import BLOCKS, BOTH, CHUNKED, CONV, CSA, HCA, INDEXED, LINEAR, MLP, MOE, SLIDING, window_of
from .layer import Entries, Layer

# A gate over every number of the output.
GATED = ("qwen3_next", "qwen3_5", "afmoe", "beam")
# What layers may have of their own.
SIZES = (
    *("num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim"),
    *("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"),
)
# What dots3 says of its layers with a window when its file does not.
DOTS3 = dict(zip(SIZES, (64, 64, 256, 128, 1024, 1024, 192, 64), strict=True))


def mixers_of(keys: Keys, kinds: tuple[str, ...], width: int, heads: int) -> list[Layer]:
    """The layers of these kinds, without their feed-forward blocks, for the width and the heads of a model."""
    layers = []
    of_sizes: dict[tuple, Layer] = {}
    sharing = keys.number("num_kv_shared_layers", high=len(kinds), default=0, low=0)
    # the layer whose latent each one reads
    sources = keys.list("kv_source_layers")
    # the layers that choose by themselves; the others read what the layer below chose
    listed = keys.list("indexer_types") or list(str(keys.values.get("index_topk_pattern") or ""))
    for place, kind in enumerate(kinds):
        sizes = _sizes_of(keys, place, kind)
        if listed:
            chooses = place < len(listed) and listed[place] in ("full", "F")
        else:
            every = keys.number("index_topk_freq", high=1000, default=1)
            skipped = keys.number("index_skip_topk_offset", high=1000, default=2, low=0)
            chooses = max(place - skipped + 1, 0) % every == 0
        shared = place >= len(kinds) - sharing or place not in (sources or [place])
        distinct = kind, str(sizes), chooses, shared
        if distinct not in of_sizes:
            layer = Keys(keys.values | sizes, keys.family)
            count = layer.number("num_attention_heads", high=10_000, default=heads)
            of_sizes[distinct] = _mixer(layer, kind, width, count, chooses, shared)
        layers.append(of_sizes[distinct])
    return layers


def _mixer(keys: Keys, kind: str, width: int, heads: int, chooses: bool, shared: bool) -> Layer:
    """One layer: `chooses`, it has an indexer where its kind has one; `shared`, its keys are another layer's."""
    if kind in (MLP, MOE):
        return Layer(kind, 0)
    if kind in (LINEAR, CONV):
        return states.state_layer(keys, kind, width, heads)
    if kind in (CSA, HCA) or keys.family == "deepseek_v4":
        return _compressed(keys, kind, width, heads)
    if keys.values.get("kv_lora_rank"):
        layer = _latent(keys, kind, width, heads, chooses, shared)
        # LongCat-Flash attends twice in a layer
        twice = 2 if keys.family.startswith("longcat") else 1
        return replace(layer, weights=twice * layer.weights, entries=twice * layer.entries)
    layer = _softmax(keys, kind, width, heads, shared)
    if kind == BOTH:
        beside = states.state_layer(keys, LINEAR, width, heads)
        layer = replace(layer, weights=layer.weights + beside.weights, state=beside.state)
    return layer


def _sizes_of(keys: Keys, place: int, kind: str) -> dict[str, Any]:
    """The sizes that one layer has apart from the others, by the names of those that all have."""
    listed = keys.part("per_layer_config").values
    sizes = listed.get(f"{place:02d}", listed.get(str(place)))
    names = {f"swa_{name}" if kind == SLIDING else f"global_{name}": name for name in SIZES}
    if kind != SLIDING:
        names["num_global_key_value_heads"] = "num_key_value_heads"
    apart = {name: keys.values[key] for key, name in names.items() if keys.values.get(key) is not None}
    if keys.family == "mimo_v2_flash" and kind == SLIDING:
        apart.setdefault("num_key_value_heads", 2 * keys.number("num_key_value_heads", high=5_000, default=4))
    if keys.family == "dots3_note_text" and kind == SLIDING and not listed:
        apart = DOTS3 | apart
    if keys.family == "mistral_large4_text":
        turns, every = keys.list("no_rope_layers"), keys.number("no_rope_layer_interval", high=1000, default=4)
        # no rotary positions in this layer
        if not (turns[place] if place < len(turns) else (place + 1) % every):
            apart |= {"qk_nope_head_dim": _latent_query(keys), "qk_rope_head_dim": 0}
    return apart | (sizes if isinstance(sizes, dict) else {})


def head_sizes(keys: Keys, width: int, heads: int) -> tuple[int, int, int]:
    """(G, D, V) of a layer of softmax attention. Errors: BadModel."""
    if keys.values.get("kv_lora_rank"):
        return heads, _latent_query(keys), keys.needed("v_head_dim", high=100_000)
    groups = heads
    if keys.values.get("multi_query") is not True or keys.values.get("new_decoder_architecture"):
        names = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
        groups = keys.number(*names, high=10_000, default=heads)
    else:
        groups = 1
    size = keys.number("head_dim", "kv_channels", high=100_000, default=0)
    if not size and width % heads:
        raise BadModel(
            f"This config divides a width of {width:,} among {heads:,} heads, which leaves a remainder, and states no "
            "head_dim: check hidden_size and num_attention_heads."
        )
    size = size or width // heads
    if heads % groups:
        raise BadModel(f"This config has {heads:,} heads for {groups:,} key-value heads: one must divide the other.")
    return groups, size, keys.number("v_head_dim", high=100_000, default=size)


def _softmax(keys: Keys, kind: str, width: int, heads: int, shared: bool) -> Layer:
    """Plain or grouped attention over all keys, the last ones, a chunk, or the blocks that an indexer chose."""
    groups, size, value = head_sizes(keys, width, heads)
    same = keys.true("attention_k_eq_v") and kind != SLIDING
    weights = 0 if shared else width * groups * (size + (0 if same else value))
    # JetMoE's queries and outputs are made by experts
    weights += 0 if keys.family == "jetmoe" else width * heads * (size + value)
    if keys.family.startswith(GATED):
        weights += width * heads * value
    capacity = window_of(keys) if kind == SLIDING else None
    if kind == CHUNKED:
        capacity = keys.number("attention_chunk_size", high=1 << 32, default=8192)
    products = heads * (size + value)
    whole = Entries(
        groups * (size + value), products, products, capacity=capacity, chunked=kind == CHUNKED, shared=shared
    )
    if keys.family == "zaya":
        # Two short convolutions over queries and keys, the second within each head, and values of which half is the
        # token before's.
        first, second = (keys.number(name, high=10_000, default=2) for name in ("cca_time0", "cca_time1"))
        state = (heads + groups) * size * (first + second - 2) + groups * size // 2
        # A router of its own, instead of the one that every mixture is counted with.
        inner = keys.number("router_hidden_size", default=256)
        experts = keys.number("num_experts", high=100_000, default=16)
        weights += (heads + groups) * size * (first + size * second) + 2 * inner * inner + inner * (experts + 1)
        weights += keys.needed("hidden_size", "d_model") * (inner - experts)
        return Layer(kind, weights, (whole,), state=state)
    if kind != BLOCKS:
        return Layer(kind, weights, (whole,))
    both = Keys(keys.part("sparse_attention_config").values | keys.values, keys.family)
    count = both.needed("index_n_heads", "sparse_num_index_heads", high=10_000)
    inner = both.needed("index_head_dim", "sparse_index_dim", high=100_000)
    block = both.needed("index_block_size", "sparse_block_size", high=1 << 24)
    most = block * both.needed("index_topk_blocks", "sparse_topk_blocks", high=1 << 24)
    chooses = Entries(inner, count * inner, count * inner, selects=True)
    return Layer(kind, weights + width * inner * (count + 1), (replace(whole, top=most), chooses))


def _latent_query(keys: Keys) -> int:
    return keys.needed("qk_nope_head_dim", high=100_000) + keys.needed("qk_rope_head_dim", high=100_000, low=0)


def _latent(keys: Keys, kind: str, width: int, heads: int, chooses: bool, shared: bool) -> Layer:
    """MLA: keys and values of all heads come from one latent, which alone is cached with a part that holds positions.

    A prompt multiplies the keys and values of every head; a later step multiplies the latent itself.
    """
    latent, rotary = keys.needed("kv_lora_rank"), keys.needed("qk_rope_head_dim", high=100_000, low=0)
    query, value = _latent_query(keys), keys.needed("v_head_dim", high=100_000)
    inner = keys.number("q_lora_rank", default=0, low=0) or 0
    weights = inner * (width + heads * query) if inner else width * heads * query
    weights += 0 if shared else width * (latent + rotary)
    weights += latent * heads * (query - rotary + value) + heads * value * width
    # What families have beside MLA: output gates, gates of the norms, the mixing of residual streams.
    if keys.family == "axk2":
        # queries from the latent twice, with the gate; the norms of attention and of the feed-forward block
        weights += inner * heads * (query + 2 * value) + 4 * width * keys.number("gated_norm_rank", default=16)
    elif keys.family == "hy_v4":
        streams = keys.number("hc_mult", high=1000, default=4)
        weights += width * heads * value + 2 * (2 * streams) * streams * width
    elif keys.family in ("dots3_note_text", "bailing_hybrid"):
        weights += width * heads
    entries = Entries(
        latent + rotary,
        heads * (query + value),
        heads * (2 * latent + rotary),
        capacity=window_of(keys) if kind == SLIDING else None,
        shared=shared,
    )
    if kind != INDEXED:
        return Layer(kind, weights, (entries,), latent=True)
    count, size = keys.needed("index_n_heads", high=10_000), keys.needed("index_head_dim", high=100_000)
    entries = replace(entries, top=keys.needed("index_topk", high=1 << 32))
    if not chooses:
        return Layer(kind, weights, (entries,), latent=True)
    weights += (inner or width) * count * size + width * (size + count)
    choosing = Entries(size, count * size, count * size, selects=True)
    return Layer(kind, weights, (entries, choosing), latent=True)


def _compressed(keys: Keys, kind: str, width: int, heads: int) -> Layer:
    """DeepSeek-V4: the last tokens, and in most layers one entry for every few tokens before them. CSA reads those that
    its indexer chose among entries of 4 tokens (each made of 8), HCA all entries of 128. Keys are values too, one head
    for all."""
    size, inner = keys.needed("head_dim", high=100_000), keys.needed("q_lora_rank")
    outer, parts = keys.needed("o_lora_rank"), keys.number("o_groups", high=10_000, default=8)
    weights = inner * (width + heads * size) + width * size + outer * heads * size + parts * outer * width
    streams = keys.number("hc_mult", high=1000, default=4)
    # two mixings of the residual streams
    weights += 2 * streams * width * streams * (streams + 2)
    products, window = 2 * heads * size, keys.number("sliding_window", high=1 << 32, default=128)
    recent = Entries(size, products, products, capacity=window)
    if kind == SLIDING:
        return Layer(kind, weights, (recent,))
    twice = 2 if kind == CSA else 1
    rates = keys.part("compress_rates")
    legacy, usual = ("compress_rate_csa", 4) if kind == CSA else ("compress_rate_hca", 128)
    every = rates.number(kind, high=1 << 24, default=keys.number(legacy, high=1 << 24, default=usual))
    weights += 2 * width * twice * size + every * twice * size
    entries = Entries(size, products, products, every=every)
    if kind == HCA:
        return Layer(kind, weights, (recent, entries))
    count, index = keys.needed("index_n_heads", high=10_000), keys.needed("index_head_dim", high=100_000)
    weights += 4 * width * index + 2 * every * index + inner * count * index + width * count
    chooses = Entries(index, count * index, count * index, every=every, selects=True)
    return Layer(kind, weights, (recent, replace(entries, top=keys.needed("index_topk", high=1 << 32)), chooses))
