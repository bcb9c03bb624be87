"""The shape of a decoder, and what attention and everything else cost in it: FLOPs of a prefill, bytes of a step.

Everything is counted from matrices alone (norms, biases, activations and rotations are left out, under 1% together). A
multiplication and an addition are 2 FLOPs. Attention is what a method that reads fewer keys makes cheaper: scores and
weighted values. What the model reads besides, its weights, its indexer's own keys and the states of its linear layers,
stays as it is.
"""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from ..errors import BadSetting
from .kinds import CSA, HCA
from .layer import Entries, FeedForward, Layer

MOST_CONTEXT, MOST_BATCH = 1 << 24, 1 << 16
# An update and a reading, each a multiplication and an addition.
STATE_FLOPS = 4
# Contexts that are tried for each doubling, where a gain is looked for.
TRIED = 4


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
    stack: tuple[Layer, ...]
    max_positions: int | None
    dtype: str
    # Of a weight outside the layers, and of a cached number.
    value_bytes: float
    cache_bytes: float
    # Of a weight in the feed-forward blocks, and in what mixes tokens; of a number of a state.
    block_bytes: float
    mixer_bytes: float
    state_bytes: float
    # Weights of a table of which a token reads one row, and of matrices outside the layers.
    looked_up: int = 0
    beside: int = 0
    notes: tuple[str, ...] = ()  # what has to be said of it

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return len(self.stack)

    @property
    def reading(self) -> int:
        """Number of layers that read keys."""
        return sum(1 for layer in self.stack if layer.entries)

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Tokens that each layer's attention sees at most; None: all, or no attention."""
        return tuple(layer.window for layer in self.stack)

    @property
    def blocks(self) -> tuple[FeedForward, ...]:
        """The feed-forward blocks of all layers."""
        return tuple(block for layer in self.stack for block in layer.blocks)

    @property
    def head(self) -> int:
        """Weights of the output head."""
        return self.width * self.vocabulary

    @property
    def latent(self) -> int:
        """Numbers of the one latent that a layer of MLA caches of a token; 0 where there is none."""
        return max((layer.entries[0].numbers for layer in self.stack if layer.latent), default=0)

    @property
    def chooses(self) -> bool:
        """Whether an indexer of the model's own chooses keys."""
        return any(entries.selects for layer in self.stack for entries in layer.entries)

    @property
    def compresses(self) -> bool:
        """Whether a layer reads entries that stand for several tokens beside those of single ones."""
        return any(layer.kind in (CSA, HCA) for layer in self.stack)

    @cached_property
    def parameters(self) -> int:
        """Weights of all matrices, every expert and both ends included."""
        ends = self.head * (1 if self.tied else 2) + self.looked_up + self.beside
        return int(sum(self.layer_weights(layer) * many for layer, many in self.kinds) + ends)

    @cached_property
    def active(self) -> int:
        """Weights that one token passes: those experts that it visits, and the output head; tables of which it reads
        one row are not among them."""
        return int(weights_read(self, 1, "all"))

    @cached_property
    def weight_bytes(self) -> float:
        """Bytes of all weights, each in its format."""
        blocks = sum(block.weights(self.width, block.experts) for block in self.blocks)
        mixers = sum(layer.weights for layer in self.stack)
        rest = self.parameters - blocks - mixers
        return blocks * self.block_bytes + mixers * self.mixer_bytes + rest * self.value_bytes

    @cached_property
    def kinds(self) -> list[tuple[Layer, int]]:
        """Layers that differ, and how often each comes."""
        return list(Counter(self.stack).items())

    @cached_property
    def cached(self) -> list[tuple[Entries, int]]:
        """What is cached of a text, and in how many layers."""
        return list(Counter(entries for layer in self.stack for entries in layer.entries).items())

    @cached_property
    def state(self) -> float:
        """Bytes of the states of a sequence."""
        return self.state_bytes * sum(layer.state for layer in self.stack)

    @property
    def token_bytes(self) -> float:
        """Bytes that a token adds to the cache as long as no window is full: keys, values, and an indexer's keys."""
        return self.cache_bytes * sum(
            many * entries.numbers / entries.every for entries, many in self.cached if not entries.shared
        )

    def layer_weights(self, layer: Layer) -> float:
        """Weights of one layer, every expert included."""
        return layer.weights + sum(block.weights(self.width, block.experts) for block in layer.blocks)


def prefill_flops(shape: Shape, context: int, counted: str = "all") -> tuple[float, float]:
    """(attention, everything else) in FLOPs to read a prompt of `context` tokens.

    Attention reads the visible pairs only: causal, T(T+1)/2 per head, fewer in a layer with a window, and those that
    the model's own indexer leaves. The indexer's products are among everything else. The head runs once, at the end.
    """
    # FLOPs of (attention, the model's own indexers) over a prompt.
    sums = {False: 0.0, True: 0.0}
    for entries, many in shape.cached:
        sums[entries.selects] += 2.0 * entries.products * many * entries.pairs(context)
    attention, choosing = sums[False], sums[True]
    per_token = weights_read(shape, 1, counted) - (shape.head if counted == "all" else 0)
    once = 2 * shape.head if counted == "all" else 0
    return attention, (2.0 * per_token + state_flops(shape)) * context + once + choosing


def state_flops(shape: Shape) -> float:
    """FLOPs of a token in the states of linear layers."""
    return float(STATE_FLOPS * sum(layer.state for layer in shape.stack))


