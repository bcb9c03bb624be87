"""What a run answers: a request, by one version of a command, about certain weights. Its id is made of all of them:
equal requests get equal ids, in whatever order arguments come."""

import re
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

from .. import places
from ..commands import COMMANDS
from ..declaration.command import SCHEMA, Command, at_default, hashed
from ..errors import BadSetting

_ID = re.compile(r"[0-9a-f]{12}")
# Model -> revision, in a thread that draws a page.
_LOOKED_UP: ContextVar[dict[str, str | None] | None] = ContextVar("looked_up", default=None)


def is_id(value: object) -> TypeGuard[str]:
    """Whether `value` is 12 hexadecimal digits."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def check_id(value: object, what: str = "run") -> str:
    """`value` when it is 12 hexadecimal digits, the only form an id of a run, a job or a text has; else BadSetting."""
    if not is_id(value):
        raise BadSetting(f"{str(value)[:40]!r} is not the id of a {what}: an id is 12 digits or letters a-f.")
    return value


def look_once() -> None:
    """From now on this thread looks once which weights a model has, until it calls this again: while a page is drawn,
    which asks for many runs of one model, or after something was computed."""
    _LOOKED_UP.set({})


def look_again() -> None:
    """The weights may be other ones now."""
    if (looked_up := _LOOKED_UP.get()) is not None:
        looked_up.clear()


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

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The ids of the runs that answer: `key`, and the one of runs from before defaults were left out."""
        if self._identity == self.request:
            return (self.key,)
        return self.key, self._key(self.request, self.revision)

    @property
    def questions(self) -> tuple[str, ...]:
        """`keys` without the weights."""
        return self.question, self._key(self.request, None)

    @cached_property
    def _identity(self) -> dict[str, Any]:
        usual = self.defaults or {}
        return {name: value for name, value in self.request.items() if name not in usual or usual[name] != value}

    def _key(self, identity: dict[str, Any], revision: str | None) -> str:
        return hashed([SCHEMA, self.verb, identity, self.version, revision])


def asked_now(request: Command) -> Asked:
    """A request as it stands with this program and the weights on this disk."""
    arguments = request.spelled
    model = arguments.get("model") or "demo"
    models = dict.fromkeys(map(str, (model, arguments.get("other_model") or model)))
    looked_up = _LOOKED_UP.get()
    if looked_up is None:
        looked_up = {}
    for name in models:
        if name not in looked_up:
            looked_up[name] = places.revision(name, places.CACHE)
    revisions = [looked_up[name] for name in models]
    weights = None if None in revisions else "+".join(filter(None, revisions))
    # A request is frozen: what it asks of the same weights is worked out once, however often pages look for its run.
    worked_out: dict[str | None, Asked] = request.__dict__.setdefault("_asked", {})
    if weights not in worked_out:
        worked_out[weights] = _asked(request.verb, arguments, weights)
    return worked_out[weights]


def _asked(verb: str, arguments: dict[str, Any], revision: str | None) -> Asked:
    command = COMMANDS.get(verb, Command)
    # A run from before a default changed does not answer who leaves the value to the new one.
    arguments = command.renewed | arguments
    usual = at_default(command, arguments) if verb in COMMANDS else None
    return Asked(verb, arguments, command.version, revision, usual)
