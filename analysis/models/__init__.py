"""Models: loading them, the type of their weights, and what a tokenizer alone can answer.

The names of `loading` are here too and load torch on first use; `tokenizer` needs neither torch nor transformers.
"""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(importlib.import_module(".loading", __name__), name)
