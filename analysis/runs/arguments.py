"""Arguments that came from a browser are checked against what they are for before it is called."""

import inspect
import typing
from collections.abc import Callable
from dataclasses import MISSING
from typing import Any

from ..canonical import canonical
from ..commands import COMMANDS
from ..declaration import Declared, Field, check_names, fields_of

BROUGHT = ("context", "progress", "request")  # what a caller brings along: no argument


def parameters(study: Callable[..., Any]) -> tuple[Field, ...]:
    """What a stored study declares as its sizes, or the parameters of a plain function."""
    declared = {one.name: one.declared for one in fields_of(study.sizes)} if hasattr(study, "sizes") else {}
    hints = typing.get_type_hints(study) if not hasattr(study, "sizes") else {}
    found = []
    for name, one in inspect.signature(study).parameters.items():
        if name in BROUGHT or one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            continue
        default = MISSING if one.default is one.empty else one.default
        hint = hints.get(name, one.annotation)
        if hint is one.empty:
            hint = Any if default in (MISSING, None) else type(default)
        found.append(Field(name, hint, default, declared.get(name) or Declared()))
    return tuple(found)


def check_arguments(verb: str, study: Callable[..., Any], args: object) -> dict[str, Any]:
    """`args` ready for `study(**args, context=...)`, checked as the command of this name declares them, or else by the
    study's own annotations and defaults. BadSetting names the one that is unknown, missing or out of range."""
    given, known = canonical(args), COMMANDS.get(verb)
    if any(one.kind is one.VAR_KEYWORD for one in inspect.signature(study).parameters.values()):
        return given
    module = getattr(study, "__module__", "").rpartition(".")[2]
    is_real = known is not None and known.place.endswith(f"{module}:{getattr(study, '__name__', '')}")
    fields = fields_of(known) if known is not None and is_real else parameters(study)
    check_names(verb, fields, given)
    by_name = {one.name: one for one in fields}
    return {name: by_name[name].check(value, verb) for name, value in given.items()}
