"""Numbers as the browser takes them: bytes in base64, in the smallest type that shows what they say."""

from base64 import b64encode
from typing import Any

import numpy as np

PACKED = ("keys", "readers", "given", "received")


def sent(array: Any) -> str:
    """A numpy array as the browser gets it: its bytes in base64."""
    return b64encode(np.ascontiguousarray(array).tobytes()).decode()


def linked(tokens: dict, links: Any, shares: Any, heads: int) -> dict:
    """The far links of all tokens as the browser takes them: `links` int [2, T, n, 2] and `shares` [2, T, n] as `start`
    gives them, shares in 65,535 steps; and the first token of the word that each token is a piece of."""
    first, word = [], 0
    for i, (name, piece) in enumerate(zip(tokens["word"], tokens["piece"], strict=True)):
        if not i or not name or piece[:1].isspace() or name != tokens["word"][i - 1]:
            word = i
        first.append(word)
    packed = {
        "place": links[..., 0].astype(np.int32),
        "head": links[..., 1].astype(np.uint16),
        "share": np.rint(65_535 * np.asarray(shares, np.float64)).astype(np.uint16),
        "word": np.array(first, np.int32),
    }
    return {name: sent(array) for name, array in packed.items()} | {"each": links.shape[2], "heads": heads}


def crossing(first: int, keys: Any, given: Any, readers: Any, received: Any) -> dict:
    """What hovering a token marks, as small as the browser can take it: of the window that begins at token `first`
    the places int [T, n] of what every token reads and of its readers, and their shares float [T, n] in 255 steps."""
    wide = len(keys) > 0xFFFF
    places = [np.asarray(array, np.uint32 if wide else np.uint16) for array in (keys, readers)]
    shares = [np.rint(255 * np.asarray(array)).astype(np.uint8) for array in (given, received)]
    packed = {name: b64encode(array.tobytes()).decode() for name, array in zip(PACKED, [*places, *shares], strict=True)}
    return packed | {"first": first, "each": keys.shape[1], "wide": wide}


def halves(array: Any) -> str:
    """Numbers as the browser takes them (`floats` in attention.js): base64 of float16."""
    return b64encode(np.ascontiguousarray(array, np.float16).tobytes()).decode()
