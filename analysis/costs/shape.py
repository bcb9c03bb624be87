"""The shape of a decoder, and what attention and everything else cost in it: FLOPs of a prefill, bytes of a step.

Everything is counted from matrices alone (norms, biases, activations and rotations are left out, under 1% together). A
multiplication and an addition are 2 FLOPs. Attention is what grows with the context: scores and weighted values.
"""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import Any

from ..errors import BadSetting

MOST_CONTEXT, MOST_BATCH = 1 << 24, 1 << 16


@dataclass(frozen=True)
class FeedForward:
    """A feed-forward block, dense or a mixture of experts."""

    width: int
    matrices: int  # 3 when gated, else 2
    experts: int = 1  # of that width
    active: int = 1  # experts that a token visits
    # Width that every token visits beside them.
    shared: int = 0

    def weights(self, width: int, experts: float) -> float:
        """Number of weights in `experts` of its experts, in what is shared and in the router, for a model's width."""
        router = width * self.experts if self.experts > 1 else 0
        return self.matrices * width * (self.width * experts + self.shared) + router

    def visited(self, tokens: int) -> float:
        """Different experts that a number of tokens visit, when every expert is as likely as any other."""
        return self.experts * (1 - (1 - self.active / self.experts) ** tokens)


@dataclass(frozen=True)
class Shape:
    """A causal language model as far as its costs go."""

    family: str
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    # Keys that each layer's attention reads at most; None: all.
    windows: tuple[int | None, ...]
    blocks: tuple[FeedForward, ...]  # of each layer
    max_positions: int | None
    dtype: str
    # Of one weight and of one cached number.
    value_bytes: int
    notes: tuple[str, ...] = ()  # what the config left open

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return len(self.windows)

    @property
    def projections(self) -> int:
        """Weights of one layer's query, key, value and output projections."""
        return self.width * self.head_dim * 2 * (self.heads + self.kv_heads)

    @property
    def head(self) -> int:
        """Weights of the output head."""
        return self.width * self.vocabulary

    @property
    def parameters(self) -> int:
        """Weights of all matrices, every expert and both ends included."""
        blocks = sum(block.weights(self.width, block.experts) for block in self.blocks)
        return int(self.layers * self.projections + blocks + self.head * (1 if self.tied else 2))


def kv_cache_bytes(keys: float, head_dim: int, value_bytes: int) -> int:
    """Bytes that so many keys with their values hold, each `head_dim` numbers of `value_bytes`: of a whole model, keys
    are layers * kv_heads * tokens * batch. Read once in every step of dense attention."""
    return round(2 * keys * head_dim * value_bytes)


def prefill_flops(shape: Shape, context: int, counted: str = "all") -> tuple[float, float]:
    """(attention, everything else) in FLOPs to read a prompt of `context` tokens.

    Attention reads the visible pairs only: causal, T(T+1)/2 per head, fewer in a layer with a window. The head runs
    once, at the end.
    """
    pairs = sum(_pairs(context, window) for window in shape.windows)
    per_token = _weights(shape, 1, counted) - (shape.head if counted == "all" else 0)
    once = 2 * shape.head if counted == "all" else 0
    return 4.0 * shape.heads * shape.head_dim * pairs, 2.0 * per_token * context + once


def decode_bytes(shape: Shape, context: int, batch: int = 1, counted: str = "all") -> tuple[int, float]:
    """(keys and values, weights) in bytes that the step with `context` tokens in the cache reads.

    Every sequence of the batch reads its own keys and values; the weights are read once for all of them, and of a
    mixture of experts those that some token of the batch visits. The first number is the size of the KV cache too.
    """
    keys = sum(context if window is None else min(context, window) for window in shape.windows)
    cache = kv_cache_bytes(shape.kv_heads * keys * batch, shape.head_dim, shape.value_bytes)
    return cache, _weights(shape, batch, counted) * shape.value_bytes


