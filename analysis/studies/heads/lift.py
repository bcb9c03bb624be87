"""Which tokens a head reads, from which, and in which pairs, more often than chance would have it."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

SHOWN = 8  # of each kind
FEWEST = 3  # times that something must come
STRONG = 0.1  # of the queries: those that give their first key most


def lifted(query: np.ndarray, key: np.ndarray, weight: np.ndarray, chance: Mapping[int, float]) -> list[dict]:
    """Rows `kind query key count lift` of one head, at most 8 of each kind, from what Q queries read most.

    query, key int64 [Q]: tokens of each query and of the key that it reads most; weight [Q]: what that key gets;
    chance: token -> how many of the Q keys it would be if each were drawn evenly from those visible. `key`: how often
    a token is the key, over chance; `query`: how often a token asks among the tenth that gives its key most, over a
    tenth of its times; `pair`: how often both come together, over what independence gives. Lift 1: chance. What comes
    fewer than 3 times is left out; the order is by count times log lift, so that the rare do not win.
    """
    strong = np.argsort(-weight, kind="stable")[: max(1, round(STRONG * len(weight)))]
    keys, queries = Counter(key.tolist()), Counter(query.tolist())
    asking = Counter(query[strong].tolist())
    pairs = Counter(zip(query.tolist(), key.tolist(), strict=True))
    share = len(strong) / len(query)
    made = {
        "key": [(None, k, count, count / chance[k]) for k, count in keys.items()],
        "query": [(q, None, count, count / (share * queries[q])) for q, count in asking.items()],
        "pair": [(q, k, count, count * len(query) / (queries[q] * keys[k])) for (q, k), count in pairs.items()],
    }
    rows = []
    for kind, found in made.items():
        frequent = [entry for entry in found if entry[2] >= FEWEST and entry[3] > 1]
        frequent.sort(key=lambda entry: -entry[2] * np.log(entry[3]))
        rows += [
            dict(zip(("kind", "query", "key", "count", "lift"), (kind, *entry), strict=True))
            for entry in frequent[:SHOWN]
        ]
    return rows
