"""How the app's own process takes memory: what pages took, and readers who left, goes back to the system."""

import ctypes
import gc
import os
from contextlib import suppress

# Bytes: a larger piece is mapped by itself, and its pages are given back as soon as it is free.
KEPT = 1 << 16
# M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD of glibc's malloc.h.
SETTINGS = {-8: 1, -3: KEPT, -1: 2 * KEPT}


def give_back() -> None:
    """Let the C library keep little that is free: one heap for all threads, where each would have its own, and large
    pieces outside it. Nothing happens where the C library is not glibc. The worker keeps Python's own allocator, which
    the app was started without: its arenas of 1 MB stay as long as one object in them does."""
    os.environ.pop("PYTHONMALLOC", None)
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for setting, value in SETTINGS.items():
            library.mallopt(setting, value)


def tidy() -> None:
    """Free what only cycles hold, which Python itself looks for when somebody draws pages again, and give the pages
    between what stays back too. About a tenth of a second."""
    gc.collect()
    trim()


def trim() -> None:
    """Give the free pages between what stays back, after every page: about a tenth of what the app holds."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