def decode_bytes(shape: Shape, context: int, batch: int = 1, counted: str = "all") -> tuple[float, float]:
    """(keys and values, everything else) in bytes that the step with `context` tokens in the cache reads.

    Every sequence of the batch reads its own keys and values, its indexer's keys and its states; the weights are read
    once for all of them, and of a mixture of experts those that some token of the batch visits.
    """
    sums = {False: 0.0, True: 0.0}
    for entries, many in shape.cached:
        sums[entries.selects] += entries.numbers * many * entries.step(context)
    keys, chosen_by = (batch * shape.cache_bytes * sums[selects] for selects in (False, True))
    return keys, chosen_by + batch * shape.state + weight_bytes_read(shape, batch, counted)


def cache_bytes(shape: Shape, context: int, batch: int = 1, keep: float = 1.0) -> float:
    """Bytes held for a number of sequences: a fraction `keep` of the keys and values, an indexer's keys, states."""
    total = shape.state
    for entries, many in shape.cached:
        part = 1.0 if entries.selects else keep
        total += part * shape.cache_bytes * entries.numbers * many * entries.cached(context)
    return batch * total


def step_flops(shape: Shape, context: int, batch: int, keep: float = 1.0) -> float:
    """FLOPs of the step after a context, of every sequence of a batch that reads a fraction `keep` of the keys."""
    products = 2.0 * weights_read(shape, 1, "all") + state_flops(shape)
    for entries, many in shape.cached:
        part = 1.0 if entries.selects else keep
        products += 2.0 * part * entries.step_products * many * entries.step(context)
    return batch * products


def amdahl(share: float, keep: float) -> float:
    """How much faster it gets at most when a `share` of the cost shrinks to a fraction `keep` of itself."""
    return 1 / (1 - share + share * keep)


def costs(shape: Shape, context: int, batch: int = 1, keep: float = 0.1, counted: str = "all") -> dict[str, float]:
    """One row: attention's shares, the KV cache, and the largest possible gains when `keep` of the keys are read.

    `prefill_share` of the FLOPs before the first token, `decode_share` of the bytes of one step. `prefill_gain` bounds
    the time to the first token of a machine limited by arithmetic, `decode_gain` the time per output token of one
    limited by memory; `gain_bound` is the larger one, which no mixture of both exceeds; `ceiling` is it with free
    attention. `kv_bytes` are held, indexer keys and states with them. BadSetting for values out of range.
    """
    _check(context, batch, keep)
    attention, other_flops = prefill_flops(shape, context, counted)
    keys, rest = decode_bytes(shape, context, batch, counted)
    shares = attention / (attention + other_flops), keys / (keys + rest)
    gains = [amdahl(share, keep) for share in shares]
    return {
        "context": context,
        "batch": batch,
        "prefill_share": shares[0],
        "decode_share": shares[1],
        "kv_bytes": round(cache_bytes(shape, context, batch)),
        "weight_bytes": round(weight_bytes_read(shape, batch, counted)),
        "prefill_gain": gains[0],
        "decode_gain": gains[1],
        "gain_bound": max(gains),
        "ceiling": max(amdahl(share, 0.0) for share in shares),
    }


def first_context(shape: Shape, batch: int, keep: float, goal: float, counted: str = "all") -> int | None:
    """The shortest context whose `gain_bound` reaches `goal`; None when none of up to 16,777,216 tokens does.

    Gains may fall again where windows are full or an indexer chooses: so a few contexts of every doubling are tried,
    and the first that reaches the goal is looked at from the one before.
    """

    def reaches(context: int) -> bool:
        return costs(shape, context, batch, keep, counted)["gain_bound"] >= goal

    before = 0
    for context in tried():
        if reaches(context):
            return before + 1 + bisect_left(range(before + 1, context + 1), True, key=reaches)
        before = context
    return None


def tried() -> list[int]:
    """Contexts among which a gain is looked for, from 1 to the longest."""
    last = TRIED * (MOST_CONTEXT.bit_length() - 1)
    return sorted({int(2 ** (place / TRIED)) for place in range(last + 1)})


def weights_read(shape: Shape, tokens: int, counted: str) -> float:
    """Weights that a number of tokens, run together, read."""
    total = sum(block.weights(shape.width, block.visited(tokens)) for block in shape.blocks)
    if counted != "ffn":
        total += sum(layer.weights for layer in shape.stack)
    return total + (shape.head + shape.beside if counted == "all" else 0)


def weight_bytes_read(shape: Shape, tokens: int, counted: str) -> float:
    """The same in bytes, each weight in its format."""
    blocks = sum(block.weights(shape.width, block.visited(tokens)) for block in shape.blocks)
    total = blocks * shape.block_bytes
    if counted != "ffn":
        total += shape.mixer_bytes * sum(layer.weights for layer in shape.stack)
    return total + (shape.value_bytes * (shape.head + shape.beside) if counted == "all" else 0)


def _check(context: int, batch: int, keep: float) -> None:
    if not 1 <= context <= MOST_CONTEXT:
        raise BadSetting(f"The context is {context:,} tokens and must lie between 1 and {MOST_CONTEXT:,}.")
    if not 1 <= batch <= MOST_BATCH:
        raise BadSetting(f"The batch is {batch:,} sequences and must lie between 1 and {MOST_BATCH:,}.")
    if not 0 < keep <= 1:
        raise BadSetting(f"The fraction of keys that is read is {keep} and must lie above 0 and at most at 1.")
