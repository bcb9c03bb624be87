"""The seam to the KV cache: what a method remembers of every token beside keys and values, a cache without copies of
the whole past, one whose decode steps read a token's groups only, and one that drops keys for good.
"""

from collections.abc import Callable

import torch
from transformers import GenerationConfig
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    StaticLayer,
)

from ..errors import AnalysisError, BadModel
from ..kernels.decode import GroupMajor, Growing
from ..kernels.ragged import Ragged
from .arguments import as_past

OTHER_CACHES = ("cache_implementation", "assistant_model", "prompt_lookup_num_tokens")


class TokenMemory:
    """One tensor [B, T, ...] per layer that grows with the KV cache.

    A method's `observe` gives one row per new token (group memberships, a running temperature); the memory keeps
    them in the order of the cache. It starts anew whenever a layer is fed from position 0.
    """

    def __init__(self):
        self._rows: dict[int, Growing] = {}

    def extend(self, layer: int, new: torch.Tensor, past: int) -> None:
        """Append the rows of the new tokens, [B, Tq, ...], after the first `past` ones."""
        if past == 0:
            self._rows[layer] = Growing(new, dim=1)
            return
        remembered = self._rows[layer].length if layer in self._rows else 0
        if remembered < past:
            raise AnalysisError(
                f"The KV cache holds {past:,} tokens and the method applied now saw {remembered:,} of them: "
                "begin with an empty cache."
            )
        self._rows[layer].length = past
        self._rows[layer].put(new)

    def keys(self, layer: int, length: int) -> torch.Tensor:
        """Rows of the `length` keys a layer sees: the last ones under a sliding cache, padded under a static one."""
        rows = self._rows[layer].rows
        if length <= rows.shape[1]:
            return rows[:, rows.shape[1] - length :]
        pad = rows.new_zeros(rows.shape[0], length - rows.shape[1], *rows.shape[2:])
        return torch.cat([rows, pad], dim=1)

    def __contains__(self, layer: int) -> bool:
        return layer in self._rows


class GrowingLayer(CacheLayerMixin):
    """Keys and values of one layer in buffers with room: a step copies the new token, not the past."""

    supports_early_init = False

    def __init__(self):
        super().__init__()
        self._kept: tuple[Growing, Growing] | None = None

    def lazy_initialization(self, key_states, value_states) -> None:
        """Begin with keys and values [B, G, T, D]."""
        self._kept = Growing(_own(key_states)), Growing(_own(value_states))
        self.is_initialized = True

    def update(self, key_states, value_states, *args, **kwargs):
        """Append keys and values [B, G, n, D]; returns all of them."""
        if self._kept is None:
            self.lazy_initialization(key_states, value_states)
        else:
            for buffer, new in zip(self._kept, (key_states, value_states), strict=True):
                buffer.put(new)
        return tuple(buffer.rows for buffer in self._kept)

    def get_seq_length(self) -> int:
        """Tokens held."""
        return 0 if self._kept is None else self._kept[0].length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys that a mask must cover, and the place of the first."""
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        """-1: there is no limit."""
        return -1

    get_max_cache_shape = get_max_length  # its name in older transformers

    def reset(self) -> None:
        """Forget everything."""
        self._kept, self.is_initialized = None, False

    def reorder_cache(self, beam_idx) -> None:
        """Refused: beams need their own order of texts."""
        raise AnalysisError("Beam search is not supported with this KV cache: use greedy decoding or sampling.")

    @property
    def nbytes(self) -> int:
        """Bytes held, free room included."""
        return sum(buffer.nbytes for buffer in self._kept or ())

    @property
    def most_bytes(self) -> int:
        """The most bytes that were held at once since the text began."""
        return self.nbytes

    @property
    def read_bytes(self) -> int:
        """Bytes of keys and values that a step reads."""
        return sum(buffer.rows.nbytes for buffer in self._kept or ())


class GroupedLayer(GrowingLayer):
    """Keys and values of one layer sorted by group, once `sort` was called; a growing layer before.

    Sorted, `update` hands back the new token only, and `attend` computes what it reads. The seam sets `coming`, the
    memberships of the tokens that are about to come, [B, n, K].
    """

    def __init__(self):
        super().__init__()
        self.coming: torch.Tensor | None = None
        self._texts: list[GroupMajor] | None = None

    @property
    def is_sorted(self) -> bool:
        """Whether the layer is sorted by group now."""
        return self._texts is not None

    def sort(self, members: torch.Tensor, window: int, n_sink: int) -> None:
        """File all tokens by group: members bool [B, T, K]. Nothing is done where that is so already."""
        if self.is_sorted and (self._texts[0].window, self._texts[0].n_sink) == (window, n_sink):
            return
        keys, values = (x.split(1) for x in self.restore())
        rows = zip(keys, values, members, strict=True)
        self._texts, self._kept = [GroupMajor(*row, window, n_sink) for row in rows], None

    def restore(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Back to the order of the text; returns all keys and values [B, G, T, D]."""
        if self.is_sorted:
            keys, values = zip(*(text.in_order() for text in self._texts), strict=True)
            self._kept, self._texts = (Growing(torch.cat(keys)), Growing(torch.cat(values))), None
        return tuple(buffer.rows for buffer in self._kept)

    def update(self, key_states, value_states, *args, **kwargs):
        """Append keys and values [B, G, n, D]; returns all of them, or the new ones of a layer that stays sorted."""
        if self.is_sorted and key_states.shape[2] != 1:
            self.restore()
        if not self.is_sorted:
            return super().update(key_states, value_states)
        for text, *row in zip(self._texts, _each(key_states), _each(value_states), self.coming[:, 0], strict=True):
            text.put(*row)
        return key_states, value_states

    def attend(self, query: torch.Tensor, scale: float) -> torch.Tensor:
        """What the last token reads: query [B, H, 1, D] -> [B, H, 1, D]."""
        read = [text.attend(q, scale) for text, q in zip(self._texts, _each(query), strict=True)]
        return torch.cat(read) if read[1:] else read[0]

    def get_seq_length(self) -> int:
        return self._texts[0].length if self.is_sorted else super().get_seq_length()

    def reset(self) -> None:
        super().reset()
        self._texts = None

    @property
    def nbytes(self) -> int:
        return sum(text.nbytes for text in self._texts) if self.is_sorted else super().nbytes

    @property
    def read_bytes(self) -> int:
        """Bytes of keys and values that the last step read."""
        return sum(text.read_bytes for text in self._texts) if self.is_sorted else super().read_bytes


