"""The command that runs a verb with given arguments, for protocols, pages and documents."""

from collections.abc import Mapping
from typing import Any

from .commands import COMMANDS
from .declaration import fields_of
from .written import written


def commandline(verb: str, arguments: Mapping[str, Any]) -> str:
    """`python -m analysis VERB ...` that runs `verb` with `arguments`, named as its fields.

    What is None or empty text is left out: it was not chosen. Of `study` the argument `name` says which one. A text or
    a folder that lies elsewhere on another machine is given as a word to fill in, such as TEXT or DIR.
    """
    return written(verb, fields_of(COMMANDS[verb]) if verb in COMMANDS else (), arguments)
