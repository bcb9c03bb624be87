"""The feed-forward blocks of each layer of a config.json: dense, or a mixture of experts."""

from ..errors import BadModel
from .families import PLAIN
from .keys import Keys
from .kinds import MLP, MOE
from .layer import FeedForward

# Dense and sparse blocks stand beside each other in every layer.
BESIDE = ("gemma4", "longcat")
# Where the usual name is that of something else.
DENSE = {"minimax_m3": "dense_intermediate_size", "llama4": "intermediate_size_mlp", "lfm2": "block_ff_dim"}
SPARSE = ("sparse", "moe", "hash_moe")
# First layers that are dense where the file does not say.
FIRST = {"beam": 3, "bailing_hybrid": 2, "axk2": 1, "hy_v4": 1, "dots3_note_text": 1, "mistral_large4_text": 1}


def blocks_of(keys: Keys, kinds: tuple[str, ...], width: int, matrices: int) -> list[tuple[FeedForward, ...]]:
    """The blocks of each layer, for the width of the model and the matrices of a block of its family."""
    dense, sparse = _dense(keys, width, matrices), _sparse(keys, matrices)
    if dense is None and sparse is None:
        raise BadModel("This config lacks intermediate_size, the width of the feed-forward blocks: add it.")
    if keys.family == "nemotron_h":
        of_kind = {MLP: dense, MOE: sparse}
        return [(block,) if (block := of_kind.get(kind)) else () for kind in kinds]
    if sparse is None:
        assert dense is not None
        # The layers of Gemma 4 that share another's keys, the last ones, may be twice as wide.
        sharing = keys.number("num_kv_shared_layers", high=len(kinds), default=0, low=0)
        doubled = sharing if keys.true("use_double_wide_mlp") else 0
        wide = FeedForward(2 * dense.width, dense.matrices)
        return [(wide if layer >= len(kinds) - doubled else dense,) for layer in range(len(kinds))]
    if keys.family == "jetmoe":
        # each expert of attention makes a query of every key-value head, and its output
        assert sparse is not None
        inner = keys.needed("num_key_value_heads") * keys.needed("kv_channels", "head_dim")
        return [(sparse, FeedForward(inner, PLAIN, sparse.experts, sparse.active)) for _ in kinds]
    if keys.family.startswith(BESIDE):
        assert dense is not None
        return [(dense, sparse) if keys.family.startswith("gemma4") else (dense, dense, sparse) for _ in kinds]
    places = _sparse_layers(keys, len(kinds))
    return [(sparse,) if layer in places or dense is None else (dense,) for layer in range(len(kinds))]


def _dense(keys: Keys, width: int, matrices: int) -> FeedForward | None:
    """The dense block; None where no width of one is said."""
    family = keys.family
    names = [name for start, name in DENSE.items() if family.startswith(start)]
    usual = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
    inner = keys.number(*names, *usual, default=4 * width if matrices == PLAIN else 0)
    # granite's hybrids without experts keep the shared block alone
    if family.startswith("granitemoe") and not keys.number("num_local_experts", high=100_000, default=1, low=0):
        inner = keys.number("shared_intermediate_size", default=inner)
    if family == "recurrent_gemma":
        inner //= 2
    if family == "lfm2" and keys.true("block_auto_adjust_ff_dim", True):
        multiple = keys.number("block_multiple_of", default=256)
        inner = -(-(2 * inner // 3) // multiple) * multiple
    return FeedForward(inner, matrices) if inner else None


def _sparse(keys: Keys, matrices: int) -> FeedForward | None:
    """The mixture of experts; None where there is none."""
    off = keys.values.get("is_moe") is False or keys.values.get("enable_moe_block") is False
    names = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    experts = keys.number(*names, high=100_000, default=0, low=0)
    # in HunYuan's mixture even one expert stands beside the shared block
    fewest = 1 if keys.family == "hunyuan_v1_moe" else 2
    if off or experts < fewest:
        return None
    chosen = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts", "moe_k")
    active = keys.number(*chosen, high=experts)
    if active is None:
        raise BadModel(f"This config has {experts:,} experts and lacks num_experts_per_tok, how many a token visits.")
    width = keys.number("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    if not width:
        raise BadModel("This config lacks intermediate_size, the width of the feed-forward blocks: add it.")
    # some of those that are chosen do nothing
    idle = keys.number("zero_expert_num", high=100_000, default=0, low=0)
    active = max(1, round(active * experts / (experts + idle)))
    return FeedForward(
        width,
        matrices,
        experts,
        active,
        shared=_shared(keys, width),
        latent=keys.number("moe_latent_size", default=None),
        biased=keys.family == "gpt_oss",
    )


def _shared(keys: Keys, expert: int) -> int:
    """Width of what every token visits beside the experts."""
    if keys.family.startswith(("llama4", "hunyuan_v1_moe")):
        return expert
    names = (
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",
        "shared_experts_intermediate_size",
    )
    many = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    shared = keys.number(*names, default=0, low=0)
    return shared or expert * keys.number(*many, high=10_000, default=0, low=0)


def _sparse_layers(keys: Keys, layers: int) -> set[int]:
    """The layers that have experts."""
    if listed := keys.list("mlp_layer_types"):
        return {layer for layer, kind in enumerate(listed) if kind in SPARSE}
    if keys.family.startswith("llama4") and keys.list("moe_layers"):
        return {layer for layer in keys.list("moe_layers") if type(layer) is int}
    if listed := keys.list("moe_layer_freq"):
        return {layer for layer, sparse in enumerate(listed) if sparse}
    steps = ("decoder_sparse_step", "expert_layer_period", "interleave_moe_layer_step", "moe_layer_interval")
    step = keys.number(*steps, high=1000, default=2 if keys.family == "jamba" else 1)
    after = keys.number("expert_layer_offset", high=1000, default=step - 1, low=0)
    names = ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers")
    first = keys.number(*names, high=1000, default=FIRST.get(keys.family, 0), low=0)
    plain = keys.list("mlp_only_layers")
    return {layer for layer in range(first, layers) if layer % step == after % step and layer not in plain}
