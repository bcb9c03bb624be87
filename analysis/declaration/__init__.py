"""One declaration of a value that somebody can choose: `field` on a dataclass.

Its option on the command line, its place in an address, its JSON Schema and its check are read off the declaration, so
that no surface has a default, a range or a help of its own. Imports nothing heavy: the app reads declarations directly.
"""

import argparse
import dataclasses
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, get_args, get_origin

from ..errors import BadSetting

# Characters of a word: texts themselves travel by their hash.
LONGEST = 2_000
FOLDERS = ("corpus", "data", "runs", "work")
# Options that are not spelled like their field: the field's symbol means nothing to a reader of --help.
SPELLED = {"d_s": "--dimensions", "given": "--with", "n_sink": "--sinks", "output": "-o", "windows": "--windows-count"}
KINDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list"}
KINDS |= {dict: "names with values"}
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}


@dataclass(frozen=True)
class Declared:
    """What is known of a field besides its name, type and default.

    `help`: what it means, in a line. `low`, `high`, `step`: of a number, both ends allowed. `options`: the values
    there are. Of a list these hold for each of its values, and an empty one is refused. `unit`: of its number. `term`:
    its entry in the glossary. `control`: its name in an address, where pages
    show it. `label`: what a reader calls it, where its name with spaces would not do. `pattern`: what its text has to
    match. `price`: what a new value costs, "live" a pass, "refit" a calibration, "retrain" a training.
    `word`: how the usage shows it where it stands without an option: TEXT, [one that may be left out], several... .
    `option`: its option where it is not the one of its name. `flags`: value -> (option that means it, its help).
    `future`: the options that let later tokens decide over what earlier ones read. `former`: the default of an earlier
    version, where it was another one: runs from then that do not name the value have that one.
    """

    help: str = ""
    low: float | None = None
    high: float | None = None
    step: float | None = None
    options: tuple | None = None
    unit: str = ""
    term: str = ""
    control: str = ""
    label: str = ""
    pattern: str = ""
    price: str = "live"
    word: str = ""
    option: str = ""
    flags: Mapping[Any, tuple[str, str]] = dataclasses.field(default_factory=dict)
    future: tuple = ()
    former: Any = None


def field(default: Any = MISSING, help: str = "", **about: Any) -> Any:
    """A dataclass field with its declaration: `about` are the fields of `Declared`. Without a default it is needed."""
    return dataclasses.field(default=default, metadata={"declared": Declared(help, **about)})


@dataclass(frozen=True)
class Field:
    """A declared field of a dataclass, or a parameter of a function, with its type resolved."""

    name: str
    hint: Any
    default: Any
    declared: Declared

    @property
    def needed(self) -> bool:
        """Whether it has no default."""
        return self.default is MISSING

    @property
    def shows_default(self) -> bool:
        """Whether its default says something that its help does not."""
        return not self.needed and self.default not in (None, "") and "(default:" not in self.declared.help

    @property
    def kind(self) -> type:
        """Its type without None and without the items: `list[int] | None` is list."""
        return get_origin(self._plain) or self._plain

    @property
    def item(self) -> type | None:
        """The type of the items of a list."""
        return get_args(self._plain)[0] if self.kind is list and get_args(self._plain) else None

    @property
    def option(self) -> str:
        """Its option on the command line: `--tokens-per-step` of `tokens_per_step`."""
        return self.declared.option or SPELLED.get(self.name) or f"--{self.name.replace('_', '-')}"

    @property
    def label(self) -> str:
        """What a reader calls it."""
        return self.declared.label or self.name.replace("_", " ")

    @property
    def metavar(self) -> str:
        """How its value stands in the help of the command line."""
        number = {int: "N", float: "X"}.get(self.item or self.kind, "")
        if self.kind is list:
            return f"{number or 'A'},{number or 'B'},..."
        return number or ("DIR" if self.name in FOLDERS else self.name.upper().replace("_", "-"))

    @property
    def _plain(self) -> Any:
        if get_origin(self.hint) in (types.UnionType, typing.Union):
            return next(kind for kind in get_args(self.hint) if kind is not types.NoneType)
        return self.hint

    def check(self, value: Any, owner: str = "") -> Any:
        """`value` where it is of the declared type and range. Errors: BadSetting."""
        called = f"{self.name} of {owner}" if owner else self.label
        if not fits(value, self.hint):
            raise BadSetting(f"{called} must be {_in_words(self.hint)}, and {str(value)[:40]!r} was given.")
        about, limited = self.declared, value if isinstance(value, list) else [value]
        low, high = about.low, about.high
        if not limited and (about.options or low is not None):
            raise BadSetting(f"{called} is empty: give at least one value.")
        if about.pattern and isinstance(value, str) and not re.fullmatch(about.pattern, value):
            raise BadSetting(f"{called} is {value[:40]!r} and must look like {about.pattern}.")
        for each in limited:
            if about.options is not None and each is not None and each not in about.options:
                options = ", ".join(map(str, about.options))
                raise BadSetting(f"{called} is {str(each)[:40]!r} and must be one of {options}.")
            # NaN lies nowhere: it is neither at least the one nor at most the other.
            number = isinstance(each, (int, float))
            if number and not ((low is None or each >= low) and (high is None or each <= high)):
                limits = f"from {low or 0:,} on" if high is None else f"between {low or 0:,} and {high:,}"
                raise BadSetting(f"{called} is {each:,} and must lie {limits}.")
        return float(value) if self.hint is float else value

    def read(self) -> Callable[[str], Any]:
        """What turns a word of the command line into its value."""
        if self.kind is dict or self.item is dict:
            return nested
        return _list_of(self.item or str) if self.kind is list else self.kind

    def from_address(self, raw: str) -> Any:
        """The value that stands in an address as `raw`, where no number is negative. Errors: ValueError."""
        about = self.declared
        if about.pattern and not re.fullmatch(about.pattern, raw):
            raise ValueError(raw)
        if about.options is not None or self.kind is bool:
            spelled = {in_address(option): option for option in about.options or (True, False)}
            if raw not in spelled:
                raise ValueError(raw)
            return spelled[raw]
        if self.kind is int and not re.fullmatch(r"[0-9]{1,9}", raw):
            raise ValueError(raw)
        if self.kind is float and not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,8})?(e-?[0-9]{1,2})?", raw):
            raise ValueError(raw)
        try:
            return self.check(self.kind(raw))
        except BadSetting as error:
            raise ValueError(raw) from error

    def json_schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        about = self.declared
        schema: dict[str, Any] = {"type": JSON_TYPES.get(self.kind, "string")}
        if self.item is not None:
            schema["items"] = {"type": JSON_TYPES.get(self.item, "string")}
        if fits(None, self.hint) or get_origin(self.hint) in (types.UnionType, typing.Union):
            kinds = [JSON_TYPES.get(get_origin(kind) or kind, "null") for kind in get_args(self.hint)]
            schema["type"] = kinds if len(kinds) > 1 else schema["type"]
        limits: dict[str, Any] = {
            "minimum": about.low,
            "maximum": about.high,
            "enum": about.options and list(about.options),
        }
        limits |= {"description": about.help or None, "default": None if self.needed else self.default}
        return schema | {name: value for name, value in limits.items() if value is not None}


