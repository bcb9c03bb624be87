"""A named study asked for in a browser: its texts are stored ones or a configured folder, its result the reader's."""

import inspect
from typing import Any

from analysis.errors import BadSetting
from analysis.runs import Result
from analysis.runs.arguments import check_arguments
from analysis.runs.corpora import corpus_folder
from analysis.studies import NAMED
from analysis.studies.context import Context

OWN_MACHINE = ("output", "work")  # folders that only a command line may name


def study(name: str, *, context: Context, **options: Any) -> Result:
    """Run the study `name` with `options`, named as its own parameters; it goes on where it was stopped.

    In a browser `corpus` is what `runs.corpora` allows, and the result lies in the store's own state, where pages find
    it. Errors: BadSetting, and those of the study.
    """
    if name not in NAMED:
        raise BadSetting(f"There is no study {name[:40]!r}; there are: {', '.join(NAMED)}.")
    if not options.get("corpus") or "corpus" not in inspect.signature(NAMED[name]).parameters:
        options.pop("corpus", None)  # a page names the folder it has, for every study
    given = check_arguments(f"study {name}", NAMED[name], options)
    if context.browser and (named := [option for option in OWN_MACHINE if given.get(option)]):
        raise BadSetting(f"A page stores a study in its own folder: leave {named[0]} out.")
    if context.browser and given.get("corpus"):
        given["corpus"] = str(corpus_folder(context.store, given["corpus"]))
    return NAMED[name](**given, context=context)
