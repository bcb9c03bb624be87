"""One way to read a prompt and write on: the new tokens, their times, and what the KV cache held."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from analysis.kernels.parts import now
from analysis.methods.base import Method
from analysis.methods.evicting import Evicting
from analysis.models import Model
from analysis.seam.attention import apply, ran
from analysis.seam.cache import CompactLayer, GrowingCache, cache_bytes, keys_held, most_bytes
from analysis.seam.calls import MASKED
from analysis.timing.inference import next_token

WARM = 64  # tokens read before the clock runs: the first pass of a process is slower


@dataclass(frozen=True)
class Written:
    """What one method wrote. Times in seconds: `first` to the first token, `steps` of each after it.

    `kv_bytes` and `keys` (mean per layer and key-value head) when the text had been read and its cache compressed;
    `most` bytes that it held until then, `held` bytes at the end. `kept` bool [L, G, cut], which keys of the text
    stayed. `masked`: what was not read was hidden by a mask, so that the times say nothing about reading less.
    """

    tokens: list[int]
    first: float
    steps: list[float]
    kv_bytes: int
    most: int
    keys: float
    held: int
    kept: np.ndarray
    masked: bool
    kernels: str


@torch.no_grad()
def write(
    lm: Model, method: Method, ids: np.ndarray, cut: int, new_tokens: int, tell: Callable[[list[int]], None]
) -> Written:
    """The `new_tokens` most likely tokens after a prompt `ids` [T], fewer where the text ends.

    The first `cut` tokens are read at once, after which a method that drops keys does so; the others follow. `tell` is
    called with the tokens so far, while the method is on the model; its time is not counted.
    """
    prompt = torch.as_tensor(ids).long()[None].to(lm.device)
    stops, cache = ends(lm), None
    with apply(lm, method, kernels=True):
        for counted in (False, True):
            begun, cache = now(), method.cache(lm.lm) or GrowingCache(lm.lm.config)
            token = next_token(lm.lm, prompt[:, :cut] if counted else prompt[:, : min(cut, WARM)], cache)
        held, most, keys = cache_bytes(cache)[0], most_bytes(cache), keys_held(cache)
        kept = kept_keys(lm, method, cut)
        hidden = any(isinstance(layer, CompactLayer) and not layer.is_compact for layer in cache.layers)
        if cut < len(ids):
            token = next_token(lm.lm, prompt[:, cut:], cache)
        first, steps, tokens = now() - begun, [], [int(token)]
        tell(tokens)
        while len(tokens) < new_tokens and tokens[-1] not in stops:
            begun = now()
            token = next_token(lm.lm, token, cache)
            steps.append(now() - begun)
            tokens.append(int(token))
            tell(tokens)
        found = ran(lm)
    masked = hidden or any(one.kernel == MASKED for one in found if one.phase != "continued")
    kernels = "; ".join(dict.fromkeys(f"{one.phase}: {one.kernel}" for one in found))
    return Written(tokens, first, steps, held, most, keys, cache_bytes(cache)[0], kept, masked, kernels)


def ends(lm: Model) -> set[int]:
    """The tokens that end a text."""
    found = lm.lm.generation_config.eos_token_id
    return {found} if isinstance(found, int) else set(found or ())


def kept_keys(lm: Model, method: Method, cut: int) -> np.ndarray:
    """bool [L, G, cut]: the keys that a method left of a prompt it has just read."""
    every = torch.ones(lm.num_kv_heads, cut, dtype=torch.bool)
    layers = (method.kept_.get(layer) if isinstance(method, Evicting) else None for layer in range(lm.num_layers))
    return torch.stack([every if kept is None else kept[0].cpu() for kept in layers]).numpy()
