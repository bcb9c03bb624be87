"""Focuscope in a notebook or a program: what long-context attention reads, and what reading less costs and gains.

    import focuscope as fs
    fs.inspect(model, tokenizer, text)                               heads, painted text, far pairs
    fs.compare(model, tokenizer, text, "dense,focus,streaming_llm")  methods against dense attention
    with fs.apply(model, tokenizer, "streaming_llm", window=256): model.generate(...)
    fs.run("pairs story --min-distance 512").tables["pairs"]         any command of the command line

`model`: a transformers model with its tokenizer, a Hugging Face id, a folder, or `demo`. The names load on first use.
What is fitted on a model, and what the app computes, lies in the folder FOCUSCOPE_STATE: of an installed package
`.focuscope` in the home folder, of a checkout its `models_cache/state`.
"""

import os
from pathlib import Path

__all__ = ["AnalysisError", "METHODS", "Shown", "apply", "compare", "inspect", "load_model", "run"]

if (Path(__file__).parent / "analysis").is_dir():  # installed: nobody writes into an installed package
    os.environ.setdefault("FOCUSCOPE_STATE", str(Path.home() / ".focuscope"))


def __getattr__(name: str):
    if name not in __all__:
        raise AttributeError(f"module 'focuscope' has no attribute {name!r}")
    from focuscope import notebook

    return getattr(notebook, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
