"""KV caches in few bits as methods: every key stays, and takes less memory."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..declaration import field
from ..kernels.narrow import GROUP, GROUPS, RECENT, STORAGES, TURBO, Storage, steps
from ..seam.calls import Prompt
from .evicting import Evicting


@dataclass
class Narrowed(Evicting):
    """Keeps every key, in the few bits that `storage` names."""

    budget_steps: ClassVar[dict] = {}

    # no settings here: nothing is removed
    ratio: float = 0.0
    storage: str = ""

    def key_scores(self, prompt: Prompt) -> Tensor:
        return prompt.key.new_zeros(prompt.key.shape[:3])

    def kept_keys(self, layer: int, scores: Tensor) -> Tensor:
        return torch.ones_like(scores, dtype=torch.bool)


@dataclass
class InSteps(Narrowed):
    """In even steps of groups of numbers, `bits` each."""

    bits: ClassVar[int]

    group: int = field(GROUP, "tokens of a key's channel, and channels of a value, that share a step", options=GROUPS)
    recent: int = field(RECENT, "last values that stay in full", low=0, high=1024)

    def stored_as(self, layer: int) -> Storage | None:
        return steps(self.bits, self.group, self.recent)


@dataclass
class KVInt8(InSteps):
    """Keys and values are stored in 8 bits a number: in 256 even steps between the least and the largest of a group.

    Nothing leaves the KV cache, which takes 53% of the bytes of a 16-bit one, and nearly nothing is lost: what every
    rule of eviction has to win against. Keys are grouped by channel over tokens, since some channels are large in
    all tokens; values by token over channels. Each group stores its step and its least number in 16 bits. The last
    values and the keys of an unfinished group stay in full; after the prompt 128 tokens at a time are packed.
    """

    title = "8-bit KV cache"
    paper = "Liu et al., 2024 (KIVI), arXiv 2402.02750"
    bits = 8
    exported_with = {}


@dataclass
class KVInt4(InSteps):
    """Keys and values are stored in 4 bits a number, two in a byte: in 16 even steps between the least and the largest
    of a group.

    It takes 28% of the bytes of a 16-bit cache, steps included, and drops nothing. Keys are grouped by channel over
    tokens and values by token over channels, as in the 8-bit cache; the last values and the keys of an unfinished group
    stay in full. A token that is written reads the packed bytes.
    """

    title = "4-bit KV cache"
    paper = "Liu et al., 2024 (KIVI), arXiv 2402.02750"
    bits = 4
    exported_with = {}


@dataclass
class KVInt2(InSteps):
    """Keys and values are stored in 2 bits a number, four in a byte: each is one of 4 even steps of its group.

    It is the setting that KIVI was made for: without groups by channel the large channels of keys would leave nothing
    to the others. Smaller groups err less and take more bytes, since each stores its step and its least number.
    """

    title = "2-bit KV cache"
    paper = "Liu et al., 2024 (KIVI), arXiv 2402.02750"
    bits = 2
    exported_with = {}


@dataclass
class KVFloat8(Narrowed):
    """Keys and values are stored as 8-bit floats (e4m3), with one factor for each key and value of a head.

    What serving stacks offer as an fp8 cache. A float has the same relative error everywhere, so a large channel does
    not coarsen the others; the largest numbers are stored about 8 times more coarsely than by the 8-bit cache's steps.
    """

    title = "FP8 KV cache"
    paper = "Micikevicius et al., 2022 (FP8 formats), arXiv 2209.05433"
    exported_with = {}

    storage: str = "fp8"


@dataclass
class KVTurbo(Narrowed):
    """Keys are stored as a length and a direction: the direction is turned by a fixed Hadamard matrix, after which its
    numbers look normal, and each becomes the nearest of the best 16, 8 or 4 levels for a normal variable.

    It needs no steps of groups, so 4 bits are nearly 4 bits, and each key is packed by itself. Values are stored in
    even steps of each token. The presets are those of vLLM: *k8v4* keeps keys as 8-bit floats, *4bit_nc*, *k3v4_nc*
    and *3bit_nc* bring directions back to length 1; *2bit_nc* is ours. The first and last layers stay in full, except
    in a model that mixes other layers in.
    """

    title = "TurboQuant KV cache"
    paper = "Zandieh et al., 2025 (TurboQuant), arXiv 2504.19874"
    exported_with = {}

    preset: str = field("4bit_nc", "bits of keys and of values", options=tuple(TURBO))
    full_layers: int = field(2, "first layers, and as many last ones, that stay in full", low=0, high=64)

    def check(self, lm: Any) -> None:
        super().check(lm)
        text = lm.config.get_text_config()
        self.hybrid_ = not all(self.whole_) or self.layers_ < text.num_hidden_layers

    def stored_as(self, layer: int) -> Storage | None:
        ends = layer < self.full_layers or layer >= self.layers_ - self.full_layers
        return None if ends and not self.hybrid_ else STORAGES[self.preset]
