"""Every command by its verb, found by walking the modules of this package: a new command is one class in one of them.

Importing this loads no torch: the app, the command line and the worker read the same declarations.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from ..declaration import fields_of
from ..declaration.command import Command
from ..declaration.undeclared import Undeclared
from ..declaration.written import written
from ..errors import BadSetting


def _declared() -> dict[str, type[Command]]:
    """The commands of every module, in the order in which they are declared there."""
    commands: dict[str, type[Command]] = {}
    for found in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{found.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Command) and value.__module__ == module.__name__:
                commands[value.verb] = value
    return commands


COMMANDS = _declared()


def request(verb: str, arguments: object) -> Command:
    """The request of a verb with plain arguments. Errors: BadSetting."""
    if verb not in COMMANDS:
        raise BadSetting(f"There is no command {str(verb)[:40]!r}; there are: {', '.join(COMMANDS)}.")
    return COMMANDS[verb].from_arguments(arguments)


def named(verb: object, arguments: object) -> Command:
    """As `request`, also of what no command declares. Errors: BadSetting."""
    return request(verb, arguments) if isinstance(verb, str) and verb in COMMANDS else Undeclared(verb, arguments)


def commandline(verb: str, arguments: Mapping[str, Any]) -> str:
    """`python -m analysis VERB ...` that runs `verb` with `arguments`, named as its fields.

    What is None or empty text is left out: it was not chosen. Of `study` the argument `name` says which one. A text or
    a folder that lies elsewhere on another machine is given as a word to fill in, such as TEXT or DIR.
    """
    return written(verb, fields_of(COMMANDS[verb]) if verb in COMMANDS else (), arguments)
