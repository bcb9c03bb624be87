"""Arguments that came from a browser are checked against what they are for before it is called."""

import inspect
import typing
from collections.abc import Callable
from dataclasses import MISSING
from typing import Any

from ..commands import COMMANDS
from ..declaration import Declared, Field, check_names, fields_of
from ..declaration.canonical import canonical

# What a caller brings along: no argument.
BROUGHT = ("context", "progress", "request")


def parameters(study: Callable[..., Any]) -> tuple[Field, ...]:
    """What a stored study declares as its sizes, or the parameters of a plain function."""
    declared = (
        {parameter.name: parameter.declared for parameter in fields_of(study.sizes)} if hasattr(study, "sizes") else {}
    )
    hints = typing.get_type_hints(study) if not hasattr(study, "sizes") else {}
    listed = []
    for name, parameter in inspect.signature(study).parameters.items():
        if name in BROUGHT or parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            continue
        default = MISSING if parameter.default is parameter.empty else parameter.default
        hint = hints.get(name, parameter.annotation)
        if hint is parameter.empty:
            hint = Any if default in (MISSING, None) else type(default)
        listed.append(Field(name, hint, default, declared.get(name) or Declared()))
    return tuple(listed)


def check_arguments(verb: str, study: Callable[..., Any], args: object) -> dict[str, Any]:
    """`args` ready for `study(**args, context=...)`, checked as the command of this name declares them, or else by the
    study's own annotations and defaults. BadSetting names the one that is unknown, missing or out of range."""
    arguments, command = canonical(args), COMMANDS.get(verb)
    if any(item.kind is item.VAR_KEYWORD for item in inspect.signature(study).parameters.values()):
        return arguments
    module = getattr(study, "__module__", "").rpartition(".")[2]
    is_real = command is not None and command.place.endswith(f"{module}:{getattr(study, '__name__', '')}")
    fields = fields_of(command) if command is not None and is_real else parameters(study)
    check_names(verb, fields, arguments)
    by_name = {item.name: item for item in fields}
    return {name: by_name[name].check(value, verb) for name, value in arguments.items()}