class CompactLayer(GrowingLayer):
    """Keys and values of one layer of which `compact` drops some for good, of each head others; a growing layer before.

    Compacted, `update` hands back the new tokens only, and `attend` computes what they read. Places and lengths stay
    those of the whole text.
    """

    def __init__(self):
        super().__init__()
        self.held: Ragged | None = None
        self._most = 0  # bytes held when keys were dropped, with the copy of those that stay

    @property
    def is_compact(self) -> bool:
        """Whether keys were dropped."""
        return self.held is not None

    def compact(self, kept: torch.Tensor) -> None:
        """Keep only what `kept` bool [B, G, T] says, T the tokens so far."""
        before = self.nbytes
        self.held = Ragged(*(buffer.rows for buffer in self._kept), kept)
        self._most = before + self.held.nbytes
        self._kept = None

    def update(self, key_states, value_states, *args, **kwargs):
        """Append keys and values [B, G, n, D]; returns all of them, or the new ones of a compacted layer."""
        if not self.is_compact:
            return super().update(key_states, value_states)
        self.held.put(key_states, value_states)
        return key_states, value_states

    def get_seq_length(self) -> int:
        return self.held.length if self.is_compact else super().get_seq_length()

    def reset(self) -> None:
        super().reset()
        self.held, self._most = None, 0

    @property
    def nbytes(self) -> int:
        return self.held.nbytes if self.is_compact else super().nbytes

    @property
    def most_bytes(self) -> int:
        return max(self._most, self.nbytes)

    @property
    def read_bytes(self) -> int:
        return self.held.read_bytes if self.is_compact else super().read_bytes


class GrowingCache(Cache):
    """Dense, but no step copies the past: the fastest cache for dense attention that runs any model as it is."""

    kept = GrowingLayer  # in the place of a layer that keeps the whole past; others are those that transformers takes

    def __init__(self, config):
        layers_of_model = DynamicCache(config=config).layers
        super().__init__(layers=[self.kept() if type(layer) is DynamicLayer else layer for layer in layers_of_model])


def sees_all(config, layers: int) -> list[bool]:
    """Which of a model's layers keep the whole past in their KV cache: those without a sliding window."""
    cache_layers = DynamicCache(config=config).layers
    return [type(layer) is DynamicLayer for layer in cache_layers] if cache_layers else [True] * layers


class GroupedCache(GrowingCache):
    """A group-major KV cache, for `as_past`, inside `apply(..., kernels=True)`.

    A layer is sorted once its method attended to a prompt; layers with a sliding window stay as they are.
    """

    kept = GroupedLayer


