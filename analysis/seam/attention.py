"""A registered attention function and mask for transformers, and `apply(model, method)`.

Inside `apply` every attention layer of a stock model asks the method what to read. Causality, padding and sliding
windows are applied here, never by a method. Nothing of size T x T is made unless the model itself asks for a mask:
queries are taken in blocks, and a method that reads everything runs the fastest dense kernel. With `kernels=True` a
method that has a kernel of its own computes with it wherever that is exact, and `ran` says where it was not, and why.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import CacheLayerMixin
from transformers.masking_utils import sdpa_mask

from analysis.errors import AnalysisError, BadModel
from analysis.kernels import Plan
from analysis.kernels.scoring import Scoring, at_least_float32
from analysis.seam.arguments import Entering
from analysis.seam.cache import (
    CompactLayer,
    GroupedLayer,
    TokenMemory,
    check_keys,
    guarded,
    layer_of,
    past_length,
)
from analysis.seam.calls import MASKED, Attended, Block, Call, Prompt, Ran, only_masked
from analysis.seam.hooks import Hooks
from analysis.seam.layers import attention_modules, stock_attention

NAME = "focuscope"  # the names transformers treats specially (sdpa, flash, eager, flex) must not occur in it
CHOSEN = ("indices", "block_indices")  # keyword arguments in which models hand over what their own indexer chose
BLOCK_BYTES = 64 << 20  # float32 scores held at once
CPU_BLOCK_BYTES = 4 << 20  # likewise on a processor: what stays in its caches and its heap is computed twice as fast

Watch = Callable[[Block, Tensor], None]  # sees the probabilities [B, H, n, Tk] of every block


@dataclass
class LayerState:
    """What an attention module holds while a method is applied."""

    method: Hooks
    layer: int
    memory: TokenMemory
    watch: Watch | None
    kernels: bool
    past: int = 0  # tokens before this call
    first: Tensor | None = None  # [B] place of the first token that is no padding
    cache_layer: CacheLayerMixin | None = None
    tables: tuple[Tensor, Tensor] | None = None  # (cos, sin) of the rotary embedding
    calls: int = 0
    ran: dict[tuple[str, str], Ran] = field(default_factory=dict)

    @property
    def stored(self) -> GroupedLayer | CompactLayer | None:
        """The layer's KV cache where its order is the method's."""
        return self.cache_layer if isinstance(self.cache_layer, GroupedLayer | CompactLayer) else None

    def note(self, queries: int, kernel: str, why: str, plan: Plan | None = None) -> None:
        """Count a call, by its phase and kernel."""
        if self.past == 0:
            phase = "prefill"
        else:
            phase = "decode" if queries == 1 else "continued"
        entry = self.ran.setdefault((phase, kernel), Ran(self.layer, phase, kernel, why))
        entry.why, entry.plan, entry.calls = why, plan, entry.calls + 1

    def of_tokens(self, queries: int) -> Tensor | None:
        """[B, past + queries, ...]: what the method remembers of all tokens up to the last query."""
        return self.memory.keys(self.layer, self.past + queries) if self.layer in self.memory else None


@contextmanager
def apply(model: Any, method: Hooks, watch: Watch | None = None, kernels: bool = False) -> Iterator[Any]:
    """Run `method` inside the model's own forward and `generate`; on exit the model is as it came.

    `model`: a `Model` or a transformers model. `watch(block, probabilities [B, H, n, Tk])` sees every block of
    attention probabilities as it is computed (statistics are streamed through it). `kernels`: compute with the
    method's own kernel and KV cache where it has them, else and where they are not exact as without (see `ran`).
    Raises AnalysisError when a method is already applied, and BadModel when a layer did not pass through here.
    """
    lm = getattr(model, "lm", model)
    modules = attention_modules(lm)
    if any(hasattr(module, "_focuscope") for module in modules):
        raise AnalysisError("A method is already applied to this model: leave its `with` block first.")
    method.check(lm)
    stock = stock_attention(lm)
    memory = TokenMemory()
    handles = []
    try:
        for layer, module in enumerate(modules):
            module._focuscope = LayerState(method, layer, memory, watch, kernels)
            handles.append(module.register_forward_pre_hook(_before_layer, with_kwargs=True))
        lm.set_attn_implementation(NAME)
        lm.generate = guarded(lm, lm.generate, lambda: method.cache(lm) if kernels else None)
        yield model
        calls = [module._focuscope.calls for module in modules[method.first_layer :]]
        if any(calls) and not all(calls):
            raise BadModel(f"Only {sum(map(bool, calls))} of {len(calls)} layers of the model passed through the seam.")
    finally:
        lm.__dict__.pop("generate", None)
        lm.set_attn_implementation(stock)
        for handle in handles:
            handle.remove()
        for module in modules:
            module.__dict__.pop("_focuscope", None)


def ran(model: Any) -> list[Ran]:
    """Which kernels ran so far inside `apply`, by layer; empty outside."""
    modules = attention_modules(getattr(model, "lm", model))
    return [entry for module in modules if hasattr(module, "_focuscope") for entry in module._focuscope.ran.values()]


def _before_layer(module: nn.Module, args: tuple, kwargs: dict) -> None:
    """Before an attention layer: note its KV cache, and show the method the hidden states that enter it, [B, T, d]."""
    state: LayerState = module._focuscope
    entering = Entering.of(args, kwargs)
    state.past = past_length(entering.cache, state.layer)
    state.cache_layer, state.tables = layer_of(entering.cache, state.layer), entering.tables
    not_padding = None
    if state.past == 0:
        not_padding = _not_padding(entering.mask, entering.hidden)
        state.first = not_padding.int().argmax(dim=1)  # [B]
    features = state.method.token_features(state.layer, entering.hidden, not_padding)
    if features is not None:
        state.memory.extend(state.layer, features, state.past)
    if isinstance(state.stored, GroupedLayer):
        state.stored.coming = features


def _not_padding(mask: Tensor | None, hidden: Tensor) -> Tensor:
    """bool [B, T] of a text's beginning. A token that is no padding may always read itself."""
    batch, length = hidden.shape[:2]
    if mask is None:
        return torch.ones(batch, length, dtype=torch.bool, device=hidden.device)
    return mask[:, 0, :, :length].diagonal(dim1=-2, dim2=-1).expand(batch, length)


