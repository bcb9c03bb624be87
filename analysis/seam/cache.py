"""KV caches of our own and what they take: one without copies of the whole past, one whose decode steps read a token's
groups only, one that drops keys for good.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer

from ..errors import AnalysisError
from ..kernels.decode import GroupMajor, GroupTable, Growing
from ..kernels.evicted import Evicted, Heads
from ..kernels.members import apart, texts_of
from ..kernels.narrow import Narrow, Storage
from ..kernels.packed import Sizes
from ..kernels.pool import accelerated
from ..kernels.ragged import Ragged

# What layers of a KV cache hold beside keys and values, by name: of linear attention, convolutions and recurrences, and
# of compressed entries with the tokens that wait for one.
STATES = ("conv_states", "recurrent_states", "compressed_kv", "buffer_kv", "buffer_gate", "overlap_kv", "overlap_gate")


class InOrder:
    """Keys and values of a layer in the order of the text, in buffers with room: a step copies the new token alone."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Begin with keys and values [B, G, T, D]."""
        self.buffers = Growing(keys), Growing(values)

    @property
    def rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """All keys and values [B, G, T, D]."""
        return self.buffers[0].rows, self.buffers[1].rows

    length = property(lambda self: self.buffers[0].length)
    nbytes = property(lambda self: sum(buffer.nbytes for buffer in self.buffers))
    read_bytes = property(lambda self: sum(rows.nbytes for rows in self.rows))

    def put(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Append keys and values [B, G, n, D]."""
        for buffer, new in zip(self.buffers, (keys, values), strict=True):
            buffer.put(new)


class ByGroup:
    """Keys and values of a layer, each text sorted by group, or each key-value head of it; `coming` are the groups
    [B, n, K] or [B, n, G, K] of new tokens, `sizes` those of the groups of the text, where the host knows them."""

    def __init__(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        members: torch.Tensor,
        window: int,
        n_sink: int,
        sizes: Sizes | None = None,
    ):
        states = apart(keys, members), apart(values, members)
        self.texts: Sequence[GroupMajor | GroupTable]
        if accelerated(keys):
            sizes = sizes or Sizes.of(texts_of(members))
            self.texts = [GroupTable(*states, texts_of(members), window, n_sink, max(sizes.groups), sizes.most)]
        else:
            rows = zip(states[0].split(1), states[1].split(1), texts_of(members), strict=True)
            self.texts = [GroupMajor(*row, window, n_sink) for row in rows]
        self.window, self.n_sink, self.coming = window, n_sink, members

    length = property(lambda self: self.texts[0].length)
    nbytes = property(lambda self: sum(text.nbytes for text in self.texts))
    read_bytes = property(lambda self: sum(text.read_bytes for text in self.texts))

    def put(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Append one token: keys and values [B, G, 1, D]."""
        states = *(apart(x, self.coming) for x in (keys, values)), texts_of(self.coming)[:, 0]
        for text, *row in zip(self.texts, *self._each(*states), strict=True):
            text.put(*row)

    def attend(self, query: torch.Tensor, scale: float, sink_logits: torch.Tensor | None) -> torch.Tensor:
        """What the last token reads, beside the learned sinks [H]: query [B, H, 1, D] -> [B, H, 1, D]."""
        queries = apart(query, self.coming)
        # of a text one after the other: those of each of its key-value heads, if they are sorted apart
        sinks: Sequence[torch.Tensor | None] = [None] * len(self.texts)
        if sink_logits is not None:
            (sinks,) = self._each(sink_logits.repeat(len(query)).view(len(queries), -1))
        (rows,) = self._each(queries)
        read = [text.attend(q, scale, own) for text, q, own in zip(self.texts, rows, sinks, strict=True)]
        return (torch.cat(read) if read[1:] else read[0]).reshape(*query.shape[:3], -1)

    def _each(self, *tensors: torch.Tensor) -> Iterator[Sequence[torch.Tensor]]:
        """The parts of tensors [B, ...] that each of `texts` holds: one a text, or all of them together."""
        if isinstance(self.texts[0], GroupTable):
            return ([x] for x in tensors)
        return (x.unbind(0) if x.dim() == 2 else x.split(1) for x in tensors)


class GrowingLayer(CacheLayerMixin):
    """One layer of a KV cache. `update` returns all keys and values while they lie in order, else the new ones.

    `held` has `length`, `nbytes`, `read_bytes` of a step, and `put`.
    """

    supports_early_init = False

    def __init__(self) -> None:
        super().__init__()
        self.held: InOrder | ByGroup | Ragged | Evicted | None = None
        # bytes that were held at once while the order changed
        self.peak = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Begin with keys and values [B, G, T, D]."""
        self.held, self.is_initialized = InOrder(_own(key_states), _own(value_states)), True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append keys and values [B, G, n, D]."""
        if self.held is None:
            self.lazy_initialization(key_states, value_states)
        else:
            self.held.put(key_states, value_states)
        return self.held.rows if isinstance(self.held, InOrder) else (key_states, value_states)

    def get_seq_length(self) -> int:
        """Tokens of the text so far."""
        return 0 if self.held is None else self.held.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys that a mask must cover, and the place of the first."""
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        """-1: there is no limit."""
        return -1

    get_max_cache_shape = get_max_length  # its name in older transformers

    def reset(self) -> None:
        """Forget everything."""
        self.held, self.is_initialized, self.peak = None, False, 0

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Refused: beams need their own order of texts."""
        raise AnalysisError("Beam search is not supported with this KV cache: use greedy decoding or sampling.")


class GroupedLayer(GrowingLayer):
    """Sorted by group once `sort` was called: `attend` then computes what a step reads. The seam sets `coming`, the
    memberships of the tokens that are about to come, [B, n, K]."""

    coming: torch.Tensor | None = None

    @property
    def is_sorted(self) -> bool:
        """Whether the layer is sorted by group now."""
        return isinstance(self.held, ByGroup)

    def sort(self, members: torch.Tensor, window: int, n_sink: int, sizes: Sizes | None = None) -> None:
        """Sort tokens by group: members bool [B, T, K], `sizes` of these groups where they are known. Idempotent."""
        held = self.held
        if not isinstance(held, ByGroup) or (held.window, held.n_sink) != (window, n_sink):
            self.held = ByGroup(*self.restore(), members, window, n_sink, sizes)

    def restore(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Back to the order of the text; returns all keys and values [B, G, T, D]."""
        if isinstance(self.held, ByGroup):
            keys, values = zip(*(text.in_order() for text in self.held.texts), strict=True)
            batch = len(self.held.coming)
            self.held = InOrder(*(torch.cat(x).unflatten(0, (batch, -1)).flatten(1, 2) for x in (keys, values)))
        assert isinstance(self.held, InOrder)
        return self.held.rows

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As of any layer here; several tokens at once bring back the order of the text."""
        if isinstance(self.held, ByGroup):
            assert self.coming is not None
            self.held.coming = self.coming
            if key_states.shape[2] != 1:
                self.restore()
        return super().update(key_states, value_states)

    def attend(self, query: torch.Tensor, scale: float, sink_logits: torch.Tensor | None = None) -> torch.Tensor:
        """What the last token reads, beside the learned sinks [H]: query [B, H, 1, D] -> [B, H, 1, D]."""
        assert isinstance(self.held, ByGroup)
        return self.held.attend(query, scale, sink_logits)


class CompactLayer(GrowingLayer):
    """Once `compact` dropped keys for good, of each head others, `attend` of `held` computes what new tokens read."""

    @property
    def is_compact(self) -> bool:
        """Whether keys were dropped."""
        return self.held is not None and not isinstance(self.held, InOrder)

    @classmethod
    def of(cls, layer: CacheLayerMixin) -> "CompactLayer | None":
        """One with what transformers' own holds that keeps a whole past, or itself; None of another kind."""
        own = layer if isinstance(layer, cls) else cls()
        if isinstance(layer, DynamicLayer) and layer.keys is not None and layer.values is not None:
            own.lazy_initialization(layer.keys, layer.values)
        return own if own.is_initialized else None

    def compact(self, kept: torch.Tensor, storage: Storage | None = None, spare: int = 0) -> None:
        """Keep only what `kept` bool [B, G, n] says, as `storage` says; None: in full. Of the tokens so far or, once
        keys were dropped, of those `in_order`. Room for `spare` tokens more is made at once."""
        before = self.held
        assert isinstance(before, InOrder | Ragged)
        rows = before.rows if isinstance(before, InOrder) else before.in_order()
        self.held = Narrow(*rows, kept, storage) if storage else Ragged(*rows, kept, before.length, spare)
        # the copies stand beside what they are made of
        copies = 0 if isinstance(before, InOrder) else sum(x.nbytes for x in rows)
        self.peak = before.nbytes + copies + self.held.nbytes

    def follow(self, cache: Heads, room: list[int]) -> None:
        """From now on hold what the query heads of `cache` hold, of which each may hold `room` [H] keys."""
        before = self.held
        assert isinstance(before, InOrder)
        self.held = Evicted(*before.rows, cache, room)
        self.peak = before.nbytes + self.held.nbytes


class GrowingCache(Cache):
    """Dense, but no step copies the past: the fastest cache for dense attention that runs any model as it is.

    Layers with a sliding window stay those of transformers.
    """

    # In the place of a layer that keeps the whole past.
    layer_kind: type[GrowingLayer] = GrowingLayer

    def __init__(self, config: PreTrainedConfig) -> None:
        layers_of_model = DynamicCache(config=config).layers
        super().__init__(
            layers=[self.layer_kind() if type(layer) is DynamicLayer else layer for layer in layers_of_model]
        )


class GroupedCache(GrowingCache):
    """A group-major KV cache, inside `apply(..., kernels=True)`: a layer is sorted once its method read a prompt."""

    layer_kind = GroupedLayer


class CompactCache(GrowingCache):
    """A KV cache whose layers a method compacts once they hold a prompt, inside `apply(..., kernels=True)`."""

    layer_kind = CompactLayer


def cache_bytes(cache: Cache) -> tuple[int, int]:
    """(bytes held, bytes of keys and values that a step reads) of a KV cache."""
    return sum(_size(layer)[0] for layer in cache.layers), sum(_size(layer)[1] for layer in cache.layers)


def most_bytes(cache: Cache) -> int:
    """The most bytes that a KV cache held while it took in a prompt, layer by layer: what is dropped of a layer goes
    before the next one is read."""
    below = peak = 0
    for layer in cache.layers:
        held, _ = _size(layer)
        peak, below = max(peak, below + max(held, getattr(layer, "peak", 0))), below + held
    return peak


def keys_held(cache: Cache) -> float:
    """Keys that a key-value head holds, the mean over texts, heads and the layers that hold keys."""
    counts: list[float] = []
    for layer in cache.layers:
        if isinstance(layer, GrowingLayer):
            held = layer.held
            counts.append(float(held.counts.mean()) if isinstance(held, Ragged | Evicted) else layer.get_seq_length())
        elif (keys := getattr(layer, "keys", None)) is not None:
            counts.append(keys.shape[-2])
    return sum(counts) / len(counts)


def _size(layer: Any) -> tuple[int, int]:
    """Bytes held, and bytes that a step reads."""
    if isinstance(layer, GrowingLayer):
        return (layer.held.nbytes, layer.held.read_bytes) if layer.held else (0, 0)
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    # keys may be values too
    states = [keys, None if values is keys else values]
    for kind in STATES:
        states += getattr(layer, kind, {}).values()
    size = sum(state.nbytes for state in states if state is not None)
    return size, size


def _own(rows: torch.Tensor) -> torch.Tensor:
    """Rows that keep no larger tensor alive: a model with one projection for queries, keys and values hands out views
    of all three."""
    return rows if rows.untyped_storage().nbytes() == rows.nbytes else rows.clone()
