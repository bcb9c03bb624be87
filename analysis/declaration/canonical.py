"""Values in the one spelling that is hashed, stored and sent: what strict JSON can say, and nothing else."""

import json
import math
from collections.abc import ItemsView, Mapping
from typing import Any, NoReturn

from ..errors import BadSetting

MAX_REQUEST_CHARACTERS = 16_384
MAX_DEPTH = 6
# Of a whole number: the operations of the largest trainings have 27, and no float holds 310.
DIGITS = 30
LARGEST = 10**DIGITS


def canonical(request: object) -> dict[str, Any]:
    """`request` (dict of arguments) in the one spelling that is hashed and stored. Errors: BadSetting."""
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
    raise ValueError(f"its file holds {word}")


def _whole(digits: str) -> int:
    if len(digits.removeprefix("-")) > DIGITS:
        raise ValueError(f"its file holds a whole number of {len(digits):,} digits")
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
