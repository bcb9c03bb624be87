"""Which layers should choose keys for the layers below them: by how far their choices agree."""

import numpy as np


def place_anchors(shares: np.ndarray, count: int) -> list[int]:
    """The `count` layers, the first one among them, with the largest sum of overlaps [L, L] of each layer and the last
    of them at or above it, by dynamic programming (Kascade, arXiv 2512.16391, section 3); of equal ones the later."""
    layers = len(shares)
    # most[m, end]: of the layers before `end` with m anchors; came[m, end]: the last of those
    most, came = np.full((count + 1, layers + 1), -np.inf), np.zeros((count + 1, layers + 1), int)
    most[0, 0] = 0.0
    for used in range(1, count + 1):
        for end in range(1, layers + 1):
            sums = [most[used - 1, anchor] + shares[anchor, anchor:end].sum() for anchor in range(end)]
            came[used, end] = end - 1 - int(np.argmax(sums[::-1]))
            most[used, end] = max(sums)
    anchors: list[int] = []
    end = layers
    for used in range(count, 0, -1):
        end = int(came[used, end])
        anchors.insert(0, end)
    return anchors


def spread(layers: int, count: int) -> list[int]:
    """Anchors at even distances, the first layer among them."""
    return sorted({int(place) for place in np.linspace(0, layers, min(count, layers), endpoint=False)})


def spelled(anchors: list[int], layers: int) -> str:
    """The pattern of anchors among so many layers: F one that chooses, S one that reads what the last F chose."""
    return "".join("F" if layer in anchors else "S" for layer in range(layers))


def serving(anchors: list[int], layers: int) -> list[int]:
    """The anchor whose keys each layer reads."""
    return [max(anchor for anchor in anchors if anchor <= layer) for layer in range(layers)]


def served(shares: np.ndarray, anchors: list[int]) -> float:
    """The mean overlap of the layers that do not choose with the one that chooses for them; 1 where all choose."""
    values = [shares[anchor, layer] for layer, anchor in enumerate(serving(anchors, len(shares))) if anchor != layer]
    return float(np.mean(values)) if values else 1.0