def fields_of(declaring: type) -> tuple[Field, ...]:
    """The declared fields of a dataclass, in their order; hints are resolved here and nowhere else."""
    if declaring not in _FIELDS:
        hints = typing.get_type_hints(declaring)
        declared = [entry for entry in dataclasses.fields(declaring) if "declared" in entry.metadata]
        declared_fields = (
            Field(entry.name, hints[entry.name], entry.default, entry.metadata["declared"]) for entry in declared
        )
        _FIELDS[declaring] = tuple(declared_fields)
    return _FIELDS[declaring]


_FIELDS: dict[type, tuple[Field, ...]] = {}


def check_names(owner: str, fields: tuple[Field, ...], values: Mapping[str, Any]) -> None:
    """Refuse a value of no such field, a needed one that is missing, and a word that is a text. Errors: BadSetting."""
    by_name = {entry.name: entry for entry in fields}
    if unknown := sorted(set(values) - set(by_name)):
        raise BadSetting(f"{owner} has no argument {unknown[0][:40]!r}; it has: {', '.join(by_name) or 'none'}.")
    if missing := [name for name, entry in by_name.items() if entry.needed and name not in values]:
        raise BadSetting(f"{owner} needs the argument {missing[0]!r}: give it a value.")
    for name, value in values.items():
        if isinstance(value, str) and len(value) > LONGEST:
            raise BadSetting(f"{name} of {owner} has {len(value):,} characters and the limit is {LONGEST:,}.")


def fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value is of a type: 8 is a float, True is no number."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, kind) for kind in inner)
    if origin is typing.Literal:
        return any(value == option and type(value) is type(option) for option in inner)
    if hint is types.NoneType:
        return value is None
    if hint in (int, float):
        return isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool)
    if (origin or hint) in (list, tuple):
        return isinstance(value, list) and all(fits(item, inner[0]) for item in value if inner)
    return not isinstance(origin or hint, type) or isinstance(value, origin or hint)


def _in_words(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_in_words, inner))
    if origin is typing.Literal:
        return "one of " + ", ".join(map(repr, inner))
    if hint is types.NoneType:
        return "nothing"
    if origin is list and inner and inner[0] in KINDS:
        return f"a list, each of it {KINDS[inner[0]]}"
    return KINDS.get(origin or hint, getattr(hint, "__name__", str(hint)))


def in_address(value: object) -> str:
    """A value as it stands in an address; yes and no for switches."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def in_words(value: object) -> str:
    """A value as one word of a command line: a number so that it is read back exactly, what is nested as JSON."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value) if isinstance(value, (bool, int, str)) else json.dumps(value)


def nested(word: str) -> Any:
    """What JSON says, or the word itself: the name of a policy, or names of methods."""
    if not word.lstrip().startswith(("{", "[")):
        return word
    try:
        return json.loads(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word[:40]!r} is neither a name nor JSON") from None


def _list_of(item: type) -> Callable[[str], list]:
    """What reads a list with commas; `none` is an empty one."""

    def listed(word: str) -> list:
        if word == "none":
            return []
        try:
            return [item(part.strip()) for part in word.split(",") if part.strip() or item is not str]
        except ValueError:
            what = {int: "whole numbers such as 1024,4096", float: "numbers such as 0.4,0.8"}[item]
            raise argparse.ArgumentTypeError(f"{word[:40]!r} is no list of {what}") from None

    return listed
