"""Stored runs as rows, found by words: what the page and the command line list. And which of them used a router, a
policy or a method, by their requests; what was moved when one was replaced."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .run import Marks, Run

# Arguments that say little in a list, or stand beside it.
QUIET = {"model", "text", "seed", "long_text", "made"}
KINDS = {"router": ("router", "other"), "policy": ("policy", "other"), "method": ("method", "methods")}
# What a study uses when nobody names one.
USUAL = {"router": "k8-top1", "policy": "policy"}
# Characters of the arguments in a list.
LINE = 160


@dataclass(frozen=True, kw_only=True)
class Row(Marks):
    """One run in a list: its marks, the address that asked for it (`link`) among them, with what decides over its price
    and its place."""

    id: str
    verb: str
    model: str | None
    # The name of its text, else its hash; None where it reads none.
    text: str | None
    request: dict[str, Any]
    question: str  # the id without the weights
    created: str
    seconds: float
    tokens: int
    bytes: int
    example: bool = False  # whether it came with the program

    @property
    def about(self) -> str:
        """The arguments beside model and text, in one line."""
        line = ", ".join(
            f"{name.replace('_', ' ')} {_words(value)}"
            for name, value in self.request.items()
            if name not in QUIET and value not in (None, "", [], False)
        )
        return line if len(line) <= LINE else f"{line[: LINE - 1]}…"

    def matches(self, words: list[str]) -> bool:
        """Whether every one of `words` (lower case) stands somewhere in this row."""
        text = f"{self.id} {self.verb} {self.model} {self.text} {self.about} {self.created} "
        text += f"{self.name} {self.note} {' '.join(self.tags)}"
        text = text.lower()
        return all(word in text for word in words)


def row_of(run: Run) -> Row:
    """The row of an opened run."""
    model, text = run.request.get("model", "demo"), run.request.get("text")
    # Of a text whose earlier windows were kept, those that the time is of.
    tokens = run.protocol.get("fresh", run.protocol.get("tokens"))
    return Row(
        id=run.id,
        verb=run.verb,
        model=model if isinstance(model, str) else None,
        text=text if isinstance(text, str) else None,
        request=run.request,
        question=run.question,
        created=run.created,
        seconds=run.seconds,
        tokens=tokens if isinstance(tokens, int) and tokens > 0 else 0,
        bytes=run.bytes,
        example=run.example,
        **vars(run.marks),
    )


def surplus(rows: Iterable[Row], limit: int, size: int) -> list[str]:
    """Ids to remove of rows (the newest first): the oldest beyond so many runs or bytes that are not pinned. Runs that
    came in bundles are counted apart, so that they never push out what was computed here."""
    counts, sizes, ids = {True: 0, False: 0}, {True: 0, False: 0}, []
    for row in rows:
        if not row.pinned:
            imported = row.imported is not None
            counts[imported] += 1
            sizes[imported] += row.bytes
            if counts[imported] > limit or sizes[imported] > size:
                ids.append(row.id)
    return ids


def _words(value: object) -> str:
    if isinstance(value, dict):
        settings = value.get("settings", {name: inner for name, inner in value.items() if name != "name"})
        words = ", ".join(f"{key} {_words(inner)}" for key, inner in settings.items())
        return f"{value.get('name') or ''}{f' ({words})' if words else ''}".strip()
    if isinstance(value, list):
        return ", ".join(map(_words, value[:6])) + (" …" if len(value) > 6 else "")
    if isinstance(value, float):
        return f"{value:g}"
    return "yes" if value is True else str(value)


@dataclass(frozen=True)
class Forgotten:
    """What a replaced router, policy or method made stale."""

    what: str
    # Ids of runs moved to the trash.
    moved: list[str]
    pinned: int = 0  # runs that stay

    @property
    def sentences(self) -> list[str]:
        """What to say of it; nothing when no run was concerned."""
        sentences = []
        if self.moved:
            count = f"{len(self.moved)} run{'' if len(self.moved) == 1 else 's'}"
            sentences.append(f"{count} that used {self.what} moved to the trash, for 7 days (page Runs).")
        if self.pinned:
            count = f"{self.pinned} pinned run{'' if self.pinned == 1 else 's'}"
            sentences.append(f"{count} of an earlier {self.what}: kept, and still shown.")
        return sentences


def named(kind: str, request: object) -> set[str]:
    """Names of routers, policies or methods (`kind` of KINDS) that a request gives, at any depth."""
    return _names(KINDS[kind], request, False)


def _names(keys: tuple[str, ...], value: object, inside: bool) -> set[str]:
    if isinstance(value, str):
        return {value} if inside else set()
    if isinstance(value, list):
        return set().union(*(_names(keys, item, inside) for item in value))
    if not isinstance(value, dict):
        return set()
    names = {value["name"]} if inside and isinstance(value.get("name"), str) else set()
    return names.union(*(_names(keys, inner, key in keys) for key, inner in value.items()))
