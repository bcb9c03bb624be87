"""A prompt that is read once under a method, and what follows it: losses, and what the KV cache held."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...commands.quality import Continuation, Search
from ...errors import BadSetting
from ...kernels.parts import now
from ...methods.base import Method
from ...methods.block_sparse import Blockwise
from ...models import Model
from ...seam.arguments import as_past
from ...seam.attention import apply
from ...seam.cache import CompactLayer, GrowingCache, cache_bytes, keys_held, most_bytes
from ...seam.read_on import parts_of, read_on
from ...seam.vocabulary import NextTokens, next_tokens
from ..context import Context
from ..text.calibration import document_windows, text_keys
from ..text.held_out import check_range

PLAIN = "no question"
KERNEL = "each method's own kernel where it has one"


@dataclass(frozen=True)
class Turn:
    """What stands between the prefix and what is scored."""

    setting: str
    # Tokens that the compression sees.
    known: list[int]
    # Tokens that follow the compression.
    asked: list[int]


NOTHING = Turn(PLAIN, [], [])


@dataclass(frozen=True)
class Followed:
    """What follows one prompt, and the KV cache when the prompt had been read."""

    losses: np.ndarray  # [n] nats per token
    kv_bytes: int
    # Most bytes held at once until then.
    kv_most: int
    # Mean per layer and key-value head.
    keys: float
    # Share of the prompt's blocks that was read; None where a method does not read by blocks.
    blocks: float | None
    # To read the prompt, the choice of keys or blocks included.
    seconds: float
    # Keys that were to leave were hidden instead.
    masked: bool


@torch.no_grad()
def follow(lm: Model, method: Method, window: Tensor, prefix: int, turn: Turn) -> Followed:
    """Read the first `prefix` tokens of `window` [T] and the known tokens as a prompt, then the others after it.

    The first token that is scored is predicted by the prompt's last, which still read all of it, where nothing is asked
    in between.
    """
    device = lm.lm.device
    known, asked_after = (torch.as_tensor(part, dtype=torch.long) for part in (turn.known, turn.asked))
    prompt, target = torch.cat([window[:prefix], known]).to(device), window[prefix:].to(device)
    following = torch.cat([asked_after.to(device), target])
    with apply(lm, method, kernels=True):
        cache = method.cache(lm.lm) or GrowingCache(lm.lm.config)
        began = now()
        first, _ = read_on(lm.lm, prompt[None], cache, logits_to_keep=1)
        seconds = now() - began
        # Measured here, before the continuation adds its own keys.
        kv_bytes, kv_most, keys = cache_bytes(cache)[0], most_bytes(cache), keys_held(cache)
        blocks = method.share_read if isinstance(method, Blockwise) else None
        masked = any(isinstance(layer, CompactLayer) and not layer.is_compact for layer in cache.layers)
        past = as_past(lm.lm, cache)
        after = parts_of(lm.lm, following[None, :-1], cache)
        parts = [next_tokens(lm.lm, part, **past, use_cache=True) for part in after]
        further = NextTokens(torch.cat([part.states for part in parts], 1), parts[-1].body)
        begin = F.cross_entropy(first[0, -1:].float(), following[:1], reduction="none")
        losses = torch.cat([begin, further.losses(lm.lm, following[None, 1:])[0]])[len(asked_after) :]
    return Followed(losses.double().cpu().numpy(), kv_bytes, kv_most, keys, blocks, seconds, masked)


@dataclass(frozen=True)
class Stretches:
    """Windows of texts, int64 [n, T]: a prompt of `prefix` tokens and what follows it."""

    windows: np.ndarray
    documents: np.ndarray  # [n], which text each is of
    prefix: int
    # What a protocol says of them.
    about: dict

    def units(self, places: list[int] | slice = slice(None)) -> np.ndarray | None:
        """What an interval over some stretches rests on: their texts, or None where one text gave all of them."""
        documents = self.documents[places]
        return documents if len(np.unique(documents)) > 1 else None


def stretches(
    context: Context, lm: Model, request: Continuation | Search, usual: int, count: int, reserved: int = 0
) -> Stretches:
    """`count` stretches of the texts of a request, evenly spaced, of `usual` tokens before the cut unless it names
    another number and the model's context, less `reserved` tokens, allows so many. Errors: BadSetting, BadText."""
    longest = lm.max_positions - request.continuation - reserved
    prefix = min(usual, longest) if request.prefix is None else request.prefix
    check_range("The length of the prefix", prefix, 8, longest)
    named = [context.text(key) for key in request.texts or []]
    if not named:
        raise BadSetting("At least one text is needed: name one.")
    size = prefix + request.continuation
    belongs = (lm.name, lm.revision, str(lm.device), tuple(request.texts or ()), prefix, size, count)
    windows, documents = context.once(
        "stretches", belongs, lambda: document_windows(lm, named, size, count * size, "text")
    )
    about = {"prefix": prefix, "continuation": request.continuation, "cuts": len(windows), "window": size}
    return Stretches(windows, documents, prefix, about | {"texts": text_keys(named), "seed": request.seed})
