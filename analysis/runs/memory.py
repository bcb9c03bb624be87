"""Memory that a request holds beside the model's weights, from the model's card: what decides over its peak."""

from collections.abc import Mapping
from typing import Any

from ..command import Command

FIXED = 60 << 20  # bytes: compiled kernels, blocks of scores, tables
HIDDEN_COPIES, INNER_COPIES = 14, 3  # tensors of a layer that are held at once, [T, width] and [T, inner]
STATES_BYTES = 256 << 20  # of queries and keys of one window: more are not kept, but for the layer that is looked at
OF_TOKEN_AND_LAYER = 180  # bytes: routing vectors, groups and their controls
FITTED_ON, FITTED_IN = 2048, 1024  # tokens that fit a router, and of a window of them
LOGITS = 2  # tensors [T, vocabulary] that are compared
OF_GRADIENT = 6  # tensors [T, vocabulary] held at once where a loss and its gradient are taken


def held(
    command: type[Command], args: Mapping[str, Any], tokens: int, card: Mapping[str, Any], found: bool = False
) -> int:
    """Bytes at the peak of a request that reads so many tokens; `card`: the numbers of the verb `model`. `found`: the
    reading of an earlier page serves it, so that the model reads nothing."""
    width, layers, item = card["width"], card["layers"], item_bytes(card["dtype"])
    window = min(tokens, card.get("max_positions", tokens), args.get("window") or tokens if command.scores else tokens)
    if found:
        return FIXED + OF_TOKEN_AND_LAYER * tokens * layers
    if command.verb == "fit-router":
        inputs = 4 * FITTED_ON * layers * width
        return FIXED + inputs + FITTED_IN * of_token(item, width, card.get("inner"))
    total = FIXED + window * of_token(item, width, card.get("inner"))
    if command.looks:
        of_layer = 4 * window * (card["heads"] + card["kv_heads"]) * card["head_dim"]
        whole = layers * of_layer
        total += whole if whole <= STATES_BYTES else of_layer
        total += OF_TOKEN_AND_LAYER * tokens * layers
    if command.gradient:  # the estimate keeps what every layer computed for the way back
        total += (layers - 1) * window * of_token(item, width, card.get("inner"))
        total += OF_GRADIENT * 4 * window * card.get("vocabulary", 0)
    if command.scores:
        total += LOGITS * item * window * card.get("vocabulary", 0)
    return total


def of_token(item: int, width: int, inner: int | None) -> int:
    """Bytes of a token in a pass: the tensors of one layer that are held at once, of `item` bytes a number."""
    return item * (HIDDEN_COPIES * width + INNER_COPIES * (inner or 4 * width))


def item_bytes(dtype: str) -> int:
    """Bytes of a number of the type that a card names."""
    return 2 if dtype.endswith("16") else 8 if dtype.endswith("64") else 4
