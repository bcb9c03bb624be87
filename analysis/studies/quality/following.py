"""A prompt that is read once under a method, and what follows it: losses, and what the KV cache held."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...kernels.parts import now
from ...methods.base import Method
from ...methods.blockwise import Blockwise
from ...models import Model
from ...seam.arguments import as_past
from ...seam.attention import apply
from ...seam.cache import CompactLayer, GrowingCache, cache_bytes, keys_held, most_bytes

PLAIN = "no question"


@dataclass(frozen=True)
class Turn:
    """What stands between the prefix and what is scored."""

    setting: str
    known: list[int]  # tokens that the compression sees
    asked: list[int]  # tokens that follow the compression


NOTHING = Turn(PLAIN, [], [])


@dataclass(frozen=True)
class Followed:
    """What follows one prompt, and the KV cache when the prompt had been read."""

    losses: np.ndarray  # [n] nats per token
    kv_bytes: int
    kv_most: int  # most bytes held at once until then
    keys: float  # mean per layer and key-value head
    blocks: float | None  # share of the prompt's blocks that was read; None where a method does not read by blocks
    seconds: float  # to read the prompt, the choice of keys or blocks included
    masked: bool  # keys that were to leave were hidden instead


@torch.no_grad()
def follow(lm: Model, method: Method, window: Tensor, prefix: int, turn: Turn) -> Followed:
    """Read the first `prefix` tokens of `window` [T] and the known tokens as a prompt, then the others after it.

    The first token that is scored is predicted by the prompt's last, which still read all of it, where nothing is asked
    in between.
    """
    device = lm.lm.device
    known, asked_after = (torch.as_tensor(part, dtype=torch.long) for part in (turn.known, turn.asked))
    prompt, target = torch.cat([window[:prefix], known]).to(device), window[prefix:].to(device)
    after = torch.cat([asked_after.to(device), target])[:-1]
    with apply(lm, method, kernels=True):
        cache = method.cache(lm.lm) or GrowingCache(lm.lm.config)
        began = now()
        first = lm.lm(prompt[None], **as_past(lm.lm, cache), use_cache=True, logits_to_keep=1).logits
        seconds = now() - began
        # Measured here, before the continuation adds its own keys.
        kv_bytes, kv_most, keys = cache_bytes(cache)[0], most_bytes(cache), keys_held(cache)
        blocks = method.share_read if isinstance(method, Blockwise) else None
        masked = any(isinstance(layer, CompactLayer) and not layer.is_compact for layer in cache.layers)
        further = lm.lm(after[None], **as_past(lm.lm, cache), use_cache=True).logits
    logits = torch.cat([first[:, -1:], further], 1)[0, len(asked_after) :]
    losses = F.cross_entropy(logits.float(), target, reduction="none")
    return Followed(losses.double().cpu().numpy(), kv_bytes, kv_most, keys, blocks, seconds, masked)
