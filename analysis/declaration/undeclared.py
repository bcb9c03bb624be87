"""What no command declares: a stored study by its name, a part of a search, a function of somebody's own."""

import inspect
import typing
from collections.abc import Callable
from dataclasses import MISSING
from typing import Any

from . import Declared, Field, check_names, fields_of
from .canonical import canonical
from .command import Command, check_verb

# What a caller brings along: no argument.
BROUGHT = ("context", "progress", "request")


class Undeclared(Command):
    """A request by its verb and plain arguments. The function that computes it says which there are."""

    def __new__(cls, verb: object, arguments: object = None) -> "Undeclared":
        """Errors: BadSetting for what can be no request."""
        return super().__new__(cls)

    def __init__(self, verb: object, arguments: object = None) -> None:
        self.__dict__["verb"] = check_verb(verb)
        self.__dict__["spelled"] = canonical({} if arguments is None else arguments)

    def compute(self, function: Callable[..., Any] | None = None, **brought: Any) -> Any:
        """Its result by `function`. Errors: BadSetting for arguments that it does not take."""
        assert function is not None
        return function(**check_arguments(self.verb, function, self.spelled), **brought)


def parameters(function: Callable[..., Any]) -> tuple[Field, ...]:
    """What a stored study declares as its sizes, or the parameters of a plain function."""
    sizes = getattr(function, "sizes", None)
    declared = {} if sizes is None else {entry.name: entry.declared for entry in fields_of(sizes)}
    hints = typing.get_type_hints(function) if sizes is None else {}
    listed = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in BROUGHT or parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            continue
        default = MISSING if parameter.default is parameter.empty else parameter.default
        hint = hints.get(name, parameter.annotation)
        if hint is parameter.empty:
            hint = Any if default in (MISSING, None) else type(default)
        listed.append(Field(name, hint, default, declared.get(name) or Declared()))
    return tuple(listed)


def check_arguments(verb: str, function: Callable[..., Any], arguments: object) -> dict[str, Any]:
    """Arguments as `function` takes them. BadSetting names the one that is unknown, missing or out of range. Where it
    takes any others (`**others`), it checks those itself."""
    plain, fields = canonical(arguments), parameters(function)
    by_name = {entry.name: entry for entry in fields}
    takes = inspect.signature(function).parameters.values()
    any_others = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes)
    others = {name: value for name, value in plain.items() if any_others and name not in by_name}
    named = {name: value for name, value in plain.items() if name not in others}
    check_names(verb, fields, named)
    return {name: by_name[name].check(value, verb) for name, value in named.items()} | others
