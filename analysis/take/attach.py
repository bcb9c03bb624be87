"""Sparse attention that was found with Focuscope, for transformers 5. Needs torch, transformers and safetensors.

    import focuscope_attention
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(NAME, attn_implementation="focuscope")
    focuscope_attention.attach(model)

Importing this file registers `attn_implementation="focuscope"`; `attach` reads the setting, policy.json and
tensors.safetensors, from the folder of this file. The code is a plain reference: it scores every key in float32 and
masks what the method does not read, so it shows the quality of a setting and not its speed. Methods that drop keys
after the prompt, or pack them, do so in focuscope_cache.py beside this file: the KV cache shrinks.

Shapes: B texts, H query heads, G key-value heads, n new tokens, T tokens so far, D dimensions of a head.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.masking_utils import sdpa_mask

from ..groups.router import FocusRouter
from ..kernels.scoring import Scoring
from ..methods.base import Method
from ..methods.bucket_routing import BucketRouting
from ..methods.csa import CSA
from ..methods.focus import Focus
from ..routers.routing_state import RoutingSettings, RoutingState
from ..seam.arguments import Entering
from ..seam.layers import attention_modules
from ..seam.reference import Reading, by_blocks
from ..seam.token_memory import TokenMemory
from ..seam.visible import visible_to

NAME, FORMAT = "focuscope", 1


class AttachedLayer(Reading):
    """What an attention layer of an attached model holds."""

    cache: Cache | None = None  # of all layers, in this call

    def read(self, query: Tensor, key: Tensor, value: Tensor, dropout: float, scoring: Scoring) -> Tensor:
        """What the heads read of what `visible` lets be read, [B, H, n, D]."""
        assert self.visible is not None, "the call said what is visible"
        return by_blocks(self, query, key, value, self.visible, dropout, scoring)


def before_layer(module: nn.Module, args: tuple, kwargs: dict) -> None:
    """Before an attention layer runs: note its KV cache, and show the method the hidden states [B, n, d]."""
    entering, state = Entering.of(args, kwargs), vars(module)["_focuscope"]
    state.cache = entering.cache
    state.enter(entering)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """What transformers calls: query [B, H, n, D], key and value [B, G, T, D] -> (out [B, n, H, D], None)."""
    state: AttachedLayer | None = getattr(module, "_focuscope", None)
    if state is None:
        raise RuntimeError("Call focuscope_attention.attach(model) before the model runs.")
    state.visible = visible_to(module, query, key, attention_mask, kwargs)
    query, scoring = state.begin(module, query, key, value, scaling, softcap)
    out = state.read(query, key, value, dropout if module.training else 0.0, scoring)
    state.cache = None
    return out.transpose(1, 2).contiguous(), None


def attach(model: PreTrainedModel, folder: str | Path | None = None) -> PreTrainedModel:
    """Let the setting in `folder` (by default that of this file) decide what `model` reads; returns the model.

    Raises ValueError where the setting was made for a model of another shape or by another version.
    """
    folder = Path(folder or Path(__file__).parent)
    policy = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
    if policy.get("format") != FORMAT:
        raise ValueError(f"policy.json has format {policy.get('format')!r} and this file reads {FORMAT}.")
    if policy["method"] not in MADE:
        raise ValueError(f"policy.json is a setting of {policy['method']}, and this file reads {', '.join(MADE)}.")
    if any(getattr(module, "compressor", None) for module in attention_modules(model)):
        raise ValueError("This file reads tokens alone, and this model compressed entries beside them: choose another.")
    modules, heads = attention_modules(model), model.config.get_text_config().num_attention_heads
    layers = len(modules)
    if (policy["layers"], policy["heads"]) != (layers, heads):
        shape = f"{policy['layers']} layers of {policy['heads']} heads"
        raise ValueError(f"policy.json is for {shape} and this model has {layers} of {heads}.")
    if len(policy.get("ratios", modules)) != layers:
        raise ValueError(f"policy.json has {len(policy['ratios'])} ratios for {layers} layers: give one for each.")
    numbers = folder / "tensors.safetensors"
    kind, make, attached = MADE[policy["method"]]
    method = make(kind, policy, load_file(numbers) if numbers.exists() else {})
    method.check(model)
    memory = TokenMemory()
    for layer, module in enumerate(modules):
        if not hasattr(module, "_focuscope"):
            module.register_forward_pre_hook(before_layer, with_kwargs=True)
        module._focuscope = attached(method, layer, memory, cache_index=module.layer_idx)
    model.set_attn_implementation(NAME)
    return model


# method -> its class, what makes it of policy.json, and its layers; filled at the end of the file that leaves
MADE: dict[str, tuple[type[Method], Callable[[Any, dict, dict[str, Tensor]], Method], type[AttachedLayer]]] = {}


def with_settings(method: type[Method], policy: dict, tensors: dict[str, Tensor]) -> Method:
    """A method that its settings describe, and of one that drops keys after the prompt a share for each layer."""
    shares = {"ratios": tuple(policy["ratios"])} if "ratios" in policy else {}
    return method(**policy["settings"], **shares)


def with_budgets(method: type[CSA], policy: dict, tensors: dict[str, Tensor]) -> CSA:
    """Calibrated Sparse Attention: budgets of all heads, and their cap."""
    return method.build({name: policy[name] for name in ("layers", "heads", "policy")})


def with_router(method: type[Focus], policy: dict, tensors: dict[str, Tensor]) -> Focus:
    """Focus: the router of its groups."""
    settings = dict(policy["settings"])
    of_router = {name: settings.pop(name) for name in ("temperature", "similarity")}
    (layers, width, d_s), groups = tensors["projection"].shape, tensors["centroids"].shape[1]
    router = FocusRouter(layers, width, groups=groups, d_s=d_s, **of_router)
    router.load_state_dict(tensors)
    return method(router=router, **settings)


def with_buckets(method: type[BucketRouting], policy: dict, tensors: dict[str, Tensor]) -> BucketRouting:
    """Bucket routing: the buckets, and the linear router that chooses among them."""
    settings, centroids = policy["settings"], tensors["centroids"]
    fitted_for = RoutingSettings(
        buckets=centroids.shape[2],
        min_distance=settings["window"],
        sinks=settings["n_sink"],
        length=0,
        seed=0,
        rotated=policy["rotated"],
    )
    state = RoutingState(fitted_for, {"centroids": centroids, "gwr_linear.weights": tensors["weights"]}, {})
    return method(fitted=state, **settings)


AttentionInterface.register(NAME, attention)
# No mask then means causal.
AttentionMaskInterface.register(NAME, sdpa_mask)
