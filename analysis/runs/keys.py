"""What a run answers: a request, by one version of a verb, about certain weights. Its id is made of all of them: equal
requests get equal ids, in whatever order arguments come."""

import hashlib
import json
import math
import re
from collections.abc import ItemsView, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeGuard

from analysis import places
from analysis.errors import BadSetting
from analysis.studies.registry import VERBS

SCHEMA = 2  # of a manifest; 1 knew neither version nor revision
SCHEMAS = (1, SCHEMA)  # that can be read
MAX_REQUEST_CHARACTERS = 16_384
MAX_DEPTH = 6
DIGITS = 30  # of a whole number: the operations of the largest trainings have 27, and no float holds 310
LARGEST = 10**DIGITS
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


def request_key(verb: object, request: object, version: int, revision: str | None = None) -> str:
    """12 hexadecimal digits that name the result of this version of `verb`, asked about the weights `revision`.

    The argument order does not matter and 8 equals 8.0; True is not 1. Version 0 gives the ids of before there were
    versions. BadSetting for anything JSON cannot say.
    """
    asked = [check_verb(verb), canonical(request)]
    said = [SCHEMA, *asked, version, revision] if version else [1, *asked]
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def canonical(request: object) -> dict[str, Any]:
    """`request` (dict of arguments) in the one spelling that is hashed and stored."""
    if not isinstance(request, dict):
        raise BadSetting(f"A request is a set of named arguments, but a {type(request).__name__} was given.")
    clean = {name: _canonical(value, str(name), MAX_DEPTH) for name, value in _named(request, "request")}
    size = len(json.dumps(clean))
    if size > MAX_REQUEST_CHARACTERS:
        raise BadSetting(
            f"The request has {size:,} characters and the limit is {MAX_REQUEST_CHARACTERS:,}: "
            "store the text first and name it by its hash."
        )
    return clean


def _canonical(value: Any, where: str, depth: int) -> Any:
    value = _from_numpy(value)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadSetting(f"{where} holds half of a character (a lone surrogate): enter it again.") from None
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _bounded(value, where)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BadSetting(f"{where} is {value}, and only finite numbers are accepted.")
        return int(value) if value == int(value) and abs(value) < LARGEST else value
    if depth == 0:
        raise BadSetting(f"{where} is nested deeper than {MAX_DEPTH} levels: pass plain values.")
    if isinstance(value, (list, tuple)):
        return [_canonical(item, where, depth - 1) for item in value]
    if isinstance(value, dict):
        return {name: _canonical(item, f"{where}.{name}", depth - 1) for name, item in _named(value, where)}
    raise BadSetting(f"{where} is a {type(value).__name__}, and a request holds only text, numbers, lists and names.")


def parsed(text: str | bytes) -> Any:
    """JSON that may come from elsewhere. Errors: ValueError, also for what is no number and for what passes LARGEST."""
    return json.loads(text, parse_constant=_no_number, parse_int=_whole)


def _no_number(word: str) -> NoReturn:
    raise ValueError(word)


def _whole(digits: str) -> int:
    if len(digits.removeprefix("-")) > DIGITS:
        raise ValueError(f"a whole number of {len(digits):,} digits")
    return int(digits)


def plain_numbers(value: Any, where: str = "numbers") -> Any:
    """A study's numbers as strict JSON: numpy scalars and arrays become numbers and lists.

    JSON knows neither NaN nor infinity: both are stored as null, which every reader shows as "not defined".
    """
    value = _from_numpy(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return _bounded(value, where)
    if isinstance(value, (list, tuple)):
        return [plain_numbers(item, where) for item in value]
    if isinstance(value, dict):
        return {name: plain_numbers(item, f"{where}.{name}") for name, item in _named(value, where)}
    raise BadSetting(f"{where} is a {type(value).__name__}, which a stored result cannot hold.")


def _bounded(value: int, where: str) -> int:
    if abs(value) >= LARGEST:
        raise BadSetting(f"{where} is a whole number of more than {DIGITS} digits: give one that is smaller.")
    return value


def _from_numpy(value: Any) -> Any:
    """Python's own type for a numpy scalar or array, seen by its shape so that numpy need not be imported here."""
    return value.tolist() if hasattr(value, "dtype") and hasattr(value, "tolist") else value


def _named(mapping: Mapping[Any, Any], where: str) -> ItemsView[str, Any]:
    for name in mapping:
        if not isinstance(name, str):
            raise BadSetting(f"{where} has the name {name!r}, and names are text.")
    return mapping.items()


@dataclass(frozen=True)
class Asked:
    """A request and what answers it: the `version` of its verb (0: of before versions were counted) and the `revision`
    of the weights, joined by "+" for two models; None where those of one are not on this disk."""

    verb: str
    request: dict[str, Any]
    version: int
    revision: str | None = None

    @property
    def key(self) -> str:
        """The id of the run that answers."""
        return request_key(self.verb, self.request, self.version, self.revision)

    @property
    def question(self) -> str:
        """The id without the weights."""
        return request_key(self.verb, self.request, self.version)


def asked_now(verb: str, request: dict[str, Any]) -> Asked:
    """A request as it stands with this program and the weights on this disk. BadSetting for one that cannot be."""
    known, clean = VERBS.get(check_verb(verb)), canonical(request)
    model = clean.get("model") or "demo"
    names = dict.fromkeys(map(str, (model, clean.get("other_model") or model)))
    found = [places.revision(name, places.CACHE) for name in names]
    revision = None if None in found else "+".join(filter(None, found))
    return Asked(verb, clean, known.version if known else 1, revision)
