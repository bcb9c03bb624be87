"""How the app's own process takes memory: what a page's charts and tables took for a moment goes back to the system."""

import ctypes
from contextlib import suppress

KEPT = 1 << 16  # bytes: a larger piece is mapped by itself, and its pages are given back as soon as it is free
SETTINGS = {-8: 1, -3: KEPT, -1: 2 * KEPT}  # M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD of glibc's malloc.h


def give_back() -> None:
    """Let the C library keep little that is free: one heap for all threads, where each would have its own, and large
    pieces outside it. Nothing happens where the C library is not glibc."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for setting, value in SETTINGS.items():
            library.mallopt(setting, value)
