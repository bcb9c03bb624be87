"""What every parameter of a verb means, said once, and how its words become the value that the function takes."""

import argparse
import csv
import json
import types
import typing
from pathlib import Path

with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as _file:
    # parameter or flag -> help; (verb, parameter) where it means something else there
    HELP = {(verb, name) if verb else name: told for name, verb, told in csv.reader(_file)}

FOLDERS = ("corpus", "data", "runs", "work")


def explained(verb: str, parameter: str) -> str:
    """The help of a parameter."""
    return HELP.get((verb, parameter), HELP.get(parameter, ""))


def kind(annotation: object, default: object) -> tuple[type, type | None]:
    """(type, type of the items of a list) of a parameter: `list[int] | None` is (list, int)."""
    if annotation in (None, typing.Any) or not (isinstance(annotation, type) or typing.get_origin(annotation)):
        annotation = type(default)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        annotation = next(one for one in typing.get_args(annotation) if one is not types.NoneType)
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) is list:
        return list, inner[0]
    return (typing.get_origin(annotation) or annotation), None


def reader(kind: type, item: type | None):
    """The function that reads the word of an option; `none` is an empty list."""
    if kind is dict:
        return nested
    if kind is not list:
        return kind
    if item is dict:
        return nested

    def listed(words: str) -> list:
        if words == "none":
            return []
        try:
            return [item(word.strip()) for word in words.split(",") if word.strip() or item is not str]
        except ValueError:
            what = {int: "whole numbers such as 1024,4096", float: "numbers such as 0.4,0.8"}[item]
            raise argparse.ArgumentTypeError(f"{words[:40]!r} is no list of {what}") from None

    return listed


def nested(words: str) -> object:
    """What JSON says, or the words themselves: the name of a policy, or names of methods."""
    if not words.lstrip().startswith(("{", "[")):
        return words
    try:
        return json.loads(words)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{words[:40]!r} is neither a name nor JSON") from None


def shown(kind: type, item: type | None, parameter: str) -> str:
    """How the value of an option stands in the help."""
    one = {int: "N", float: "X"}.get(item or kind)
    if kind is list:
        return f"{one or 'A'},{one or 'B'},..."
    return one or ("DIR" if parameter in FOLDERS else parameter.upper().replace("_", "-"))
