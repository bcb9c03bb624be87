"""Keys that leave the cache for good: which keys of each head are still there, token by token.

Heavy hitters and a recent half (Zhang et al., 2023, H2O): when a head holds more keys than it may, the one of least
attention so far leaves, the newest half of the places being safe. What left never comes back.
"""

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from .pool import each


class Cache:
    """What each head of one layer still holds of texts that grow: places in the text and the attention they got."""

    def __init__(self, batch: int, heads: int):
        self.count = np.zeros((batch, heads), np.int64)
        self.places: np.ndarray = np.zeros((batch, heads, 0), np.int64)
        self.mass: np.ndarray = np.zeros((batch, heads, 0))

    def follow(self, scores: Tensor, visible: Tensor, first_row: int, first_column: int, room: list[int]) -> Tensor:
        """Queries come in one after the other and read: bool [B, H, n, Tk], which keys their heads hold then.

        scores [B, H, n, Tk] of the queries at places first_row .. and the keys at places first_column ..; visible bool,
        broadcastable to it; room: the most keys each head holds [H].
        """
        missing = min(max(room), first_row + scores.shape[2]) + 1 - self.places.shape[-1]
        if missing > 0:
            more = ((0, 0), (0, 0), (0, missing))
            self.places, self.mass = np.pad(self.places, more), np.pad(self.mass, more)
        score_rows, visible_rows = (x.cpu().numpy() for x in (scores.float(), visible.expand(scores.shape)))
        keep = np.zeros(scores.shape, bool)

        def one(head: tuple[int, int]) -> None:
            rows, state = (score_rows[head], visible_rows[head]), (self.places[head], self.mass[head])
            most = room[head[1]]
            self.count[head] = _follow(*rows, first_row, first_column, most, *state, self.count[head], keep[head])

        each(one, list(np.ndindex(*scores.shape[:2])))
        return torch.from_numpy(keep).to(scores.device)


@njit(nogil=True, cache=True)
def join(query: int, room: int, places: np.ndarray, mass: np.ndarray, count: int) -> int:
    """A new key of a head that holds `count`: where there is no more room, the key with the least attention so far
    leaves. The newest half is safe; of equals the earliest leaves. -> how many it holds then."""
    if count == room:
        weakest = -1
        for i in range(count):
            if places[i] <= query - (room + 1) // 2 and (weakest < 0 or mass[i] < mass[weakest]):
                weakest = i
        for i in range(weakest, count - 1):
            places[i], mass[i] = places[i + 1], mass[i + 1]
        count -= 1
    places[count], mass[count] = query, 0.0
    return count + 1


@njit(nogil=True, cache=True)
def _follow(
    scores: np.ndarray,
    visible: np.ndarray,
    first_row: int,
    first_column: int,
    room: int,
    places: np.ndarray,
    mass: np.ndarray,
    count: int,
    keep: np.ndarray,
) -> Any:
    """One head: `places` rising with their `mass`, the first `count` of them held; returns the new count."""
    for row in range(len(scores)):
        query = first_row + row
        left = 0
        for i in range(count):
            if places[i] >= first_column and visible[row, places[i] - first_column]:
                places[left], mass[left] = places[i], mass[i]
                left += 1
        count = left
        if visible[row, query - first_column]:
            count = join(query, room, places, mass, count)
        largest, total = -np.inf, 0.0
        for i in range(count):
            largest = max(largest, scores[row, places[i] - first_column])
        for i in range(count):
            total += np.exp(scores[row, places[i] - first_column] - largest)
        for i in range(count):
            mass[i] += np.exp(scores[row, places[i] - first_column] - largest) / total
            keep[row, places[i] - first_column] = True
    return count