def _attention(
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
    """The registered function. query [B, H, Tq, D], key and value [B, G, Tk, D] -> (out [B, Tq, H, D], None)."""
    _refuse(query, value, attention_mask, kwargs)
    state: LayerState = module._focuscope
    state.calls += 1
    length = query.shape[2]
    check_keys(state.cache_layer, state.past + length, key.shape[2])
    scoring = Scoring(query.shape[-1] ** -0.5 if scaling is None else scaling, softcap)
    if state.past == 0:
        states = (x[:, :, :length] for x in (query, key, value))  # a static cache is longer than its text
        state.method.prefill(Prompt(state.layer, *states, state.first, module, state.tables, scoring))
    start = min(state.past, key.shape[2] - length)  # a static cache is longer than its text, a sliding one shorter
    new_keys = key[:, :, start : start + length]
    encoded = state.method.encode_tokens(state.layer, query, new_keys, state.past, module, state.tables)
    if encoded is not None:
        state.memory.extend(state.layer, encoded, state.past)
    query = state.method.scale_queries(state.layer, query, state.of_tokens(length))
    if state.method.dense and state.watch is None and softcap is None:
        state.note(length, "torch dense", "Everything is read.")
        out = F.scaled_dot_product_attention(
            *(query, key, value, attention_mask, dropout),
            is_causal=attention_mask is None and length > 1,
            scale=scoring.factor,
            enable_gqa=query.shape[1] != key.shape[1],
        )
    else:
        out = _by_kernel(state, query, key, value, attention_mask, dropout, scoring)
        if out is None:
            out = _by_blocks(state, query, key, value, attention_mask, dropout if module.training else 0.0, scoring)
    return state.method.finish_output(state.layer, out.transpose(1, 2).contiguous()), None


def _refuse(query: Tensor, value: Tensor, mask: Tensor | None, kwargs: dict) -> None:
    """Raise BadModel for attention that would come out as something else, or as torch's own error."""
    if kwargs.get("s_aux") is not None:
        raise BadModel("This model puts a learned sink logit into its softmax, undefined here: choose another model.")
    if any(kwargs.get(name) is not None for name in CHOSEN):
        raise BadModel(
            "This model reads only the keys that its own indexer chose, undefined here: choose another model."
        )
    if mask is not None and mask.dtype != torch.bool:
        raise BadModel("This model adds numbers of its own to its scores, undefined here: choose another model.")
    if value.shape[-1] != query.shape[-1]:
        sizes = f"{value.shape[-1]} dimensions and its keys {query.shape[-1]}"
        raise BadModel(f"The values of this model have {sizes}, which no method here takes: choose another model.")


def _by_kernel(
    state: LayerState, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, scoring: Scoring
) -> Tensor | None:
    """What the method's own kernel reads, [B, H, Tq, D]; None where the masked reference has to run. Notes why."""
    compacted = isinstance(state.stored, CompactLayer) and state.stored.is_compact
    why = None
    if not compacted:  # what was dropped cannot be masked: a compacted text has no padding, and only its kernel runs
        why = only_masked(state.kernels, state.watch is not None, query, mask, dropout, scoring.softcap)
    if why is None:
        tokens = state.past + query.shape[2]
        states = query, key[:, :, :tokens], value[:, :, :tokens]  # a static cache is longer than its text
        of_tokens = state.of_tokens(query.shape[2])
        call = Call(state.layer, *states, scoring.factor, state.past, of_tokens, state.stored)
        done = state.method.attend(call) or Attended(None, MASKED, "This method has no kernel of its own.")
    else:
        done = Attended(None, MASKED, why)
    state.note(query.shape[2], done.kernel, done.why, done.plan)
    assert done.out is not None or not compacted, "what was dropped from the KV cache cannot be masked"
    return done.out


def _by_blocks(
    state: LayerState, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, scoring: Scoring
) -> Tensor:
    """The reference, [B, H, Tq, D]: scores of a block of queries, masked by what the method does not read."""
    if isinstance(state.stored, GroupedLayer) and state.stored.is_sorted:
        key, value = state.stored.restore()
    length, total = query.shape[2], key.shape[2]
    before = max(0, state.past + length - total)  # a sliding cache hands over its last keys only
    columns = torch.arange(total, device=query.device) + before
    sharing = query.shape[1] // key.shape[1]
    query, key = at_least_float32(query), at_least_float32(key.repeat_interleave(sharing, 1))  # [B, H, Tk, D]
    value = value.repeat_interleave(sharing, 1)
    of_keys = state.memory.keys(state.layer, total) if state.layer in state.memory else None
    at_once = BLOCK_BYTES
    if query.device.type == "cpu":
        at_once = min(BLOCK_BYTES, state.method.block_bytes or CPU_BLOCK_BYTES)
    size = max(1, min(length, at_once // (4 * query.shape[0] * query.shape[1] * total)))
    out = value.new_empty(*query.shape[:3], value.shape[-1])
    for start in range(0, length, size):
        stop = min(start + size, length)
        rows = torch.arange(start, stop, device=query.device) + state.past
        # without a mask nothing after the block's last query can be read
        used = state.past + stop - before if mask is None else total
        block = Block(
            state.layer,
            scores=scoring.scores(query[:, :, start:stop], key[:, :, :used]),
            visible=(columns[:used] <= rows[:, None])[None, None] if mask is None else mask[:, :, start:stop],
            rows=rows,
            columns=columns[:used],
            first=state.first,
            of_queries=None if of_keys is None else of_keys[:, rows - before],
            of_keys=None if of_keys is None else of_keys[:, :used],
            sharing=sharing,
            scoring=scoring,
        )
        probabilities = _probabilities(state.method, block)
        if state.watch is not None:
            state.watch(block, probabilities)
        out[:, :, start:stop] = F.dropout(probabilities.to(value.dtype), dropout) @ value[:, :, :used]
    return out


def _probabilities(method: Hooks, block: Block) -> Tensor:
    """Softmax of what the method reads, or weights made of it, float32 [B, H, n, Tk]; zeros where that is nothing."""
    scores = method.scores(block)
    mask = method.mask(block)
    block.read = block.visible if mask is None else block.visible & mask
    probabilities = torch.softmax(scores.masked_fill(~block.read, float("-inf")), dim=-1, dtype=torch.float32)
    if probabilities[..., 0].isnan().any():  # a row that reads nothing; most blocks have none
        probabilities = probabilities.masked_fill(~block.read.any(-1, keepdim=True), 0.0)
    return method.reweight(block, probabilities)


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, sdpa_mask)  # None then means causal, aligned to the last key
