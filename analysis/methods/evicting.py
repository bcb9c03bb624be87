"""What methods share that shrink the KV cache when the prompt has been read: a score for every key, a budget."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..declaration import field
from ..errors import BadSetting
from ..kernels.narrow import STORAGES, Storage
from ..kernels.ragged import Ragged
from ..kernels.scoring import softmax
from ..seam.cache import CompactCache, CompactLayer
from ..seam.cache_checks import sees_all
from ..seam.calls import MASKED, Attended, Block, Call, Prompt, part_of
from ..seam.hooks import RENAMED
from ..seam.layers import shape_of
from ..seam.rounded import Rounded
from ..seam.visible import Visible
from .base import Method, read_all

PROMPT, STEP = "dense, then compacted", "compacted cache"
SCOPES = ("head", "layer", "mixed")


@dataclass
class Evicting(Method):
    """Reads a prompt densely and then drops keys for good: tokens after it read what is left, and each other.

    A subclass scores the keys in `key_scores` and may change in `kept_keys` which of them stay, and in `stored_as` how
    a layer stores them.
    """

    saves: ClassVar[str] = "memory"
    kernels: ClassVar[tuple[str, ...]] = ("prompt", "token")
    takes_sinks: ClassVar[bool] = True
    budget_steps: ClassVar[dict] = {"ratio": lambda step: min(round(1 - step / 100, 2), 0.99)}
    renamed: ClassVar[dict[str, str]] = RENAMED | {"worth": "key_scores", "stay": "kept_keys"}

    ratio: float = field(0.5, "share of the prompt's keys that is removed", low=0.0, high=0.99, step=0.05)
    storage: str = field("full", "how the KV cache stores what stays", options=("full", *STORAGES))
    # Tokens of the text that are the prompt; 0: those of the first call.
    cut: int = 0
    # A share for each layer, in place of ratio.
    ratios: tuple[float, ...] | None = None

    def key_scores(self, prompt: Prompt) -> Tensor:
        """The score of every key of one text, [1, G, L]; the largest stay. Queries and keys come in float32."""
        raise NotImplementedError

    def kept_keys(self, layer: int, scores: Tensor) -> Tensor:
        """Which keys of a layer stay, bool [1, G, L], of their scores."""
        return evict(scores, self.removed(layer, scores.shape[-1]))

    def removed(self, layer: int, length: int) -> float:
        """The share of a layer's `length` keys that is removed."""
        return self.ratio if self.ratios is None else self.ratios[layer]

    def stored_as(self, layer: int) -> Storage | None:
        """How the KV cache of a layer stores what stays; None: in full."""
        return STORAGES.get(self.storage)

    def check(self, lm: Any) -> None:
        self.layers_ = shape_of(lm)[0]
        self.whole_ = sees_all(lm)
        self.kept_: dict[int, Tensor] = {}  # layer -> bool [B, G, T]
        # tokens for which a compacted layer makes room at once
        self.spare_ = 0

    @property
    def kv_cache(self) -> type[CompactCache]:
        """One that drops keys for good."""
        return CompactCache

    def prefill(self, prompt: Prompt) -> None:
        """Choose the keys of every text of a prompt; a layer with a sliding window has few and keeps them."""
        if not self.whole_[prompt.layer]:
            return
        self.bounds_, self.first_ = prompt_bounds(prompt, self.cut), prompt.first
        self.ends_ = prompt.first + self.cut if self.cut else torch.full_like(prompt.first, prompt.query.shape[2])
        stays = torch.ones_like(prompt.key[..., 0], dtype=torch.bool)  # [B, G, T]
        for text, (first, end) in enumerate(self.bounds_):
            with torch.no_grad():
                stays[text, :, first:end] = self.chosen(part_of(prompt, text, first, end))
        self.kept_[prompt.layer] = stays

    def chosen(self, prompt: Prompt) -> Tensor:
        """Which keys of one text stay, bool [1, G, L]."""
        return self.kept_keys(prompt.layer, self.key_scores(prompt))

    def mask(self, block: Block) -> Tensor | None:
        if not self.whole_[block.layer]:
            return None
        stays = self.kept_[block.layer]
        columns = block.columns.clamp(max=stays.shape[2] - 1)
        after_prompt = block.columns >= stays.shape[2]
        readable = (stays[:, :, columns] | after_prompt).repeat_interleave(block.sharing, 1)  # [B, H, Tk]
        in_prompt = block.rows < self.ends_.to(block.rows.device)[:, None]  # [B, n]: the prompt itself reads densely
        return readable[:, :, None] | in_prompt[:, None, :, None]

    def rounded(self, layer: int, key: Tensor, value: Tensor) -> Rounded | None:
        # a prompt may be read before it is known what stays
        storage = self.stored_as(layer) if layer in self.kept_ else None
        if storage is None:
            return None
        return Rounded.of(key, value, self.kept_[layer], self.first_, self.ends_, storage)

    def attend(self, call: Call) -> Attended:
        """The prompt by torch's kernel, after which the KV cache is compacted; tokens after it read what is left."""
        if not self.whole_[call.layer]:
            return read_all(call)
        if call.past == 0:
            if any(end != call.query.shape[2] for _, end in self.bounds_):
                return Attended(None, MASKED, "The prompt ends inside this call.")
            dense = read_all(call)
            if dense.out is None:
                return dense
            if isinstance(call.stored, CompactLayer):
                call.stored.compact(self.kept_[call.layer], self.stored_as(call.layer), self.spare_)
            return Attended(dense.out, PROMPT, "The prompt reads itself densely; then keys are dropped.")
        held = call.stored.held if isinstance(call.stored, CompactLayer) else None
        if not isinstance(held, Ragged):
            return Attended(None, MASKED, "This KV cache holds every key: what was dropped is masked.")
        out = held.attend(call.query, call.scaling, call.sink_logits)
        return Attended(out, STEP, "Tokens read what each head kept.")


