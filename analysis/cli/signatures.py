"""The parameters of a verb, read from its function: names, types and defaults."""

import ast
import importlib.util
import inspect
from functools import cache
from inspect import Parameter
from pathlib import Path

from analysis.cli import words
from analysis.studies import function
from analysis.studies.registry import STORED, VERBS, Verb

GIVEN = ("context", "progress")  # what a caller brings along: no option


@cache
def parameters(verb: str, study: str | None = None) -> dict[str, Parameter]:
    """name -> parameter of a verb, or of the named study that `study NAME` runs; without what its caller brings along.

    The functions of verbs are read from their source, so that `--help` needs none of their libraries; a default that
    is no plain value, and a named study, are looked up in the imported module.
    """
    asked = STORED[study] if study is not None else VERBS[verb]
    found = None if study is not None else _written(asked)
    if found is None:
        found = dict(inspect.signature(function(asked)).parameters)
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return {name: one for name, one in found.items() if name not in GIVEN and one.kind in kinds}


def explained(verb: str, study: str | None, parameter: str) -> str:
    """The help of a parameter: what its study says of it, else what it means everywhere."""
    own = getattr(function(STORED[study]), "help", {}) if study is not None else {}
    return own.get(parameter) or words.explained(verb, parameter)


def _written(verb: Verb) -> dict[str, Parameter] | None:
    """The parameters as the source says them, or None where it says more than plain values."""
    try:
        source = importlib.util.find_spec(verb.module).origin
    except ModuleNotFoundError:
        source = None
    if source is None:
        return None  # not installed: importing it says so in a sentence
    tree = ast.parse(Path(source).read_text(encoding="utf-8"))
    defined = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == verb.function]
    if not defined:
        return None
    given = defined[0].args
    first = [Parameter.empty] * (len(given.args) - len(given.defaults))
    written = [*zip(given.args, [*first, *given.defaults], strict=True)]
    written += zip(given.kwonlyargs, given.kw_defaults, strict=True)
    found = {}
    for one, default in written:
        if one.arg in GIVEN:
            continue
        try:
            default = ast.literal_eval(default) if isinstance(default, ast.AST) else Parameter.empty
            kind = eval(ast.unparse(one.annotation), {}) if one.annotation else Parameter.empty
        except (ValueError, NameError):
            return None
        found[one.arg] = Parameter(one.arg, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
    return found