def coefficients(shape: Shape, counted: str = "all") -> dict[str, Any]:
    """What `prefill_flops` and `decode_bytes` are made of, as plain numbers: whoever has them counts at any context and
    batch without the shape.

    `windows`: (keys at most or None, layers of that kind); `pair_flops` of a query and a key in a layer; `token_flops`
    of a token beside attention and `once_flops` of a prompt; `key_bytes` of a key in a layer; `step_bytes` of the
    weights that every step reads, and `experts`: (bytes of an expert, experts, those that a token visits, layers).
    """
    head = shape.head if counted == "all" else 0
    sparse = Counter(block for block in shape.blocks if block.experts > 1)
    of_expert = {block: block.matrices * shape.width * block.width * shape.value_bytes for block in sparse}
    visited = sum(of_expert[block] * block.active * layers for block, layers in sparse.items())
    return {
        "windows": [list(kind) for kind in Counter(shape.windows).items()],
        "pair_flops": 4 * shape.heads * shape.head_dim,
        "token_flops": 2 * (_weights(shape, 1, counted) - head),
        "once_flops": 2 * head,
        "key_bytes": kv_cache_bytes(shape.kv_heads, shape.head_dim, shape.value_bytes),
        "step_bytes": _weights(shape, 1, counted) * shape.value_bytes - visited,
        "experts": [[of_expert[block], block.experts, block.active, layers] for block, layers in sparse.items()],
    }


def amdahl(share: float, keep: float) -> float:
    """How much faster it gets at most when a `share` of the cost shrinks to a fraction `keep` of itself."""
    return 1 / (1 - share + share * keep)


def costs(shape: Shape, context: int, batch: int = 1, keep: float = 0.1, counted: str = "all") -> dict[str, float]:
    """One row: attention's shares, the KV cache, and the largest possible gains when `keep` of the keys are read.

    `prefill_share` of the FLOPs before the first token, `decode_share` of the bytes of one step. `prefill_gain` bounds
    the time to the first token of a machine limited by arithmetic, `decode_gain` the time per output token of one
    limited by memory; `gain_bound` is the larger one, which no mixture of both exceeds; `ceiling` is it with free
    attention. BadSetting for values out of range.
    """
    _check(context, batch, keep)
    attention, other_flops = prefill_flops(shape, context, counted)
    cache, weights = decode_bytes(shape, context, batch, counted)
    shares = attention / (attention + other_flops), cache / (cache + weights)
    gains = [amdahl(share, keep) for share in shares]
    return {
        "context": context,
        "batch": batch,
        "prefill_share": shares[0],
        "decode_share": shares[1],
        "kv_bytes": cache,
        "weight_bytes": round(weights),
        "prefill_gain": gains[0],
        "decode_gain": gains[1],
        "gain_bound": max(gains),
        "ceiling": max(amdahl(share, 0.0) for share in shares),
    }


def first_context(shape: Shape, batch: int, keep: float, goal: float, counted: str = "all") -> int | None:
    """The shortest context whose `gain_bound` reaches `goal`; None when none of up to 16,777,216 tokens does."""

    def reaches(context: int) -> bool:
        return costs(shape, context, batch, keep, counted)["gain_bound"] >= goal

    shortest = 1 + bisect_left(range(1, MOST_CONTEXT + 1), True, key=reaches)
    return shortest if shortest <= MOST_CONTEXT else None


def _pairs(context: int, window: int | None) -> int:
    # A triangle until the window is full, then a band of its width.
    span = context if window is None else min(context, window)
    return span * (span + 1) // 2 + (context - span) * span


def _weights(shape: Shape, tokens: int, counted: str) -> float:
    """Weights that a number of tokens, run together, read."""
    total = sum(block.weights(shape.width, block.visited(tokens)) for block in shape.blocks)
    if counted != "ffn":
        total += shape.layers * shape.projections
    return total + (shape.head if counted == "all" else 0)


def _check(context: int, batch: int, keep: float) -> None:
    if not 1 <= context <= MOST_CONTEXT:
        raise BadSetting(f"The context is {context:,} tokens and must lie between 1 and {MOST_CONTEXT:,}.")
    if not 1 <= batch <= MOST_BATCH:
        raise BadSetting(f"The batch is {batch:,} sequences and must lie between 1 and {MOST_BATCH:,}.")
    if not 0 < keep <= 1:
        raise BadSetting(f"The fraction of keys that is read is {keep} and must lie above 0 and at most at 1.")
