"""The names and notes that a reader gave to heads: one file for each model at one revision, in `root`/heads.

Bundles carry those of the models whose runs they hold; what a reader wrote here stays when a bundle says otherwise.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import BadSetting
from ..files import clear, read_json, write_json
from ..places import plain_name
from .run import Run
from .shelf import room

LONGEST = {"name": 40, "note": 400}
MOST_HEADS = 10_000
_HEAD = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}")
_FILE = re.compile(r"[\w.-]{1,160}", re.ASCII)
# Head as layer.head -> what was written, by the names of LONGEST.
Notes = dict[str, dict[str, str]]


def file_name(model: str, revision: str) -> str:
    """What the file of a model's notes is called, without its ending."""
    return re.sub(r"[^\w.-]+", "--", f"{plain_name(model)}-{revision}", flags=re.ASCII)[-160:]


def notes_of(root: Path, model: str, revision: str) -> Notes:
    """What was written about the heads of a model."""
    return notes_in(root, file_name(model, revision))


def note_head(root: Path, model: str, revision: str, head: str, **words: str) -> None:
    """Write the `name` or `note` of a head; empty words take it away. Errors: BadSetting where they are too long."""
    for kind, text in words.items():
        if len(text) > LONGEST[kind]:
            raise BadSetting(
                f"The {kind} of a head has at most {LONGEST[kind]} characters, and {len(text)} were given."
            )
    notes = notes_of(root, model, revision)
    stripped = {kind: " ".join(text.split()) for kind, text in words.items()}
    texts = {kind: text for kind, text in (notes.get(head, {}) | stripped).items() if text}
    notes = {cell: about for cell, about in (notes | {head: texts}).items() if about}
    replace(root, {file_name(model, revision): notes})


def of_runs(root: Path, runs: Iterable[Run]) -> dict[str, Notes]:
    """File name -> notes, of the models that these runs are about: what a bundle carries."""
    about = ((str(run.request.get("model") or "demo"), str(run.protocol.get("revision"))) for run in runs)
    found = {name: notes_in(root, name) for name in sorted({file_name(*one) for one in about})}
    return {name: notes for name, notes in found.items() if notes}


def checked(brought: Any) -> dict[str, Notes]:
    """The notes that a bundle carries, once they are what `of_runs` gives. Errors: ValueError."""
    if not isinstance(brought, dict) or len(brought) > MOST_HEADS:
        raise ValueError("the notes of heads are no list of models")
    for name, notes in brought.items():
        if not _FILE.fullmatch(name) or set(name) == {"."} or not _sound(notes):
            raise ValueError("the notes of heads are not what a bundle has")
    return brought


def merged(root: Path, brought: dict[str, Notes]) -> dict[str, Notes]:
    """What the files hold once `brought` is in, where what was written here stays."""
    together = {}
    for name, notes in brought.items():
        here = notes_in(root, name)
        together[name] = {head: notes.get(head, {}) | here.get(head, {}) for head in {**notes, **here}}
    return together


def replace(root: Path, files: dict[str, Notes]) -> None:
    """Put these notes in the place of those that the files hold."""
    with room(root):
        for name, notes in files.items():
            path = root / "heads" / f"{name}.json"
            if notes:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, notes)
            else:
                clear(path)


def notes_in(root: Path, name: str) -> Notes:
    """What the file of this name holds."""
    notes = read_json(root / "heads" / f"{name}.json")
    return notes if notes is not None and _sound(notes) else {}


def _sound(notes: Any) -> bool:
    """Whether these are notes as they are written here."""
    return (
        isinstance(notes, dict)
        and len(notes) <= MOST_HEADS
        and all(_HEAD.fullmatch(head) and _about(words) for head, words in notes.items())
    )


def _about(words: Any) -> bool:
    return isinstance(words, dict) and all(
        kind in LONGEST and isinstance(text, str) and 0 < len(text) <= LONGEST[kind] for kind, text in words.items()
    )


# --- cards of others --------------------------------------------------------------------------------------------------


def others_of(root: Path, model: str, revision: str) -> dict[str, Notes]:
    """Whose -> head -> what their card says: `name`, `note`, and `names` by definition."""
    folder = root / "heads" / "others" / file_name(model, revision)
    return {path.stem: read_json(path) or {} for path in sorted(folder.glob("*.json"))}


def put_others(root: Path, model: str, revision: str, whose: str, cards: Notes) -> Path:
    """Keep somebody's cards, in the place of earlier ones of that name."""
    name = re.sub(r"[^\w.-]+", "-", whose, flags=re.ASCII)[:80]
    path = root / "heads" / "others" / file_name(model, revision) / f"{name}.json"
    with room(root):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, cards)
    return path


def checked_cards(cards: Any) -> Notes:
    """What cards of a file say that a page shows of each head. Errors: ValueError."""
    if not isinstance(cards, list) or len(cards) > MOST_HEADS:
        raise ValueError("its cards are no list")
    found: Notes = {}
    for card in cards:
        cell = f"{card['layer']}.{card['head']}"
        words = {kind: str(card[kind])[:longest] for kind, longest in LONGEST.items()}
        words["names"] = ", ".join(str(row["name"])[: LONGEST["name"]] for row in card["names"])[: LONGEST["note"]]
        if not _HEAD.fullmatch(cell):
            raise ValueError(f"{cell[:20]} is no head")
        found[cell] = {kind: text for kind, text in words.items() if text}
    return found
