"""What a run answers: a request, by one version of a command, about certain weights. Its id is made of all of them:
equal requests get equal ids, in whatever order arguments come."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

from .. import places
from ..commands import COMMANDS
from ..declaration.canonical import canonical
from ..declaration.command import SCHEMA, Command, at_default, hashed
from ..errors import BadSetting

_ID = re.compile(r"[0-9a-f]{12}")
_VERB = re.compile(r"[a-z][a-z0-9-]{0,39}")


def is_id(value: object) -> TypeGuard[str]:
    """Whether `value` is 12 hexadecimal digits."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def check_id(value: object, what: str = "run") -> str:
    """`value` when it is 12 hexadecimal digits, the only form an id of a run, a job or a text has; else BadSetting."""
    if not is_id(value):
        raise BadSetting(f"{str(value)[:40]!r} is not the id of a {what}: an id is 12 digits or letters a-f.")
    return value


def check_verb(value: object) -> str:
    """`value` when it can be the name of a study (lower-case letters, digits, hyphens); else BadSetting."""
    if not isinstance(value, str) or not _VERB.fullmatch(value):
        raise BadSetting(f"{str(value)[:40]!r} is not the name of a study: use lower-case letters, digits and hyphens.")
    return value


@dataclass(frozen=True)
class Asked:
    """A request and what answers it.

    `request` is in its canonical form. `version` of its verb. `revision` of the weights, joined by "+" for two models;
    None where those of one are not on this disk. `defaults`: the arguments that have their default, which do not count
    for the id, so that an option that a command gets later changes none; None of runs from before that, whose whole
    request counts.
    """

    verb: str
    request: dict[str, Any]
    version: int
    revision: str | None = None
    defaults: dict[str, Any] | None = None

    @cached_property
    def key(self) -> str:
        """The id of the run that answers."""
        return self._key(self._identity, self.revision)

    @cached_property
    def question(self) -> str:
        """The id without the weights."""
        return self._key(self._identity, None)

    @property
    def keys(self) -> tuple[str, str]:
        """The ids of the runs that answer: `key`, and the one of runs from before defaults were left out."""
        return self.key, self._key(self.request, self.revision)

    @property
    def questions(self) -> tuple[str, str]:
        """`keys` without the weights."""
        return self.question, self._key(self.request, None)

    @property
    def _identity(self) -> dict[str, Any]:
        usual = self.defaults or {}
        return {name: value for name, value in self.request.items() if name not in usual or usual[name] != value}

    def _key(self, identity: dict[str, Any], revision: str | None) -> str:
        return hashed([SCHEMA, self.verb, identity, self.version, revision])


def asked_now(verb: str | Command, request: dict[str, Any] | None = None) -> Asked:
    """A request as it stands with this program and the weights on this disk. BadSetting for one that cannot be."""
    if isinstance(verb, Command):
        name, arguments = verb.verb, verb.spelled
    else:
        name, arguments = check_verb(verb), canonical(request)
    command = COMMANDS.get(name, Command)
    # A run from before a default changed does not answer who leaves the value to the new one.
    arguments = command.renewed | arguments
    model = arguments.get("model") or "demo"
    models = dict.fromkeys(map(str, (model, arguments.get("other_model") or model)))
    revisions = [places.revision(name, places.CACHE) for name in models]
    revision = None if None in revisions else "+".join(filter(None, revisions))
    usual = at_default(command, arguments) if name in COMMANDS else None
    return Asked(name, arguments, command.version, revision, usual)
