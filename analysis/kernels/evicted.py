"""Keys that leave the cache for good: which keys of each head are still there, token by token; and keys and values that
are held of them.

Heavy hitters and a recent half (Zhang et al., 2023, H2O): when a head holds more keys than it may, the one of least
attention so far leaves, the newest half of the places being safe. What left never comes back. Query heads that share a
key-value head may hold different keys: its key leaves the memory when none of them holds it any more.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .jit import jit
from .pool import each


class Heads:
    """What each head of one layer still holds of texts that grow: places in the text and the attention they got."""

    def __init__(self, batch: int, heads: int):
        self.count = np.zeros((batch, heads), np.int64)
        self.places: np.ndarray = np.zeros((batch, heads, 0), np.int64)
        self.mass: np.ndarray = np.zeros((batch, heads, 0))

    def widen(self, room: int) -> None:
        """Have place for `room` keys of every head."""
        if (missing := room - self.places.shape[-1]) > 0:
            more = ((0, 0), (0, 0), (0, missing))
            self.places, self.mass = np.pad(self.places, more), np.pad(self.mass, more)

    def follow(self, scores: Tensor, visible: Tensor, first_row: int, first_column: int, room: list[int]) -> Tensor:
        """Queries come in one after the other and read: bool [B, H, n, Tk], which keys their heads hold then.

        scores [B, H, n, Tk] of the queries at places first_row .. and the keys at places first_column ..; visible bool,
        broadcastable to it; room: the most keys each head holds [H].
        """
        self.widen(min(max(room), first_row + scores.shape[2]) + 1)
        score_rows, visible_rows = (x.cpu().numpy() for x in (scores.float(), visible.expand(scores.shape)))
        keep = np.zeros(scores.shape, bool)

        def one(head: tuple[int, int]) -> None:
            rows, state = (score_rows[head], visible_rows[head]), (self.places[head], self.mass[head])
            most = room[head[1]]
            self.count[head] = _follow(*rows, first_row, first_column, most, *state, self.count[head], keep[head])

        each(one, list(np.ndindex(*scores.shape[:2])))
        return torch.from_numpy(keep).to(scores.device)


@jit()
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


@jit()
def weigh(scores: np.ndarray, at: np.ndarray, mass: np.ndarray, weights: np.ndarray) -> None:
    """Softmax of a row of scores at the places `at`, into `weights` there and added to the `mass` of these keys."""
    largest, total = -np.inf, 0.0
    for place in at:
        largest = max(largest, scores[place])
    for place in at:
        total += np.exp(scores[place] - largest)
    for i in range(len(at)):
        weights[at[i]] = np.exp(scores[at[i]] - largest) / total
        mass[i] += weights[at[i]]


@jit()
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
    weights = np.empty(scores.shape[1])
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
        weigh(scores[row], places[:count] - first_column, mass, weights)
        for i in range(count):
            keep[row, places[i] - first_column] = True
    return count


class Evicted:
    """The keys and values that some query head still holds of texts, and the tokens after them."""

    def __init__(self, keys: Tensor, values: Tensor, cache: Heads, room: list[int]):
        """Copies of keys and values [B, G, T, D] what the heads of `cache` hold; each may hold `room` [H] of them."""
        self.cache, self.room, self.length = cache, room, keys.shape[2]
        self.shape, self.size = keys.shape[:2], keys.shape[3] + values.shape[3]
        self.rows = {head: [keys[head], values[head]] for head in np.ndindex(*self.shape)}
        self.places = {head: np.arange(self.length) for head in self.rows}
        self._coming: tuple[Tensor, Tensor] | None = None
        for head in self.rows:
            self._drop(head)

    def put(self, keys: Tensor, values: Tensor) -> None:
        """New tokens come, keys and values [B, G, n, D]; `attend` takes them in."""
        self._coming = keys, values
        self.length += keys.shape[2]

    def attend(self, query: Tensor, scale: float) -> Tensor:
        """What the tokens that came read, one after the other: query [B, H, n, D] -> [B, H, n, Dv]."""
        assert self._coming is not None, "put gave the tokens"
        (keys, values), self._coming = self._coming, None
        count = query.shape[2]
        out = values.new_empty(*query.shape[:3], values.shape[-1])
        for step in range(count):
            place = self.length - count + step
            for text, group in self.rows:
                row = text, group
                new = keys[row][step : step + 1], values[row][step : step + 1]
                self.rows[row] = held, contents = [torch.cat(pair) for pair in zip(self.rows[row], new, strict=True)]
                self.places[row] = np.append(self.places[row], place)
                for head in self._sharing(group):
                    scores = held.float() @ query[text, head, step].float() * scale
                    weights = self._read(text, head, scores, place)
                    out[text, head, step] = (weights.to(contents.device) @ contents.float()).to(out)
                self._drop(row)
        return out

    def _sharing(self, group: int) -> range:
        """The query heads of a key-value head."""
        each = len(self.room) // self.shape[1]
        return range(group * each, (group + 1) * each)

    def _read(self, text: int, head: int, scores: Tensor, place: int) -> Tensor:
        """The weights [n] of a query on what is held, those of keys that its head dropped 0."""
        cache, row = self.cache, (text, head)
        cache.widen(min(self.room[head], place + 1) + 1)
        weights, of_group = np.zeros(len(scores), np.float32), self.places[text, head // len(self._sharing(0))]
        count = join(place, self.room[head], cache.places[row], cache.mass[row], cache.count[row])
        held = np.searchsorted(of_group, cache.places[row][:count])
        weigh(scores.cpu().numpy(), held, cache.mass[row], weights)
        cache.count[row] = count
        return torch.from_numpy(weights)

    def _drop(self, row: tuple[int, ...]) -> None:
        """Free what no query head of a key-value head holds."""
        text, group = row
        held = [self.cache.places[text, head, : self.cache.count[text, head]] for head in self._sharing(group)]
        stays = np.isin(self.places[row], np.concatenate(held))
        if not stays.all():
            chosen = torch.from_numpy(stays.nonzero()[0]).to(self.rows[row][0].device)
            self.rows[row] = [x[chosen] for x in self.rows[row]]
            self.places[row] = self.places[row][stays]

    @property
    def counts(self) -> Tensor:
        """How many keys each key-value head holds, float32 [B, G]."""
        counts = [len(self.places[row]) for row in self.rows]
        return torch.tensor(counts, dtype=torch.float32).view(*self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values held."""
        return sum(x.nbytes for pair in self.rows.values() for x in pair)

    read_bytes = nbytes
