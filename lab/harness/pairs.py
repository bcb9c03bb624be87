"""Query-key pairs that a window reads, and the window that reads as many pairs as something else: exact counts."""

import numpy as np


def window_pairs(window: int, length: int, n_sink: int = 0) -> int:
    """Query-key pairs that the last `window` tokens and the first `n_sink` give a text of `length` tokens."""
    before = np.arange(length) + 1  # keys a query may read, itself included
    return int(np.minimum(before, window).sum() + np.clip(before - window, 0, n_sink).sum())


def equal_pairs_window(pairs: float, length: int, n_sink: int = 0) -> int:
    """The window that reads, with the same sinks, the number of pairs nearest to `pairs` (of two, the smaller one)."""
    counts = np.array([window_pairs(window, length, n_sink) for window in range(1, length + 1)])
    return int(np.abs(counts - pairs).argmin()) + 1


def pairs_share(pairs: float, length: int) -> float:
    """Pairs as a share of all causal ones in a text of `length` tokens."""
    return pairs / (length * (length + 1) // 2)
