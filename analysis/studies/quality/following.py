"""A prompt that is read once under a method, and what follows it: losses, and what the KV cache held."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from analysis.kernels.parts import now
from analysis.methods.base import Method
from analysis.methods.blockwise import Blockwise
from analysis.models import Model
from analysis.seam.arguments import as_past
from analysis.seam.attention import apply
from analysis.seam.cache import CompactLayer, GrowingCache, cache_bytes, keys_held, most_bytes

PLAIN = "no question"


@dataclass(frozen=True)
class Turn:
    """What stands between the prefix and what is scored: tokens that the compression sees, and tokens it does not."""

    setting: str
    known: list[int]
    asked: list[int]


NOTHING = Turn(PLAIN, [], [])


@dataclass(frozen=True)
class Followed:
    """Losses [n] of what follows one prompt in nats; of the KV cache when the prompt was read, bytes and mean keys per
    layer and key-value head, and `kv_most`, the most bytes that it held until then; `blocks`: the share of the
    prompt's blocks that was read, None of a method that does not read by blocks; `seconds` that reading the prompt
    took, the choice of keys or blocks included; `masked`: keys that were to leave were hidden instead."""

    losses: np.ndarray
    kv_bytes: int
    kv_most: int
    keys: float
    blocks: float | None
    seconds: float
    masked: bool


@torch.no_grad()
def follow(lm: Model, method: Method, window: Tensor, prefix: int, turn: Turn) -> Followed:
    """Read the first `prefix` tokens of `window` [T] and the known tokens as a prompt, then the others after it.

    The first token that is scored is predicted by the prompt's last, which still read all of it, where nothing is asked
    in between.
    """
    device = lm.lm.device
    known, asked = (torch.as_tensor(part, dtype=torch.long) for part in (turn.known, turn.asked))
    prompt, target = torch.cat([window[:prefix], known]).to(device), window[prefix:].to(device)
    after = torch.cat([asked.to(device), target])[:-1]
    with apply(lm, method, kernels=True):
        cache = method.cache(lm.lm) or GrowingCache(lm.lm.config)
        begun = now()
        first = lm.lm(prompt[None], **as_past(lm.lm, cache), use_cache=True, logits_to_keep=1).logits
        seconds = now() - begun
        held, most, keys = cache_bytes(cache)[0], most_bytes(cache), keys_held(cache)
        blocks = method.share_read if isinstance(method, Blockwise) else None
        masked = any(isinstance(layer, CompactLayer) and not layer.is_compact for layer in cache.layers)
        rest = lm.lm(after[None], **as_past(lm.lm, cache), use_cache=True).logits
    logits = torch.cat([first[:, -1:], rest], 1)[0, len(asked) :]
    losses = F.cross_entropy(logits.float(), target, reduction="none")
    return Followed(losses.double().cpu().numpy(), held, most, keys, blocks, seconds, masked)
