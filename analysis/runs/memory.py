"""How much memory a request takes at its peak, beside the model's weights, by the sizes of the model."""

from collections.abc import Collection, Mapping
from typing import Any

import psutil

from ..commands.routing import LENGTH
from ..declaration.command import Command

# Bytes: compiled kernels, blocks of scores, tables.
FIXED = 60 << 20
HIDDEN_COPIES, INNER_COPIES = 14, 3  # tensors of a layer that are held at once, [T, width] and [T, inner]
# Of queries and keys of one window: more are not kept, but for the layer that is looked at.
STATES_BYTES = 256 << 20
# Bytes: routing vectors, groups and their controls.
OF_TOKEN_AND_LAYER = 180
# Tokens that fit a router, and of a window of them.
FITTED_ON, FITTED_IN = 2048, 1024
# Float32 logits, at most: those of a longer text are made some places at a time.
LOGITS_BYTES = 64 << 20
LOGITS = 4  # tensors [n, vocabulary] at once: two that are compared, and those before them
# End of the name of a type of numbers -> its bytes; float32 has 4.
ITEM_BYTES = {"16": 2, "64": 8}
OF_WEIGHT = 4  # numbers of float32 held of a trained weight, beside itself
OF_NO_STATES = ("seer", "moba", "low_rank")  # kinds of indexers that keep no hidden states to learn from
MOMENTS = 3  # matrices [width, width] of the low-rank indexer
OF_GRADIENT = 6  # tensors [n, vocabulary] held at once where a loss and its gradient are taken


def held(
    command: type[Command], args: Mapping[str, Any], tokens: int, card: Mapping[str, Any], is_read: bool = False
) -> int:
    """Bytes at the peak of a request that reads so many tokens, beside the model's weights; `card`: the numbers of the
    verb `model`. `is_read`: the reading of an earlier page serves it, so that the model reads nothing."""
    width, layers, item = card["width"], card["layers"], ITEM_BYTES.get(card["dtype"][-2:], 4)
    window = min(tokens, card.get("max_positions", tokens), args.get("window") or tokens if command.scores else tokens)
    if is_read:
        return FIXED + OF_TOKEN_AND_LAYER * tokens * layers
    a_token = of_token(item, width, card.get("inner"))
    if command.verb == "fit-router":
        return FIXED + 4 * FITTED_ON * layers * width + FITTED_IN * a_token
    if command.verb == "train-router":
        phase = args.get("phase") or 1
        length, weights = min(window, args.get("length") or window), card.get("parameters", 0)
        # Of a copy in float32, where the weights are trained too.
        size, extra = (4, 4 * weights) if phase == 2 else (item, 0)
        sizes = size, width, card.get("inner"), layers, card.get("vocabulary", 0), weights if phase == 2 else 0
        return extra + of_training(length, *sizes, again=False)
    total = FIXED + window * a_token
    if command.looks:
        of_layer = 4 * window * (card["heads"] + card["kv_heads"]) * card["head_dim"]
        total += layers * of_layer if layers * of_layer <= STATES_BYTES else of_layer
        total += OF_TOKEN_AND_LAYER * tokens * layers
    logits = min(LOGITS_BYTES, 4 * window * card.get("vocabulary", 0))
    if command.gradient:
        # The estimate keeps what every layer computed for the way back, those of a hybrid without attention too.
        all_layers = layers + len(card.get("other_layers") or {})
        total += (all_layers - 1) * window * a_token + OF_GRADIENT * logits
    if command.scores:
        total += LOGITS * logits
    if kinds := args.get("kinds") if command.verb == "route" else None:
        length = min(args.get("length") or LENGTH, card.get("max_positions", LENGTH))
        texts = args.get("prompts", command.defaults["prompts"]) * length
        total += layers * of_indexers(kinds, texts, width, card["kv_heads"] * card["head_dim"])
    return total


def of_indexers(kinds: Collection[str], tokens: int, width: int, states: int) -> int:
    """Bytes that indexers of a layer learn from, so many tokens: hidden states in 16 bits, which most kinds share, keys
    of seer, and the second moments of the low-rank one in float64."""
    learned = 2 * width * any(kind not in OF_NO_STATES for kind in kinds) + 2 * states * ("seer" in kinds)
    return tokens * learned + 8 * MOMENTS * width * width * ("low_rank" in kinds)


def of_token(item: int, width: int, inner: int | None) -> int:
    """Bytes of a token in a pass: the tensors of one layer that are held at once, of `item` bytes a number."""
    return item * (HIDDEN_COPIES * width + INNER_COPIES * (inner or 4 * width))


def of_training(
    tokens: int, item: int, width: int, inner: int | None, layers: int, vocabulary: int, weights: int, again: bool
) -> int:
    """Bytes of a training step on so many tokens, beside the model: what every layer computed for the way back, or
    `again` what enters it and one of them whole; logits; and of so many trained weights in float32 their gradient,
    AdamW's two moments and the best ones so far."""
    a_token = of_token(item, width, inner)
    of_layers = layers * item * width + a_token if again else layers * a_token
    logits = min(LOGITS_BYTES, 4 * tokens * vocabulary)
    return FIXED + tokens * of_layers + OF_GRADIENT * logits + 4 * OF_WEIGHT * weights


def free_memory() -> int:
    """Bytes of main memory that a program can still have."""
    return psutil.virtual_memory().available
