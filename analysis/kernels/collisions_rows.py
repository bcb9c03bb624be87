"""Counting equal codes of a query with all keys, compiled: table after table over all keys, in vector instructions."""

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def count_rows(queries, keys, enough, found):
    """queries int16 [n, L], keys int16 [L, T] -> fills `found` bool [n, T]: at least `enough` equal codes."""
    tables, length = keys.shape
    many = np.empty(length, np.uint16)
    for row in range(queries.shape[0]):
        many[:] = 0
        for table in range(tables):
            code, own = queries[row, table], keys[table]
            for at in range(length):
                many[at] += np.uint16(own[at] == code)
        for at in range(length):
            found[row, at] = many[at] >= enough
