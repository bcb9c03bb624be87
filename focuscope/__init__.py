"""Focuscope in a notebook or a program: what long-context attention reads, and what reading less costs and gains.

    import focuscope as fs
    fs.inspect(model, tokenizer, text)                               heads, painted text, far pairs
    fs.compare(model, tokenizer, text, "dense,focus,streaming_llm")  methods against dense attention
    with fs.apply(model, tokenizer, "streaming_llm", window=256): model.generate(...)
    fs.why(fs.load_model(), token_ids, layer, head, query, key).parts   a score by who wrote both streams
    fs.run("pairs story --min-distance 512").tables["pairs"]         any command of the command line

`model`: a transformers model with its tokenizer, a Hugging Face id, a folder, or `demo`. The names load on first use.
What is fitted on a model, and what the app computes, lies in the folder FOCUSCOPE_STATE: of an installed package
`.focuscope` in the home folder, of a checkout its `models_cache/state`.
"""

import importlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["AnalysisError", "METHODS", "Shown", "apply", "compare", "inspect", "load_model", "run", "why"]

# A wheel holds `analysis` inside this package, so that it claims no other name; in a checkout it stands beside it.
INSTALLED = (Path(__file__).parent / "analysis").is_dir()
# Holds `analysis`, `app` and the bundled models.
HOME = Path(__file__).parents[0 if INSTALLED else 1]
# Nobody writes into an installed package.
if INSTALLED:
    os.environ.setdefault("FOCUSCOPE_STATE", str(Path.home() / ".focuscope"))


def load(module: str) -> ModuleType:
    """A module of the analysis, by its name there."""
    return importlib.import_module(f"focuscope.analysis.{module}" if INSTALLED else f"analysis.{module}")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'focuscope' has no attribute {name!r}")
    return getattr(load("notebook"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
