"""One way to read a prompt and write on: the new tokens, their times, and what the KV cache held."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from ...kernels.parts import now
from ...methods.base import Method
from ...methods.evicting import Evicting
from ...models import Model
from ...seam.attention import apply, ran
from ...seam.cache import CompactLayer, GrowingCache, cache_bytes, keys_held, most_bytes
from ...seam.calls import MASKED
from ...timing.inference import next_token

WARM = 64  # tokens read before the clock runs: the first pass of a process is slower


@dataclass(frozen=True)
class Written:
    """What one method wrote."""

    tokens: list[int]
    first: float  # seconds to the first token
    steps: list[float]  # seconds of each token after it
    kv_bytes: int  # when the text had been read and its cache compressed
    peak_bytes: int  # most bytes that the cache held until then
    keys: float  # mean per layer and key-value head, then
    final_bytes: int  # of the cache at the end
    kept_keys: np.ndarray  # bool [L, G, cut]: which keys of the text stayed
    masked: bool  # what was not read was hidden by a mask, so that the times say nothing about reading less
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
    stops = ends(lm)
    with apply(lm, method, kernels=True):
        next_token(lm.lm, prompt[:, : min(cut, WARM)], method.cache(lm.lm) or GrowingCache(lm.lm.config))
        began, cache = now(), method.cache(lm.lm) or GrowingCache(lm.lm.config)
        token = next_token(lm.lm, prompt[:, :cut], cache)
        kv_bytes, peak_bytes, keys = cache_bytes(cache)[0], most_bytes(cache), keys_held(cache)
        kept = kept_keys(lm, method, cut)
        masked = any(isinstance(layer, CompactLayer) and not layer.is_compact for layer in cache.layers)
        if cut < len(ids):
            token = next_token(lm.lm, prompt[:, cut:], cache)
        first, steps, tokens = now() - began, [], [int(token)]
        tell(tokens)
        while len(tokens) < new_tokens and tokens[-1] not in stops:
            began = now()
            token = next_token(lm.lm, token, cache)
            steps.append(now() - began)
            tokens.append(int(token))
            tell(tokens)
        entries = ran(lm)
    return Written(
        tokens=tokens,
        first=first,
        steps=steps,
        kv_bytes=kv_bytes,
        peak_bytes=peak_bytes,
        keys=keys,
        final_bytes=cache_bytes(cache)[0],
        kept_keys=kept,
        masked=masked or any(entry.kernel == MASKED for entry in entries if entry.phase != "continued"),
        kernels="; ".join(dict.fromkeys(f"{entry.phase}: {entry.kernel}" for entry in entries)),
    )


def ends(lm: Model) -> set[int]:
    """The tokens that end a text."""
    tokens = lm.lm.generation_config.eos_token_id
    return {tokens} if isinstance(tokens, int) else set(tokens or ())


def kept_keys(lm: Model, method: Method, cut: int) -> np.ndarray:
    """bool [L, G, cut]: the keys that a method left of a prompt it has just read."""
    kept = torch.ones(lm.num_layers, lm.num_kv_heads, cut, dtype=torch.bool)
    for layer, mask in (method.kept_ if isinstance(method, Evicting) else {}).items():
        kept[layer] = mask[0].cpu()
    return kept.numpy()
