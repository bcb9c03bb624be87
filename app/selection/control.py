"""How one value stands in the URL: its text read back, refused where it is none, and written.

Every room of the app declares its own in `controls.py`, which imports nothing of the app but this module.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

HASH = r"[0-9a-f]{12}"
MODEL = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?"
MODEL += r"(@[a-z0-9]{3,8})?(@[a-z]{3,6}(:[0-9]{1,2})?)?"  # precision and device (`places.how`)
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"  # of a router, a study, or a folder of texts
CORPUS = rf"{HASH}(\+{HASH}){{0,19}}|{NAME}"  # stored texts, or a folder of texts


@dataclass(frozen=True)
class Control:
    """A value that can stand in the URL: `parse` turns its text into the value or raises ValueError; `name`: what a
    reader calls it, where its key with spaces would not do."""

    parse: Callable[[str], object]
    default: object = None
    name: str = ""


def matching(pattern: str) -> Callable[[str], str]:
    """Text that matches the whole pattern."""

    def parse(raw: str) -> str:
        if not re.fullmatch(pattern, raw):
            raise ValueError(raw)
        return raw

    return parse


def whole(digits: int = 4) -> Callable[[str], int]:
    """A whole number of at most so many digits."""

    def parse(raw: str) -> int:
        if not re.fullmatch(rf"[0-9]{{1,{digits}}}", raw):
            raise ValueError(raw)
        return int(raw)

    return parse


def number(raw: str) -> float:
    """A number, not negative."""
    if not re.fullmatch(r"[0-9]{0,4}(\.[0-9]{1,8})?(e-?[0-9]{1,2})?", raw) or not raw[:1].isdigit():
        raise ValueError(raw)
    return float(raw)


def one_of(*options) -> Callable[[str], object]:
    """One of these values."""
    spelled = {to_url(option): option for option in options}

    def parse(raw: str) -> object:
        if raw not in spelled:
            raise ValueError(raw)
        return spelled[raw]

    return parse


def switch(default: bool, name: str = "") -> Control:
    """Yes or no."""
    return Control(one_of(True, False), default, name)


def to_url(value: object) -> str:
    """The text of a value in the URL; yes and no for switches."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
