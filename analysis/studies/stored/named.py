"""A named study asked for in a browser: its texts are stored ones or a configured folder, its result the reader's."""

import inspect
from pathlib import Path

from analysis.errors import BadSetting
from analysis.runs import Result
from analysis.runs.corpora import corpus_folder
from analysis.studies import NAMED
from analysis.studies.context import Context


def study(
    name: str,
    model: str = "demo",
    corpus: str = "",
    router: str = "k8-top1",
    rows: str | None = None,
    length: int = 1024,
    windows: int = 64,
    window: int | None = None,
    n_sink: int | None = None,
    steps: int = 600,
    tokens_per_step: int = 1024,
    seed: int = 0,
    *,
    context: Context,
) -> Result:
    """Run the study `name` on what `runs.corpora` allows as `corpus`; it goes on where it was stopped.

    The other arguments are those of `python -m analysis study`; a study takes those that it knows. The result lies in
    the store's own state, where pages find it. Errors: BadSetting, and those of the study.
    """
    if name not in NAMED:
        raise BadSetting(f"There is no study {name[:40]!r}; there are: {', '.join(NAMED)}.")
    own = NAMED[name]
    known = inspect.signature(own).parameters
    given = {"model": model, "router": router, "rows": rows, "length": length, "windows": windows, "window": window}
    given |= {"n_sink": n_sink, "steps": steps, "tokens_per_step": tokens_per_step, "seed": seed}
    if corpus and "corpus" in known:
        given["corpus"] = str(corpus_folder(context.store, corpus) if context.browser else Path(corpus))
    return own(**{key: value for key, value in given.items() if key in known}, context=context)
