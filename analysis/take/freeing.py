"""The layers of an attached model whose method drops keys after the prompt, or packs them: `attach` makes them."""

from torch import Tensor

from ..kernels.ragged import Ragged
from ..kernels.scoring import Scoring
from ..methods.evicting import Evicting
from ..seam.cache import CompactLayer
from ..seam.cache_checks import layer_of
from .attach import AttachedLayer


class FreeingLayer(AttachedLayer):
    """Once a prompt was read its KV cache holds what stays of it alone, stored as the method says."""

    def read(self, query: Tensor, key: Tensor, value: Tensor, dropout: float, scoring: Scoring) -> Tensor:
        """As of any attached layer; new tokens read what is held."""
        cache_layer, method = layer_of(self.cache, self.cache_index), self.method
        if isinstance(cache_layer, CompactLayer) and cache_layer.is_compact:
            assert self.visible is not None and isinstance(cache_layer.held, Ragged), "a prompt was read before"
            return cache_layer.held.attend(query, scoring.factor, self.visible.sinks, scoring.softcap)
        out = super().read(query, key, value, dropout, scoring)
        assert isinstance(method, Evicting), "its layers are made for methods that evict"
        kept = method.kept_.pop(self.layer, None)
        if self.cache is None or cache_layer is None or kept is None:
            return out
        if self.first is not None and bool((self.first > 0).any()):
            raise RuntimeError("A padded batch keeps other keys of each text: give one text at a time.")
        freed = CompactLayer.of(cache_layer)
        if freed is None:
            raise RuntimeError("Keys can be dropped from a DynamicCache only: choose no other KV cache.")
        freed.compact(kept, method.stored_as(self.layer))
        self.cache.layers[self.cache_index] = freed
        return out
