"""The k largest of every row of a table of scores, compiled: a lower bound by vector instructions, then an exact search
among the few values above it.

Column j belongs to lane j mod `lanes`. As long as there are at least k lanes, the k-th largest of the lanes' maxima is
no larger than the k-th largest score, and hardly more than k scores reach it: only those are searched.
"""

import numpy as np
from numba import njit

LANE = 64  # lanes come in multiples of this
HALVINGS = 32  # of the range of values, before they are searched one by one


@njit(nogil=True, cache=True, error_model="numpy")
def _kth(values, count, k):
    """The k-th largest of the first `count` values, 1 <= k <= count; their order is lost."""
    low, high, at = 0, count - 1, k - 1
    while low < high:
        pivot = values[(low + high) >> 1]
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if at <= j:
            high = j
        elif at >= i:
            low = i
        else:
            break
    return values[at]


@njit(nogil=True, cache=True, error_model="numpy")
def _reach(values, count, edge):
    """How many of the first `count` values are `edge` or more."""
    found = np.int32(0)
    for at in range(count):
        found += np.int32(values[at] >= edge)
    return found


@njit(nogil=True, cache=True, error_model="numpy")
def _cut(values, count, k, spare):
    """A number that at least k and at most k + spare of the first `count` values reach; all that tie with the k-th
    count as one. -inf where only k or fewer are no -inf. The order of the values is lost."""
    low, high = np.float32(np.inf), np.float32(-np.inf)
    for at in range(count):
        value = values[at]
        high = value if value > high else high
        low = value if value < low and value > -np.inf else low
    if _reach(values, count, low) <= k:
        return np.float32(-np.inf)
    for _ in range(HALVINGS):
        middle = np.float32(0.5) * (low + high)
        reached = _reach(values, count, middle)
        if k <= reached <= k + spare:
            return middle
        if reached > k:
            low = middle
        else:
            high = middle
    return _kth(values, count, k)


@njit(nogil=True, cache=True, error_model="numpy")
def _above(row, length, k, lanes, best, places, values):
    """Collects (place, value) of the scores that may be among the k largest of `length`; returns how many."""
    for lane in range(lanes):
        best[lane] = row[lane]
    whole = length // lanes * lanes
    for start in range(lanes, whole, lanes):
        for lane in range(lanes):
            value = row[start + lane]
            best[lane] = value if value > best[lane] else best[lane]
    for lane in range(length - whole):
        best[lane] = row[whole + lane] if row[whole + lane] > best[lane] else best[lane]
    bound, found = _cut(best, lanes, k, k // 8), 0
    for at in range(length):
        places[found] = at
        values[found] = row[at]
        found += row[at] >= bound
    return found


@njit(nogil=True, cache=True, error_model="numpy")
def _candidates(row, length, k, best, places, values):
    """As `_above`, or all of a row that is too short for it to pay."""
    lanes = -(-2 * k // LANE) * LANE
    if 2 * lanes < length:
        return _above(row, length, k, lanes, best, places, values)
    for at in range(length):
        places[at] = at
        values[at] = row[at]
    return length


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc"})
def attend(scores, lengths, counts, value, out, kept):
    """Softmax over the counts[r] largest of the first lengths[r] of each row of scores [R, n], times value [n, D], into
    out [R, D]; kept [R] how many were read, ties with the last one included. All float32 and int32."""
    size, room = value.shape[1], scores.shape[1] + 1
    best, places = np.empty(room, np.float32), np.empty(room, np.int32)
    values, searched = np.empty(room, np.float32), np.empty(room, np.float32)
    total = np.empty(size, np.float32)
    for r in range(scores.shape[0]):
        k, smallest = counts[r], np.float32(-np.inf)
        found = _candidates(scores[r], lengths[r], k, best, places, values)
        if k < found:
            searched[:found] = values[:found]
            smallest = _cut(searched, found, k, 0)
        largest, read = values[0], 0
        for at in range(found):
            largest = values[at] if values[at] > largest else largest
            searched[read], places[read] = values[at], places[at]
            read += values[at] >= smallest
        weight = np.float32(0.0)
        for at in range(read):
            searched[at] = np.exp(searched[at] - largest)
            weight += searched[at]
        total[:] = 0.0
        for at in range(read):
            row = value[places[at]]
            for d in range(size):
                total[d] += searched[at] * row[d]
        for d in range(size):
            out[r, d] = total[d] / weight
        kept[r] = read
