"""How large an indexer is: what it caches of a token and computes for a pair, and its sizes at equal bytes."""

from dataclasses import dataclass, replace
from typing import Self

from ..declaration import field
from ..errors import BadSetting

# Of a cached number.
HALF = 2
# Kinds that cache one vector for several tokens; the others one a token.
BLOCKS = ("qsa", "seer", "moba")
UNITS = ("m3", *BLOCKS)


@dataclass(frozen=True)
class Sizes:
    """What an indexer is fitted with. `index_dim` 0: as many sizes as `index_bytes` of the cache pay for, so that kinds
    are compared at equal bytes; MoBA has what its blocks give."""

    index_heads: int = field(4, "heads of an indexer (dsa, glm, qsa)", low=1, high=128)
    index_dim: int = field(0, "sizes of its keys (0: what the bytes pay for)", low=0, high=1024)
    index_bytes: int = field(32, "bytes that it caches of a token, in 16 bits", low=4, high=1024)
    unit: int = field(16, "tokens of a block (m3, seer, moba)", low=2, high=512)
    ratio: int = field(4, "tokens of a group (qsa)", low=2, high=64)
    steps: int = field(1000, "training steps at most", low=1, high=1_000_000)
    rate: float = field(1e-3, "learning rate of AdamW", low=1e-6, high=1.0)
    queries: int = field(64, "queries of a document that are learned from", low=1, high=1 << 20)
    min_distance: int = field(0, "fewest tokens between a query and a key that is learned", low=0, high=1 << 20)
    sinks: int = field(0, "first keys that are left out", low=0, high=64)

    def for_kind(self, kind: str, kv_heads: int) -> Self:
        """With `index_dim` settled and `unit` that of the kind. Errors: BadSetting for bytes that pay for nothing."""
        unit = {"qsa": self.ratio}.get(kind, self.unit if kind in UNITS else 1)
        keys = kv_heads if kind in ("seer", "moba") else 1
        paid = self.index_bytes * (unit if kind in BLOCKS else 1) // (HALF * keys)
        dim = self.index_dim or paid // 4 * 4
        if dim < 4:
            raise BadSetting(
                f"{self.index_bytes} bytes a token pay for no key of {kind}: give more bytes or larger blocks."
            )
        return replace(self, unit=unit, index_dim=dim)

    def cached(self, kind: str, kv_heads: int, head_dim: int) -> float:
        """Bytes of a token that are cached, in 16 bits; of sizes `for_kind`."""
        numbers = {"seer": kv_heads * self.index_dim, "moba": kv_heads * head_dim}.get(kind, self.index_dim)
        return HALF * numbers / (self.unit if kind in BLOCKS else 1)

    def multiplied(self, kind: str, heads: int, kv_heads: int, head_dim: int) -> float:
        """Multiply-adds for a pair of a query and a key; of sizes `for_kind`."""
        of_head = {"dsa": self.index_dim + 1, "glm": self.index_dim + 1, "moba": head_dim}.get(kind, self.index_dim)
        by_kind = {"m3": kv_heads, "seer": kv_heads, "moba": heads, "low_rank": 1}
        return by_kind.get(kind, self.index_heads) * of_head / (self.unit if kind in BLOCKS else 1)
