"""Stored runs as rows, found by words: what the page and the command line list. And which of them used a router, a
policy or a method, by their requests; what was moved when one was replaced."""

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from analysis.runs.run import Run

QUIET = {"seed", "long_text", "made"}  # arguments that say little in a list
KINDS = {"router": ("router", "other"), "policy": ("policy", "other"), "method": ("method", "methods")}
USUAL = {"router": "k8-top1", "policy": "policy"}  # what a study uses when nobody names one


@dataclass(frozen=True)
class Row:
    """One run in a list. `text`: the name of its text, else its hash, None where it reads none; `about`: its other
    arguments in words; `imported`: when it came in a bundle; `example`: whether it came with the program."""

    id: str
    verb: str
    model: str | None
    text: str | None
    about: str
    created: str
    seconds: float
    bytes: int
    pinned: bool
    imported: str | None
    example: bool = False

    def matches(self, words: list[str]) -> bool:
        """Whether every one of `words` (lower case) stands somewhere in this row."""
        said = f"{self.id} {self.verb} {self.model} {self.text} {self.about} {self.created}".lower()
        return all(word in said for word in words)


def of_index(row: sqlite3.Row, names: dict[str, str]) -> Row:
    """The Row of a row of the index; `names`: hash of a text -> its name."""
    request = json.loads(row["request"])
    made = {name: row[name] for name in ("id", "verb", "model", "created", "seconds", "bytes", "imported")}
    return Row(**made, text=names.get(row["text"], row["text"]), about=about(request), pinned=bool(row["pinned"]))


def of_run(run: Run, names: dict[str, str]) -> Row:
    """The Row of an opened run, such as an example."""
    text, model = run.request.get("text"), run.request.get("model", "demo")
    made = {name: getattr(run, name) for name in ("id", "verb", "created", "seconds", "bytes", "example")}
    made |= {name: getattr(run.marks, name) for name in ("pinned", "imported")}
    return Row(**made, model=model, text=names.get(str(text), text), about=about(run.request))


def about(request: dict[str, Any]) -> str:
    """The arguments of a request beside its model and text, in one line of at most 160 characters."""
    told = [
        f"{name.replace('_', ' ')} {_words(value)}"
        for name, value in request.items()
        if name not in {"model", "text", *QUIET} and value not in (None, "", [], False)
    ]
    line = ", ".join(told)
    return line if len(line) <= 160 else f"{line[:159]}…"


def _words(value: object) -> str:
    if isinstance(value, dict):
        named = value.get("name")
        more = value.get("settings", {name: inner for name, inner in value.items() if name != "name"})
        told = ", ".join(f"{name} {_words(inner)}" for name, inner in more.items()) if isinstance(more, dict) else ""
        return f"{named or ''}{f' ({told})' if told else ''}".strip()
    if isinstance(value, list):
        return ", ".join(map(_words, value[:6])) + (" …" if len(value) > 6 else "")
    return f"{value:g}" if isinstance(value, float) else "yes" if value is True else str(value)


@dataclass(frozen=True)
class Forgotten:
    """What a replaced router, policy or method made stale: ids of runs moved to the trash, and how many stay."""

    what: str
    moved: list[str]
    pinned: int = 0

    @property
    def sentences(self) -> list[str]:
        """What to say of it; nothing when no run was concerned."""
        said = []
        if self.moved:
            said.append(
                f"{_count(len(self.moved))} that used {self.what} moved to the trash: the page Runs can bring "
                f"{'it' if len(self.moved) == 1 else 'them'} back for 7 days."
            )
        if self.pinned:
            said.append(f"{_count(self.pinned, 'pinned ')} with an earlier {self.what} stays, and is still shown.")
        return said


def named(kind: str, request: dict[str, object]) -> set[str]:
    """Names of routers, policies or methods (`kind` of KINDS) that a request gives, at any depth."""
    return _found(KINDS[kind], request, False)


def _found(keys: tuple[str, ...], value: object, inside: bool) -> set[str]:
    if isinstance(value, str):
        return {value} if inside else set()
    if isinstance(value, list):
        return set().union(*(_found(keys, one, inside) for one in value))
    if not isinstance(value, dict):
        return set()
    own = {value["name"]} if inside and isinstance(value.get("name"), str) else set()
    return own.union(*(_found(keys, inner, key in keys) for key, inner in value.items()))


def _count(number: int, kind: str = "") -> str:
    return f"{number} {kind}run{'' if number == 1 else 's'}"