def prompt_bounds(prompt: Prompt, cut: int) -> list[tuple[int, int]]:
    """The places of the first token of each prompt and after its last one. Errors: BadSetting for a prompt that comes
    in pieces."""
    length = prompt.query.shape[2]
    bounds = [(first, first + cut if cut else length) for first in prompt.begins()]
    if max(end for _, end in bounds) > length:
        raise BadSetting(f"The prompt has {cut:,} tokens and the first call {length:,}: give the whole prompt at once.")
    return bounds


def model_weights(prompt: Prompt, start: int = 0, stop: int | None = None) -> Tensor:
    """What the queries start..stop of a prompt read of all its keys, [B, H, n, L], as the model itself weighs them:
    those that it lets be read, beside a learned sink."""
    queries, visible = prompt.query[:, :, start:stop], prompt.visible or Visible()
    scores = prompt.scoring.scores(queries, prompt.key)
    last = prompt.key.shape[2] if prompt.places is None else prompt.now
    rows = torch.arange(last - prompt.query.shape[2], last, device=queries.device)[start:stop, None]
    places = prompt.key_places.repeat_interleave(scores.shape[1] // prompt.key.shape[1], 1)[:, :, None]  # [1, H, 1, L]
    hidden = (places > rows) | (places < 0)
    if visible.bias is not None:
        scores = scores + visible.bias[:, :, start:stop]
    if visible.mask is not None:
        hidden = hidden | ~visible.mask[:, :, start:stop]
    weights = softmax(scores.masked_fill(hidden, -torch.inf), visible.sinks)
    # of a query whose every key is gone
    return weights if prompt.places is None else weights.nan_to_num(0.0)


@torch.no_grad()
def evict(scores: Tensor, ratio: float, scope: str = "head", safe: float = 0.2) -> Tensor:
    """Which keys stay: bool [B, G, L], True = kept, of scores [B, G, L], after the share `ratio` of them is removed.

    `head`: the n = int(L (1 - ratio)) keys of largest score of every head. `layer` (Ada-KV, arXiv 2407.11550): the best
    int(safe n) keys of every head are safe; of the others those with the lowest scores of the whole layer go, so that
    the layer keeps G n. `mixed` (the code of Ada-KV's authors): a head keeps the share `safe` of n and the share
    1 - safe of how many of its keys are among the best G n of the layer, rounded. Of equal scores the later key stays.
    Errors: BadSetting.
    """
    if not 0 <= ratio < 1:
        raise BadSetting(f"ratio is {ratio} and must be at least 0 and below 1: the share of the keys that is removed.")
    if scope not in SCOPES or not 0 <= safe <= 1:
        raise BadSetting(
            f"scope is {scope!r} and must be one of {', '.join(SCOPES)}; safe is {safe} and must lie between 0 and 1."
        )
    count = int(scores.shape[-1] * (1 - ratio))
    if scope == "head":
        return largest(scores, count)
    if scope == "mixed":
        best = _largest_of_layer(scores, count).sum(-1)  # [B, G]
        return ranks(scores) < (safe * count + (1 - safe) * best).round()[..., None]
    return _largest_of_layer(scores.masked_fill(largest(scores, int(safe * count)), torch.inf), count)


def ranks(scores: Tensor) -> Tensor:
    """How many scores of its head [..., L] are larger, or as large and later."""
    order = scores.flip(-1).argsort(dim=-1, descending=True, stable=True)
    return order.argsort(dim=-1).flip(-1)


def _largest_of_layer(scores: Tensor, count: int) -> Tensor:
    """bool like scores [B, G, L]: the `count` G largest of all heads; of equal ones the later, whatever its head."""
    flat = scores.transpose(1, 2).flatten(1)  # [B, L G]
    return largest(flat, count * scores.shape[1]).unflatten(1, (-1, scores.shape[1])).transpose(1, 2).contiguous()


def largest(scores: Tensor, count: int) -> Tensor:
    """bool like scores [..., N]: the `count` largest, of equal ones the last; all where there are no more."""
    order = scores.flip(-1).argsort(dim=-1, descending=True, stable=True)[..., :count]
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, scores.shape[-1] - 1 - order, True)