class CompactCache(GrowingCache):
    """A KV cache whose layers a method compacts once they hold the prompt, inside `apply(..., kernels=True)`."""

    kept = CompactLayer


def cache_bytes(cache: Cache) -> tuple[int, int]:
    """(bytes held, bytes of keys and values that a step reads) of a KV cache."""
    total = read = 0
    for layer in cache.layers:
        if isinstance(layer, GrowingLayer):
            total, read = total + layer.nbytes, read + layer.read_bytes
        else:
            size = layer.keys.nbytes + layer.values.nbytes
            total, read = total + size, read + size
    return total, read


def most_bytes(cache: Cache) -> int:
    """The most bytes that a KV cache held while it took in a prompt, layer by layer: what is dropped of a layer goes
    before the next one is read."""
    below = peak = 0
    for layer in cache.layers:
        is_ours = isinstance(layer, GrowingLayer)
        size = layer.nbytes if is_ours else layer.keys.nbytes + layer.values.nbytes
        peak, below = max(peak, below + (layer.most_bytes if is_ours else size)), below + size
    return peak


def keys_held(cache: Cache) -> float:
    """Keys that a key-value head holds, the mean over texts, heads and layers."""
    counts = []
    for layer in cache.layers:
        if isinstance(layer, CompactLayer) and layer.is_compact:
            counts.append(float(layer.held.counts.mean()))
        else:
            counts.append(layer.get_seq_length() if isinstance(layer, GrowingLayer) else layer.keys.shape[-2])
    return sum(counts) / len(counts)


def _each(batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The texts of a batch, each a batch of its own; of one text the batch as it is, since a step consists of small
    calls."""
    return batch.split(1) if len(batch) > 1 else (batch,)


def _own(rows: torch.Tensor) -> torch.Tensor:
    """Rows that keep no larger tensor alive: a model with one projection for queries, keys and values hands out views
    of all three."""
    return rows if rows.untyped_storage().nbytes() == rows.nbytes else rows.clone()


def past_length(cache: Cache | None, layer: int) -> int:
    """Tokens already in the KV cache of `layer` (0 without one)."""
    return int(cache.get_seq_length(layer)) if cache is not None else 0


def layer_of(cache: Cache | None, layer: int) -> CacheLayerMixin | None:
    """The part of a KV cache that belongs to one layer; None before it was made."""
    layers = getattr(cache, "layers", [])
    return layers[layer] if layer < len(layers) else None


def check_keys(held: CacheLayerMixin | None, tokens: int, keys: int) -> None:
    """Raise BadModel where a layer hands over other than one key for each of the text's `tokens` so far: the places of
    queries and keys would be guessed. A static cache may hand over more, a sliding one and our own fewer."""
    is_ours = isinstance(held, GroupedLayer | CompactLayer)
    if keys > tokens and not isinstance(held, StaticLayer):
        raise BadModel(
            f"A layer hands over {keys:,} keys for a text of {tokens:,} tokens, and its KV cache does not say where "
            "they belong: choose another model, or another KV cache."
        )
    if keys < tokens and not (is_ours or isinstance(held, DynamicSlidingWindowLayer | StaticLayer)):
        raise BadModel(
            f"A layer hands over {keys:,} keys for a text of {tokens:,} tokens, so others were dropped from its KV "
            "cache: choose another KV cache."
        )


def guarded(lm, generate: Callable, own_cache: Callable[[], Cache | None]) -> Callable:
    """`generate` that refuses beam search, and takes the method's own KV cache where the caller chose none.

    Beams reorder the KV cache, and what methods remember is not reordered.
    """

    def checked(*args, **kwargs):
        configs = (*args, kwargs.get("generation_config"))
        config = next(
            (config_given for config_given in configs if isinstance(config_given, GenerationConfig)),
            lm.generation_config,
        )
        beams = kwargs.get("num_beams") or config.num_beams or 1
        if beams > 1:
            raise AnalysisError(
                f"Beam search ({beams} beams) is not supported with a method applied: use greedy decoding or sampling."
            )
        other_caches = [kwargs.get(name, getattr(config, name, None)) for name in OTHER_CACHES]
        chosen = any(isinstance(value, Cache) for value in kwargs.values()) or any(
            value is not None for value in other_caches
        )
        if not chosen and kwargs.get("use_cache", config.use_cache) is not False:
            cache = own_cache()
            if cache is not None:
                kwargs |= as_past(lm, cache)
        return generate(*args, **kwargs)

    return checked
