"""The one seam to transformers: a registered attention function and mask, and `apply(model, method)`.

Inside `apply` every attention layer of a stock model asks the method what to read. Causality, padding and sliding
windows are applied here, never by a method. Nothing of size T x T is made unless the model itself asks for a mask:
queries are taken in blocks, and a method that reads everything runs the fastest dense kernel. With `kernels=True` a
method that has a kernel of its own computes with it wherever that is exact, and `ran` says where it was not, and why.
"""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import CacheLayerMixin
from transformers.masking_utils import sdpa_mask

from analysis.arguments import Entering
from analysis.cache import CompactLayer, GroupedLayer, TokenMemory, check_keys, guarded, layer_of, past_length
from analysis.calls import MASKED, Attended, Call, Prompt, Ran, only_masked
from analysis.errors import AnalysisError, BadModel
from analysis.kernels.scoring import Scoring
from analysis.layers import attention_modules

NAME = "focuscope"  # the names transformers treats specially (sdpa, flash, eager, flex) must not occur in it
CHOSEN = ("indices", "block_indices")  # in which models hand over what their own indexer chose
BLOCK_BYTES = 64 << 20  # float32 scores held at once
CPU_BLOCK_BYTES = 4 << 20  # likewise on a processor: what stays in its caches and its heap is computed twice as fast


