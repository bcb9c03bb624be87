"""Which keys an answer's KV cache holds when a new token is made, and how the text is painted by that."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.ui import painted
from app.ui.charts import GROUPS, RANDOM

SINKS, NEAR = 4, 64  # first tokens of a text, and last ones before the query, that are told apart from other kept keys
KINDS = (  # what a key of one head is: (name, colour, line, per cent of the colour in the light and in the dark)
    ("evicted: gone for good", RANDOM, "dotted", 34, 44),
    (f"sink: the first {SINKS} tokens, held", GROUPS[5], "double", 30, 40),
    (f"recent: the last {NEAR} tokens, held", GROUPS[2], "dashed", 22, 30),
    ("held", GROUPS[0], "solid", 26, 36),
    ("outside the layer's sliding window", RANDOM, "dashed", 14, 20),
)
EVICTED, SINK, RECENT, HELD, OUTSIDE = range(len(KINDS))
SHARES = (0.0, 0.25, 0.5, 0.75, 0.9999)  # of the heads that hold a key, above which a class begins
SPELLED = ("up to 25% of the heads hold it", "up to 50%", "up to 75%", "most heads", "every head")


@dataclass(frozen=True)
class Place:
    """Where one looks: a layer and a query head, or None for all of them."""

    layer: int | None
    head: int | None

    @property
    def single(self) -> bool:
        """Whether it is one head."""
        return self.layer is not None and self.head is not None

    def row(self, layers: int, heads: int) -> int:
        """Its row in the arrays of `generate`: all heads, then the layers, then the heads of each."""
        if self.layer is None:
            return 0
        return 1 + self.layer if self.head is None else 1 + layers + self.layer * heads + self.head


def held(numbers: dict, packed: np.ndarray, query: int, place: Place) -> tuple[list[float], list[float]]:
    """(share of the heads that hold each token up to `query`, share whose own sliding window has passed it), of
    `query` + 1 tokens. `packed`: bits of the keys that stayed of the prompt. The query holds itself."""
    shape = numbers["layers"], numbers["kv_heads"], numbers["cut"]
    alive = np.ones((*shape[:2], query + 1), bool)  # [L, G, tokens]
    alive[:, :, : shape[2]] = np.unpackbits(packed, count=int(np.prod(shape))).reshape(shape)
    passed = np.zeros_like(alive)
    for layer, window in enumerate(numbers["windows"]):
        if window is not None:
            passed[layer, :, : max(0, query + 1 - window)] = True
    group = numbers["heads"] // numbers["kv_heads"]
    layers = slice(None) if place.layer is None else slice(place.layer, place.layer + 1)
    heads = slice(None) if place.head is None else slice(place.head // group, place.head // group + 1)
    share, gone = (x[layers, heads].mean((0, 1)).tolist() for x in (alive & ~passed, passed))
    return share, gone


def paint(shares: Sequence[float], passed: Sequence[float], place: Place, size: int) -> tuple[list[int], list[dict]]:
    """The class of each of `size` tokens, -1 beyond those that exist yet, and the palette."""
    last = len(shares) - 1
    if not place.single:
        classes = [sum(share > low for low in SHARES) - 1 for share in shares]
        return classes + [-1] * (size - len(classes)), painted.heat(classes, SPELLED)
    classes = []
    for token, (share, gone) in enumerate(zip(shares, passed, strict=True)):
        near = RECENT if last - token < NEAR else HELD
        classes.append(OUTSIDE if gone else EVICTED if not share else SINK if token < SINKS else near)
    palette = [
        {"tag": "Aa", "name": name, "note": f"{classes.count(token):,}", "line": line, "mix": light, "mix_dark": dark}
        | dict.fromkeys(("light", "dark"), colour)
        for token, (name, colour, line, light, dark) in enumerate(KINDS)
    ]
    if not any(passed):
        palette.pop(OUTSIDE)
    return classes + [-1] * (size - len(classes)), palette


def said(shares: Sequence[float], passed: Sequence[float], heads: int, size: int) -> list[str | None]:
    """How many of so many key-value heads hold each token, for a tooltip."""
    sentences: list[str | None] = []
    for share, gone in zip(shares, passed, strict=True):
        if heads == 1:
            sentences.append("outside the window" if gone else "held" if share else "evicted")
        else:
            sentences.append(f"{round(share * heads):,} of {heads:,} heads hold it")
    return sentences + [None] * (size - len(sentences))
