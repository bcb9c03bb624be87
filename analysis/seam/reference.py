"""The reference: scores of a block of queries, masked by what a method does not read. What every kernel is tested with,
and what leaves the program with a setting (`analysis.take`)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels.pool import AT_ONCE, accelerated
from ..kernels.scoring import Scoring, at_least_float32, softmax
from .arguments import Entering
from .cache_checks import past_length
from .calls import Block, Prompt
from .hooks import Hooks
from .token_memory import TokenMemory
from .visible import Visible, is_visible

# Float32 scores held at once on a processor where a method asks for more: bounds what it may.
BLOCK_BYTES = 64 << 20
# And where it asks for nothing: what stays in its caches and its heap is computed twice as fast.
CPU_BLOCK_BYTES = 4 << 20

Watch = Callable[[Block, Tensor], None]  # sees the probabilities [B, H, n, Tk] of every block


@dataclass
class Reading:
    """What an attention layer knows of the text that it reads."""

    method: Hooks
    layer: int
    memory: TokenMemory
    watch: Callable[[Block, Tensor], None] | None = None
    cache_index: int = 0  # place of the layer in a KV cache, which counts the layers of other kinds too
    past: int = 0  # tokens before this call
    first: Tensor | None = None  # [B] place of the first token that is no padding
    visible: Visible | None = None  # what this call may read
    tables: tuple[Tensor, Tensor] | None = None  # (cos, sin) of the rotary embedding

    def enter(self, entering: Entering) -> Tensor | None:
        """Before the layer runs: show the method the hidden states that enter it; what it remembers of them."""
        self.past = past_length(entering.cache, self.cache_index, entering.hidden.shape[1])
        self.tables = entering.tables
        not_padding = None
        if self.past == 0:
            batch, length = entering.hidden.shape[:2]
            if entering.mask is None:
                not_padding = torch.ones(batch, length, dtype=torch.bool, device=entering.hidden.device)
            else:
                # A token that is no padding may always read itself.
                itself = is_visible(entering.mask[:, 0, :, :length]).diagonal(dim1=-2, dim2=-1)
                not_padding = itself.expand(batch, length)
            self.first = not_padding.int().argmax(dim=1)
        features = self.method.token_features(self.layer, entering.hidden, not_padding)
        if features is not None:
            self.memory.extend(self.layer, features, self.past)
        return features

    def begin(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, softcap: float | None
    ) -> tuple[Tensor, Scoring]:
        """The queries [B, H, n, D] as they meet the keys, and how scores are made; the method sees new ones first."""
        length = query.shape[2]
        scoring = Scoring(query.shape[-1] ** -0.5 if scaling is None else scaling, softcap)
        see = self.method.prefill if self.past == 0 else getattr(self.method, "follow", None)
        if see is not None:
            assert self.first is not None, "the layer was entered before"
            now = self.past + length
            # a static cache is longer than its text
            about = key[:, :, :now], value[:, :, :now], self.first, module, self.tables, scoring, self.visible, now
            see(Prompt(self.layer, query, *about, self.of_tokens(length)))
        # a static cache is longer than its text, a sliding one shorter
        start = min(self.past, key.shape[2] - length)
        new = key[:, :, start : start + length]
        encoded = self.method.encode_tokens(self.layer, query, new, self.past, module, self.tables)
        if encoded is not None:
            self.memory.extend(self.layer, encoded, self.past)
        return self.method.scale_queries(self.layer, query, self.of_tokens(length)), scoring

    def of_tokens(self, queries: int) -> Tensor | None:
        """[B, past + queries, ...]: what the method remembers of all tokens up to the last query."""
        return self.memory.keys(self.layer, self.past + queries) if self.layer in self.memory else None


def by_blocks(
    state: Reading, query: Tensor, key: Tensor, value: Tensor, visible: Visible, dropout: float, scoring: Scoring
) -> Tensor:
    """What the heads have read, [B, H, Tq, Dv], of query [B, H, Tq, D], key [B, G, Tk, D] and value [B, G, Tk, Dv]."""
    length, total, sharing = query.shape[2], key.shape[2], query.shape[1] // key.shape[1]
    # a sliding cache hands over its last keys only
    before = max(0, state.past + length - total)
    columns = torch.arange(total, device=query.device) + before
    rounded = state.method.rounded(state.layer, key, value)
    query, key = at_least_float32(query), at_least_float32(key.repeat_interleave(sharing, 1))  # [B, H, Tk, D]
    value = value.repeat_interleave(sharing, 1)
    of_keys = state.memory.keys(state.layer, total) if state.layer in state.memory else None
    at_once = AT_ONCE if accelerated(query) else min(BLOCK_BYTES, state.method.block_bytes or CPU_BLOCK_BYTES)
    size = max(1, min(length, at_once // (4 * query.shape[0] * query.shape[1] * total)))
    out = value.new_empty(*query.shape[:3], value.shape[-1])
    assert state.first is not None, "the layer was entered before"
    for start in range(0, length, size):
        stop = min(start + size, length)
        rows = torch.arange(start, stop, device=query.device) + state.past
        # without a mask nothing after the block's last query can be read
        used = state.past + stop - before if visible.mask is None else total
        scores = scoring.scores(query[:, :, start:stop], key[:, :, :used])
        if rounded is not None:
            scores = rounded.scores(scores, query[:, :, start:stop], rows, scoring)
        if visible.bias is not None:
            scores = scores + visible.bias[:, :, start:stop]
        causal = (columns[:used] <= rows[:, None])[None, None]
        block = Block(
            state.layer,
            scores=scores,
            visible=causal if visible.mask is None else visible.mask[:, :, start:stop],
            rows=rows,
            columns=columns[:used],
            first=state.first,
            of_queries=None if of_keys is None else of_keys[:, rows - before],
            of_keys=None if of_keys is None else of_keys[:, :used],
            sharing=sharing,
            scoring=scoring,
            sinks=visible.sinks,
            chosen=visible.chosen,
            corner=(start + state.past, before),
        )
        if visible.entries is not None:
            block.entries = visible.entries.beside(query[:, :, start:stop], start, scoring)
        probabilities = _probabilities(state.method, block)
        if state.watch is not None:
            state.watch(block, probabilities)
        weights, values = F.dropout(probabilities.to(value.dtype), dropout), value[:, :, :used]
        out[:, :, start:stop] = weights @ values if rounded is None else rounded.read(weights, values, rows)
        if block.entries is not None:
            out[:, :, start:stop] += block.entries.read(dropout)
    return out


def _probabilities(method: Hooks, block: Block) -> Tensor:
    """Softmax of what the method reads, or weights made of it, float32 [B, H, n, Tk]; zeros where that is nothing."""
    scores, mask = method.scores(block), method.mask(block)
    block.read = block.visible if mask is None else _shared(block, mask)
    shares_of = softmax if block.entries is None else block.entries.softmax
    probabilities = shares_of(scores.masked_fill(~block.read, float("-inf")), block.sinks, torch.float32)
    # a row that reads nothing; most blocks have none, and to ask would wait for an accelerator
    if accelerated(probabilities) or probabilities[..., 0].isnan().any():
        probabilities = probabilities.masked_fill(~block.read.any(-1, keepdim=True), 0.0)
    return method.reweight(block, probabilities)


def _shared(block: Block, mask: Tensor) -> Tensor:
    """What a method reads of the keys that may be read. Where the model's own indexer left none of the method's keys to
    a query, it reads the nearest that it may."""
    read = block.visible & mask
    if block.chosen:
        places = torch.where(block.visible, block.columns, -1)
        nearest = block.visible & (block.columns == places.amax(-1, keepdim=True))
        read = torch.where(read.any(-1, keepdim=True), read, nearest)
    return read
