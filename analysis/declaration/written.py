"""Arguments as the words of a command line: the one writer of commands."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from ..package import PROGRAM
from . import Declared, Field, in_words

# Fields that may name methods with their settings: --set and others help.
METHODS = ("method", "methods")
# Fields that name texts, by their hash once they are read.
TEXTS = ("text", "texts", "against")


def written(verb: str, fields: Iterable[Field], arguments: Mapping[str, Any]) -> str:
    """The command that gives `arguments` to a verb of these fields. A name that is none of them, such as a size of a
    stored study, is spelled like one that declares nothing of its own."""
    declared = {one.name: one for one in fields}
    words: list[str] = []
    lists: list[str] = []
    options: list[str] = []
    for name, value in arguments.items():
        if value is None or value == "":
            continue
        one = declared.get(name) or Field(name, type(value), None, Declared())
        if one.declared.word:
            lists += map(in_words, value) if isinstance(value, list) else []
            words += [] if isinstance(value, list) else [in_words(value)]
        elif one.declared.flags:
            options += [one.declared.flags[value][0]] if value in one.declared.flags else []
        elif isinstance(value, bool):
            options += [f"--{'' if value else 'no-'}{name.replace('_', '-')}"]
        elif name in METHODS and not isinstance(value, str):
            options += _methods(one.option, value if isinstance(value, list) else [value])
        elif name in TEXTS and isinstance(value, list):
            options += [one.option, *map(in_words, value)]
        else:
            spelled = (",".join(map(in_words, value)) or "none") if isinstance(value, list) else in_words(value)
            options += [f"{one.option}={spelled}"] if spelled.startswith("-") else [one.option, spelled]
    return f"{PROGRAM} {shlex.join([verb, *words, *lists, *options])}"


def _methods(option: str, listed: list[dict]) -> list[str]:
    """Methods with their settings as `--methods a,b --set a.field=value`; as JSON where these words cannot say it."""
    names = [method["name"] for method in listed]
    routers = {method["router"] for method in listed if method.get("router")}
    policies = [method["policy"] for method in listed if method.get("policy") is not None]
    settings = {
        f"{method['name']}.{name}": value for method in listed for name, value in (method.get("settings") or {}).items()
    }
    # `--set` reads back as they are numbers, and words that are none.
    sayable = all(
        re.fullmatch(r"(?!nan|inf)[a-z][\w -]*", value, flags=re.IGNORECASE)
        if isinstance(value, str)
        else isinstance(value, (int, float)) and not isinstance(value, bool)
        for value in settings.values()
    )
    if len(set(names)) < len(names) or len(routers) > 1 or not sayable:
        return [option, json.dumps(listed)]
    words = [option, ",".join(names)]
    for router in routers:
        words += ["--router", router]
    for policy in policies[:1]:
        words += ["--policy", in_words(policy)]
    for place, value in settings.items():
        words += ["--set", f"{place}={in_words(value)}"]
    return words