@dataclass
class Block:
    """One block of n queries of one layer, as a method or a statistic sees it.

    `scores` [B, H, n, Tk] scaled (and soft-capped) logits, in float32 where the model computes in less; `visible` bool,
    broadcastable to it: causal, padding and sliding window; `rows` [n] and `columns` [Tk]: the places of queries and
    keys in one numbering, so that a distance is `rows[:, None] - columns`; `first` [B] place of the first real token
    (left padding comes before it); `of_queries` [B, n, ...] and `of_keys` [B, Tk, ...] what `observe` or `file`
    returned for these tokens; `read` bool, broadcastable to the scores: what was in the softmax, known when a watch
    sees the block; `sharing` how many neighbouring query heads share a key-value head; `scoring` how the layer makes
    scores of queries and keys; `made` what `once` holds.
    """

    layer: int
    scores: torch.Tensor
    visible: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    first: torch.Tensor
    of_queries: torch.Tensor | None = None
    of_keys: torch.Tensor | None = None
    read: torch.Tensor | None = None
    sharing: int = 1
    scoring: Scoring | None = None
    made: dict = field(default_factory=dict, repr=False)

    def once(self, name: str, make: Callable):
        """What `make()` gives, made for this block the first time: for what several functions of its method need."""
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]

    def distances(self) -> torch.Tensor:
        """[n, Tk]: how many tokens the key lies before the query."""
        return self.rows[:, None] - self.columns

    def near(self, window: int, sinks: int) -> torch.Tensor:
        """bool [B or 1, 1, n, Tk]: the last `window` tokens, the token itself included, and the first of the text."""
        near = (self.distances() < window)[None, None]
        return near | (self.columns < self.first[:, None] + sinks)[:, None, None] if sinks else near

    def filed(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries [B, H, n, D] and keys [B, G, Tk, D] in float32, of a method whose `file` returns [B, T, H + G, D]."""
        heads = self.scores.shape[1]
        return tuple(x.transpose(1, 2).float() for x in (self.of_queries[:, :, :heads], self.of_keys[:, :, heads:]))


@dataclass
class _Seat:
    """What an attention module holds while a method is applied."""

    method: object
    layer: int
    memory: TokenMemory
    watch: Callable | None
    kernels: bool
    past: int = 0
    first: torch.Tensor | None = None
    held: CacheLayerMixin | None = None
    tables: tuple[torch.Tensor, torch.Tensor] | None = None
    calls: int = 0
    ran: dict[tuple[str, str], Ran] = field(default_factory=dict)

    @property
    def stored(self) -> GroupedLayer | CompactLayer | None:
        """The layer's KV cache where its order is the method's."""
        return self.held if isinstance(self.held, GroupedLayer | CompactLayer) else None

    def note(self, queries: int, kernel: str, why: str, plan=None) -> None:
        phase = "prefill" if self.past == 0 else "decode" if queries == 1 else "continued"
        entry = self.ran.setdefault((phase, kernel), Ran(self.layer, phase, kernel, why))
        entry.why, entry.plan, entry.calls = why, plan, entry.calls + 1


@contextmanager
def apply(model, method, watch: Callable[[Block, torch.Tensor], None] | None = None, kernels: bool = False):
    """Run `method` inside the model's own forward and `generate`; on exit the model is as it came.

    `model`: a `Model` or a transformers model. `watch(block, probabilities [B, H, n, Tk])` sees every block of
    attention probabilities as it is computed (statistics are streamed through it). `kernels`: compute with the
    method's own kernel and KV cache where it has them, else and where they are not exact as without (see `ran`).
    Raises AnalysisError when a method is already applied, and BadModel when a layer did not pass through here.
    """
    lm = getattr(model, "lm", model)
    modules = attention_modules(lm)
    if any(hasattr(m, "_focuscope") for m in modules):
        raise AnalysisError("A method is already applied to this model: leave its `with` block first.")
    method.check(lm)
    stock = lm.config._attn_implementation
    memory = TokenMemory()
    handles = []
    try:
        for layer, module in enumerate(modules):
            module._focuscope = _Seat(method, layer, memory, watch, kernels)
            handles.append(module.register_forward_pre_hook(_observe, with_kwargs=True))
        lm.set_attn_implementation(NAME)
        lm.generate = guarded(lm, lm.generate, lambda: method.cache(lm) if kernels else None)
        yield model
        calls = [m._focuscope.calls for m in modules[method.first_layer() :]]
        if any(calls) and not all(calls):
            raise BadModel(f"Only {sum(map(bool, calls))} of {len(calls)} layers of the model passed through the seam.")
    finally:
        lm.__dict__.pop("generate", None)
        lm.set_attn_implementation(stock)
        for handle in handles:
            handle.remove()
        for module in modules:
            module.__dict__.pop("_focuscope", None)


def ran(model) -> list[Ran]:
    """Which kernels ran so far inside `apply`, by layer; empty outside."""
    modules = attention_modules(getattr(model, "lm", model))
    return [entry for m in modules if hasattr(m, "_focuscope") for entry in m._focuscope.ran.values()]


def _observe(module, args, kwargs):
    """Before an attention layer: let the method see the hidden states that enter it, [B, T, d]."""
    seat: _Seat = module._focuscope
    entering = Entering.of(args, kwargs)
    seat.past, seat.held = past_length(entering.cache, seat.layer), layer_of(entering.cache, seat.layer)
    seat.tables = entering.tables
    real = None
    if seat.past == 0:
        real = _real_tokens(entering.mask, entering.hidden)
        seat.first = real.int().argmax(dim=1)  # [B]
    seen = seat.method.observe(seat.layer, entering.hidden, real)
    if seen is not None:
        seat.memory.extend(seat.layer, seen, seat.past)
    if isinstance(seat.stored, GroupedLayer):
        seat.stored.coming = seen


def _real_tokens(mask: torch.Tensor | None, hidden: torch.Tensor) -> torch.Tensor:
    """bool [B, T]: which tokens of a text's beginning are no padding. A real token may always read itself."""
    batch, length = hidden.shape[:2]
    if mask is None:
        return torch.ones(batch, length, dtype=torch.bool, device=hidden.device)
    return mask[:, 0, :, :length].diagonal(dim1=-2, dim2=-1).expand(batch, length)


def _attention(module, query, key, value, attention_mask, dropout=0.0, scaling=None, softcap=None, **kwargs):
    """The registered function. query [B, H, Tq, D], key and value [B, G, Tk, D] -> (out [B, Tq, H, D], None)."""
    _refuse(query, value, attention_mask, kwargs)
    seat: _Seat = module._focuscope
    seat.calls += 1
    check_keys(seat.held, seat.past + query.shape[2], key.shape[2])
    out = _attended(seat, module, query, key, value, attention_mask, dropout, scaling, softcap)
    return seat.method.leave(seat.layer, out), None


def _refuse(query, value, mask, kwargs: dict) -> None:
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


def _attended(seat: _Seat, module, query, key, value, attention_mask, dropout, scaling, softcap) -> torch.Tensor:
    """What a layer's heads have read, [B, Tq, H, D]."""
    scoring = Scoring(query.shape[-1] ** -0.5 if scaling is None else scaling, softcap)
    if seat.past == 0:
        states = (x[:, :, : query.shape[2]] for x in (query, key, value))  # a static cache is longer than its text
        seat.method.prefill(Prompt(seat.layer, *states, seat.first, module, seat.tables, scoring))
    _file(seat, module, query, key)
    query = seat.method.sharpen(seat.layer, query, _of_tokens(seat, query))
    if seat.method.dense and seat.watch is None and softcap is None:
        seat.note(query.shape[2], "torch dense", "Everything is read.")
        return _dense_kernel(query, key, value, attention_mask, dropout, scoring.factor)
    compacted = isinstance(seat.stored, CompactLayer) and seat.stored.is_compact  # of a text without padding
    why = (
        None
        if compacted
        else only_masked(seat.kernels, seat.watch is not None, query, attention_mask, dropout, softcap)
    )
    done = Attended(None, MASKED, why) if why else _by_kernel(seat, query, key, value, scoring.factor)
    seat.note(query.shape[2], done.kernel, done.why, done.plan)
    if done.out is not None:
        return done.out.transpose(1, 2).contiguous()
    assert not compacted, "what was dropped from the KV cache cannot be masked"
    if isinstance(seat.stored, GroupedLayer) and seat.stored.is_sorted:
        key, value = seat.stored.restore()
    length, total = query.shape[2], key.shape[2]
    before = max(0, seat.past + length - total)  # a sliding cache hands over its last keys only
    columns = torch.arange(total, device=query.device) + before
    repeat = query.shape[1] // key.shape[1]
    query, key = _at_least_float32(query), _at_least_float32(key.repeat_interleave(repeat, 1))  # [B, H, Tk, D]
    value = value.repeat_interleave(repeat, 1)
    of_keys = seat.memory.keys(seat.layer, total) if seat.layer in seat.memory else None
    here = query.device.type == "cpu"
    held = min(BLOCK_BYTES, seat.method.block_bytes or CPU_BLOCK_BYTES) if here else BLOCK_BYTES
    size = max(1, min(length, held // (4 * query.shape[0] * query.shape[1] * total)))
    out = value.new_empty(*query.shape[:3], value.shape[-1])  # [B, H, Tq, D]
    for start in range(0, length, size):
        stop = min(start + size, length)
        rows = torch.arange(start, stop, device=query.device) + seat.past
        # without a mask nothing after the block's last query can be read
        used = seat.past + stop - before if attention_mask is None else total
        scores = scoring.scores(query[:, :, start:stop], key[:, :, :used])  # [B, H, n, Tk]
        if attention_mask is None:
            visible = (columns[:used] <= rows[:, None])[None, None]
        else:
            visible = attention_mask[:, :, start:stop]
        block = Block(
            seat.layer,
            scores,
            visible,
            rows,
            columns[:used],
            seat.first,
            None if of_keys is None else of_keys[:, rows - before],
            None if of_keys is None else of_keys[:, :used],
            sharing=repeat,
            scoring=scoring,
        )
        probabilities = _probabilities(seat.method, block)
        if seat.watch is not None:
            seat.watch(block, probabilities)
        probabilities = F.dropout(probabilities.to(value.dtype), dropout, module.training)
        out[:, :, start:stop] = torch.matmul(probabilities, value[:, :, :used])
    return out.transpose(1, 2).contiguous()


def _at_least_float32(x: torch.Tensor) -> torch.Tensor:
    """Half-precision scores are too coarse to rank keys by: an offset of 60 leaves steps of a quarter."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def _file(seat: _Seat, module, query, key) -> None:
    """Let the method see the queries and keys of the tokens that are new."""
    length = query.shape[2]
    start = min(seat.past, key.shape[2] - length)  # a static cache is longer than its text, a sliding one shorter
    rows = seat.method.file(seat.layer, query, key[:, :, start : start + length], seat.past, module, seat.tables)
    if rows is not None:
        seat.memory.extend(seat.layer, rows, seat.past)


def _of_tokens(seat: _Seat, query) -> torch.Tensor | None:
    """[B, past + Tq, ...]: what the method remembers of all tokens up to the last query."""
    return seat.memory.keys(seat.layer, seat.past + query.shape[2]) if seat.layer in seat.memory else None


def _by_kernel(seat: _Seat, query, key, value, scaling: float) -> Attended:
    tokens, of_tokens = seat.past + query.shape[2], _of_tokens(seat, query)
    key, value = key[:, :, :tokens], value[:, :, :tokens]  # a static cache is longer than its text
    call = Call(seat.layer, query, key, value, scaling, seat.past, of_tokens, seat.stored)
    return seat.method.attend(call) or Attended(None, MASKED, "This method has no kernel of its own.")


def _probabilities(method, block: Block) -> torch.Tensor:
    """Softmax of what the method reads, or weights made of it, float32 [B, H, n, Tk]; zeros where that is nothing."""
    scores = method.scores(block)
    keep = method.keep(block)
    block.read = visible = block.visible if keep is None else block.visible & keep
    probabilities = torch.softmax(scores.masked_fill(~visible, float("-inf")), dim=-1, dtype=torch.float32)
    if probabilities[..., 0].isnan().any():  # as in a row that reads nothing, which most blocks have none of
        probabilities = probabilities.masked_fill(~visible.any(-1, keepdim=True), 0.0)
    return method.weigh(block, probabilities)


def _dense_kernel(query, key, value, mask, dropout, scaling) -> torch.Tensor:
    causal = mask is None and query.shape[2] > 1
    grouped = query.shape[1] != key.shape[1]
    out = F.scaled_dot_product_attention(
        query, key, value, mask, dropout, is_causal=causal, scale=scaling, enable_gqa=grouped
    )
    return out.transpose(1, 2).contiguous()


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, sdpa_mask)  # None then means causal, aligned to the last key
