"""A prompt that is read once and then followed by many rules: what each keeps of it, what that takes, what it loses.

Every rule of eviction reads the prompt densely, so its states are made once. The bytes of a KV cache are counted as it
is served: what stays in full in 16 bits a number, whatever the model computes in here, and what is packed as it lies.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from analysis.kernels.narrow import STORAGES, Narrow
from analysis.methods.evicting import Evicting
from analysis.models import Model
from analysis.seam.arguments import as_past
from analysis.seam.attention import apply
from analysis.seam.cache import CompactCache, CompactLayer
from analysis.seam.calls import Prompt, part_of
from analysis.seam.hooks import Hooks
from analysis.studies.quality.trial import Newest

FULL = "full"
# Bytes of a number that stays in full.
NUMBER = 2
# By how much less than asked a rule may hold, and how often its budget is halved to come nearer.
NEAR, HALVINGS = 0.005, 12
Kept = list[Tensor]


@cache
def head_bytes(storage: str, count: int, size: int) -> int:
    """Bytes of `count` keys and values of `size` numbers each in one head, as `storage` names it."""
    if storage == FULL or not count:
        return count * 2 * size * NUMBER
    rows = torch.ones(1, 1, count, size)
    packed = Narrow(rows, rows, torch.ones(1, 1, count, dtype=torch.bool), STORAGES[storage])
    buffers = [buffer.rows for buffer in packed.buffers]
    return sum(rows.numel() * min(rows.element_size(), NUMBER) for rows in buffers)


class _States(Hooks):
    """Reads densely and notes the states of every layer."""

    dense = True

    def __init__(self) -> None:
        self.hidden: list[Tensor] = []
        self.prompts: list[Prompt] = []

    def token_features(self, layer: int, hidden: Tensor, not_padding: Tensor | None) -> None:
        self.hidden.append(hidden)

    def prefill(self, prompt: Prompt) -> None:
        self.prompts.append(part_of(prompt, 0, 0, prompt.key.shape[2]))


@dataclass
class Read:
    """A prompt [T] that a model has read densely, with the states of its layers; `first` [1, 1, V] are the logits of
    what follows it."""

    lm: Model
    ids: Tensor
    states: _States = field(default_factory=_States)

    def __post_init__(self) -> None:
        with torch.no_grad(), apply(self.lm, self.states):
            self.first = self.lm.lm(self.ids[None], use_cache=False, logits_to_keep=1).logits

    @property
    def size(self) -> int:
        """Numbers of a key."""
        return self.states.prompts[0].key.shape[-1]

    @property
    def everything(self) -> Kept:
        """All keys of every layer."""
        return [torch.ones_like(prompt.key[..., 0], dtype=torch.bool) for prompt in self.states.prompts]

    def bytes_of(self, kept: Kept, storage: str) -> int:
        """What is held of the keys that are `kept`, bool [1, G, T] a layer."""
        counts = torch.cat([heads.sum(-1).flatten() for heads in kept]).tolist()
        return sum(head_bytes(storage, count, self.size) for count in counts)

    def even(self, storage: str, target: float) -> int:
        """The most keys that every head can hold in `target` bytes of all of them."""
        heads = sum(prompt.key.shape[1] for prompt in self.states.prompts)
        low, high = 0, len(self.ids)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (
                (middle, high) if heads * head_bytes(storage, middle, self.size) <= target else (low, middle - 1)
            )
        return low

    @contextmanager
    def following(self) -> Iterator[None]:
        """Inside, `losses` reads on."""
        with torch.no_grad(), apply(self.lm, Newest(), kernels=True):
            yield

    def losses(self, kept: Kept, storage: str, asked: Tensor, answer: Tensor) -> np.ndarray:
        """Nats of every token of an answer [n] behind a question [m], read through what is kept."""
        cache = CompactCache(self.lm.lm.config)
        for layer, prompt, stays in zip(cache.layers, self.states.prompts, kept, strict=True):
            assert isinstance(layer, CompactLayer), "every layer keeps the whole past"
            layer.lazy_initialization(prompt.key, prompt.value)
            layer.compact(stays, STORAGES.get(storage))
        following = torch.cat([asked, answer])
        logits = self.lm.lm(following[None, :-1], **as_past(self.lm.lm, cache), use_cache=True).logits
        logits = torch.cat([self.first, logits], 1)[0].float()
        return F.cross_entropy(logits, following, reduction="none")[len(asked) :].double().numpy()


class Scored:
    """A rule of eviction and a prompt that was read."""

    def __init__(self, read: Read, rule: Evicting) -> None:
        self.read, self.rule = read, rule
        rule.check(read.lm.lm)
        before: Any = getattr(rule, "before_prompt", None)
        if before is not None:
            with apply(read.lm, _States()):
                before(read.lm.lm, read.ids[None], None)
        everywhere = torch.ones(1, len(read.ids), dtype=torch.bool)
        self.prompts = []
        for layer, (hidden, prompt) in enumerate(zip(read.states.hidden, read.states.prompts, strict=True)):
            self.prompts.append(replace(prompt, of_tokens=rule.token_features(layer, hidden, everywhere)))
        self.scores = self._scores()

    @torch.no_grad()
    def _scores(self) -> list[Tensor]:
        return [self.rule.key_scores(prompt) for prompt in self.prompts]

    def at(self, ratio: float) -> Kept:
        """What stays when the share `ratio` is removed."""
        self.rule.ratio = ratio
        # which heads keep everything is in the scores of this one
        scores = self._scores() if self.rule.title == "DuoAttention" else self.scores
        return [self.rule.kept_keys(layer, of_layer) for layer, of_layer in enumerate(scores)]

    def within(self, storage: str, target: float) -> Kept:
        """What stays where no more than `target` bytes are held, as near to them as the rule comes."""
        length = len(self.read.ids)
        stays = self.at(min(0.99, max(0.0, 1 - (self.read.even(storage, target) + 0.5) / length)))
        low, high = 0.0, 0.99
        for _ in range(HALVINGS):
            if (1 - NEAR) * target <= self.read.bytes_of(stays, storage) <= target:
                break
            middle = (low + high) / 2
            stays = self.at(middle)
            low, high = (middle, high) if self.read.bytes_of(stays, storage) > target else (low, middle)
        return stays if self.read.bytes_of(stays, storage) <= target else self.at(high)
