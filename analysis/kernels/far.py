"""What is read from afar in a block of attention, compiled: by distance, token by token, the strongest links, and
inside the pairs of a group. One pass each over the block, with sums in float64.

A block has n queries at the places `rows` of its window and t keys at `columns`. Far is at least `min_distance` tokens
back; the window's first token, a sink, is no far key.
"""

from typing import Any

import numpy as np

from .jit import jit


@jit()
def read_from_afar(
    read: np.ndarray,
    visible: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    min_distance: int,
    received: np.ndarray,
    expected: np.ndarray,
    mass: np.ndarray,
    uniform: np.ndarray,
) -> tuple[float, float, float]:
    """Share of the attention on the sink, far back, and far back if all visible keys were read alike, summed over the
    queries, of `read` float64 [n, t], `visible` bool [n, t].

    Added to: `received` [t], the far attention of each key, and `expected` [t], the same spread evenly over the far
    keys of a query; by distance (0, 1, 2 to 3, 4 to 7, ...) and without the sink `mass`, and `uniform` of even reading.
    """
    sink, far, far_uniform = 0.0, 0.0, 0.0
    for i in range(len(rows)):
        seen, distant, given = 0, 0, 0.0
        for j in range(len(columns)):
            if not visible[i, j]:
                continue
            seen += 1
            if columns[j] > 0 and rows[i] - columns[j] >= min_distance:
                distant += 1
                given += read[i, j]
                received[j] += read[i, j]
        if columns[0] == 0:
            sink += read[i, 0]
        if seen == 0:
            continue
        far += given
        far_uniform += distant / seen
        even = given / max(1, distant)
        b = 0
        for j in range(len(columns)):
            if not visible[i, j] or columns[j] <= 0:
                continue
            back = rows[i] - columns[j]
            if back >= min_distance:
                expected[j] += even
            # Neighbouring keys are in the same bin, or in the next one.
            while back >= 1 << b:
                b += 1
            while b > 0 and back < 1 << (b - 1):
                b -= 1
            mass[b] += read[i, j]
            uniform[b] += 1.0 / seen
    return sink, far, far_uniform


@jit()
def strongest(given: np.ndarray, share: np.ndarray, head: np.ndarray) -> None:
    """Fill `share` float32 and `head` int32 [n, t] with the largest of the heads' attention `given` [H, n, t or more]
    to the first t keys, and with the first head that gives it."""
    share[:], head[:] = -1.0, 0
    for i in range(len(share)):
        best, of = share[i], head[i]
        for h in range(len(given)):
            row = given[h, i]
            for j in range(len(best)):
                more = row[j] > best[j]
                best[j] = row[j] if more else best[j]
                of[j] = np.int32(h) if more else of[j]


@jit()
def link(
    share: np.ndarray,
    head: np.ndarray,
    visible: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    min_distance: int,
    start: int,
    first_head: int,
    places: np.ndarray,
    heads: np.ndarray,
    shares: np.ndarray,
) -> None:
    """Put the far pairs of a block, their `share` and `head` [n, t], among the strongest links [2, tokens, most] so
    far, of the query (0) and of the key (1): `places` in the text, `heads` counted from `first_head` on, and `shares`.
    `start`: the window's first token. Of equal shares the first stays."""
    least = shares.shape[2] - 1
    for i in range(len(rows)):
        for j in range(len(columns)):
            given, query, key = share[i, j], start + rows[i], start + columns[j]
            of_query, of_key = given > shares[0, query, least], given > shares[1, key, least]
            if not (of_query or of_key) or not visible[i, j]:
                continue
            if columns[j] <= 0 or rows[i] - columns[j] < min_distance:
                continue
            if of_query:
                _insert(places[0, query], heads[0, query], shares[0, query], key, first_head + head[i, j], given)
            if of_key:
                _insert(places[1, key], heads[1, key], shares[1, key], query, first_head + head[i, j], given)


@jit()
def _insert(places: np.ndarray, heads: np.ndarray, shares: np.ndarray, place: int, head: int, share: Any) -> None:
    """A link that is stronger than a token's last one among those of the token, the strongest first. A place that comes
    again keeps its stronger head."""
    slot = len(shares) - 1
    for earlier in range(len(places)):
        if places[earlier] == place:
            if share <= shares[earlier]:
                return
            slot = earlier
            break
    while slot > 0 and shares[slot - 1] < share:
        places[slot], heads[slot], shares[slot] = places[slot - 1], heads[slot - 1], shares[slot - 1]
        slot -= 1
    places[slot], heads[slot], shares[slot] = place, head, share


@jit()
def in_bands(mass: np.ndarray, pairs: np.ndarray, upto: np.ndarray) -> np.ndarray:
    """float64 [2, bands]: how many of the `pairs` bool [n, t] lie in each band of distance, and their `mass` float64
    [n, t]. `upto` int [n, bands + 1]: band b of a query is its keys from upto[b + 1] on and before upto[b]."""
    sums = np.zeros((2, upto.shape[1] - 1))
    for i in range(len(upto)):
        for b in range(sums.shape[1]):
            count, given = 0, 0.0
            for j in range(upto[i, b + 1], upto[i, b]):
                count += pairs[i, j]
                given += mass[i, j] if pairs[i, j] else 0.0
            sums[0, b] += count
            sums[1, b] += given
    return sums
