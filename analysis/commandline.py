"""The command that runs a verb with given arguments: the one writer of commands, for protocols, pages and documents.

How a parameter of a function is spelled on the command line stands here too, once, for the writer and for the parser
(`analysis.cli`). Loads nothing.
"""

import csv
import json
import re
import shlex
from pathlib import Path

from analysis.package import PROGRAM

with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as _file:
    # (verb, parameter), of all verbs where that is empty -> its option, where that is not the parameter's own name; and
    # how the usage shows it where it stands without one: [one that may be left out], several...
    SPELLED = {(row["verb"], row["parameter"]): row for row in csv.DictReader(_file)}
FLAGS = {  # parameter -> {value: the option that means it}, where `--name` and `--no-name` would not do
    "content": {False: "--all-words"},
    "long_text": {"first": "--first", "windows": "--all-windows"},
}
METHODS = ("method", "methods")  # parameters that may name methods with their settings: --set and others help
PLAIN = (bool, int, float, str)


def word(verb: str, parameter: str) -> str | None:
    """How the usage shows a parameter that stands without an option, or None for one that has an option."""
    told = SPELLED.get((verb, parameter), SPELLED.get(("", parameter), {}))
    return told.get("word") or None


def option(verb: str, parameter: str) -> str:
    """The option of a parameter: `--tokens-per-step` of `tokens_per_step`."""
    told = SPELLED.get((verb, parameter), SPELLED.get(("", parameter), {}))
    return told.get("option") or f"--{parameter.replace('_', '-')}"


def commandline(verb: str, arguments: dict) -> str:
    """`python -m analysis VERB ...` that runs `verb` with `arguments`, named as the parameters of its function.

    What is None or empty text is left out: it was not chosen. Of `study` the argument `name` says which one. A text or
    a folder that lies elsewhere on another machine is given as a word to fill in, such as TEXT or DIR.
    """
    words, lists, options = [], [], []
    for name, value in arguments.items():
        if value is None or value == "":
            continue
        if word(verb, name) is not None:
            lists += map(_one, value) if isinstance(value, list) else []
            words += [] if isinstance(value, list) else [_one(value)]
        elif name in FLAGS:
            options += [FLAGS[name][value]] if value in FLAGS[name] else []
        elif isinstance(value, bool):
            options += [f"--{'' if value else 'no-'}{name.replace('_', '-')}"]
        elif name in METHODS and not isinstance(value, str):
            options += _methods(option(verb, name), value if isinstance(value, list) else [value])
        elif name == "against":
            options += [option(verb, name), *map(_one, value)]
        else:
            said = (",".join(map(_one, value)) or "none") if isinstance(value, list) else _one(value)
            options += [f"{option(verb, name)}={said}"] if said.startswith("-") else [option(verb, name), said]
    return f"{PROGRAM} {shlex.join([verb, *words, *lists, *options])}"


def _one(value: object) -> str:
    """A value as one word: a number so that it is read back exactly, anything nested as JSON."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(value) if isinstance(value, PLAIN) else json.dumps(value)


def _methods(named: str, listed: list[dict]) -> list[str]:
    """Methods with their settings as `--methods a,b --set a.field=value`; as JSON where these words cannot say it."""
    names = [one["name"] for one in listed]
    routers = {one["router"] for one in listed if one.get("router")}
    policies = [one["policy"] for one in listed if one.get("policy") is not None]
    settings = {f"{one['name']}.{name}": value for one in listed for name, value in (one.get("settings") or {}).items()}
    if len(set(names)) < len(names) or len(routers) > 1 or not all(_sayable(value) for value in settings.values()):
        return [named, json.dumps(listed)]
    said = [named, ",".join(names)]
    for router in routers:
        said += ["--router", router]
    for policy in policies[:1]:
        said += ["--policy", _one(policy)]
    for place, value in settings.items():
        said += ["--set", f"{place}={_one(value)}"]
    return said


def _sayable(value: object) -> bool:
    """Whether `--set` reads a value back as it is: a number, or a word that is none."""
    if isinstance(value, str):
        return re.fullmatch(r"(?!nan|inf)[a-z][\w -]*", value, flags=re.IGNORECASE) is not None
    return isinstance(value, (int, float)) and not isinstance(value, bool)
