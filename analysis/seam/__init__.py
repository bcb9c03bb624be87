"""The seam to transformers: its private names, and those of its submodules, stand in this room and nowhere else.

`lean` imports it in half the time, `attention` replaces what the layers of a stock model read, `cache` their KV cache,
`parity` proves that nothing else changed.
"""

from . import lean as lean
