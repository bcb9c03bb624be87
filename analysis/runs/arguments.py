"""Arguments that came from a browser are checked against the study's own signature before it is called."""

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from analysis.errors import BadSetting
from analysis.runs.keys import canonical

MAX_WORDS = 2_000  # characters of one text argument: texts themselves travel by hash
_KINDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "names with values",
}


def check_arguments(verb: str, study: Callable[..., Any], args: object) -> dict[str, Any]:
    """`args` ready for `study(**args, context=...)`; BadSetting names the argument that is unknown, missing or of
    another type than the study's annotation (or else its default) says."""
    given = canonical(args)
    parameters = dict(inspect.signature(study).parameters)
    parameters.pop("context", None)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return given
    unknown = sorted(set(given) - set(parameters))
    if unknown:
        raise BadSetting(f"{verb} has no argument {unknown[0][:40]!r}; it has: {', '.join(parameters) or 'none'}.")
    for name, parameter in parameters.items():
        if name not in given and parameter.default is parameter.empty:
            raise BadSetting(f"{verb} needs the argument {name!r}: give it a value.")
    hints = typing.get_type_hints(study)
    return {name: _fit(verb, name, value, _expected(parameters[name], hints)) for name, value in given.items()}


def _expected(parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:
    if parameter.name in hints:
        return hints[parameter.name]
    unstated = parameter.default is parameter.empty or parameter.default is None
    return Any if unstated else type(parameter.default)


def _fit(verb: str, name: str, value: Any, kind: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_WORDS:
        raise BadSetting(f"{name} of {verb} has {len(value):,} characters and the limit is {MAX_WORDS:,}.")
    if not _fits(value, kind):
        raise BadSetting(f"{name} of {verb} must be {_spell(kind)}, and {str(value)[:40]!r} was given.")
    return float(value) if kind is float else value


def _fits(value: Any, kind: Any) -> bool:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, option) for option in inner)
    if origin is typing.Literal:
        return any(value == option and type(value) is type(option) for option in inner)
    if origin in (list, tuple, set):
        return isinstance(value, list) and all(_fits(item, inner[0]) for item in value if inner)
    if kind in (types.NoneType, None):
        return value is None
    if kind in (int, float):
        return isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
    if kind in (list, tuple):
        return isinstance(value, list)
    if kind in (str, bool, dict):
        return isinstance(value, kind)
    return origin is not dict or isinstance(value, dict)


def _spell(kind: Any) -> str:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_spell(option) for option in inner)
    if origin is typing.Literal:
        return "one of " + ", ".join(repr(option) for option in inner)
    if kind is types.NoneType:
        return "nothing"
    if origin is list and inner and inner[0] in _KINDS:
        return f"a list, each of it {_KINDS[inner[0]]}"
    return _KINDS.get(origin or kind, getattr(kind, "__name__", str(kind)))
