"""A bundle: one zip file that holds runs and the texts they read, to be opened on another machine.

    bundle.json                   format, schema, the ids of the runs and texts inside, the pages that made the runs,
                                  the names and notes of heads of their models
    runs/<id>/manifest.json       and the other files of each run, as they lie in the store
    texts/<hash>.json             name and content

`store` is a RunStore here. Of a bundle that is read, names, sizes, schema and every checksum are judged before anything
is shown in the store. What somebody else made is unpacked into a draft folder by our own names, never by the archive's,
and a separate process opens every table first. Whatever is wrong is one sentence, and then nothing of the bundle stays.
An import that is killed while it moves runs in is taken back when the store is opened next: it comes as one or not at
all.
"""

import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..declaration.command import SCHEMA
from ..errors import AnalysisError, BadSetting
from ..files import clear, draft, is_free, read_json, write_json
from . import head_notes, retention
from .archive import (
    FORMAT,
    MOST_BYTES,
    MOST_RUNS,
    MOST_TEXTS,
    TITLE,
    Entries,
    entries_of,
    listed,
    refusal,
    run_in,
    text_in,
    title_of,
    unpack,
)
from .folder import MANIFEST
from .proof import prove
from .run import Damaged, Marks, Newer, Run, checked_link, checked_words, now, write_marks
from .shelf import room

# In the name of the folder into which a bundle is unpacked; in it, what is being moved into the store.
DRAFT, JOURNAL = "bundle", "arrival.json"
# A zip knows no file without a date; the same runs give the same file.
EARLIEST = (1980, 1, 1, 0, 0, 0)
_TEXTS = re.compile(r"[0-9a-f]{12}(\+[0-9a-f]{12})*")


def write_bundle(store: Any, run_ids: Iterable[str], target: Path | IO[bytes]) -> dict[str, Any]:
    """Write the runs of these ids, own or example, and their texts to `target`, a path or a binary file open for
    writing; returns what stands in it, as in `bundle.json`. BadSetting for no run, too many, or a damaged one."""
    ids = list(dict.fromkeys(run_ids))
    if not 0 < len(ids) <= MOST_RUNS:
        raise BadSetting(f"{len(ids):,} runs were chosen and a bundle holds 1 to {MOST_RUNS}: choose others.")
    runs = [store.open(run_id) for run_id in ids]
    for run in runs:
        run.prove()
    texts = {key: entry for run in runs for key in named_texts(run.request) if (entry := _packed(store, key))}
    size = sum(run.bytes for run in runs) + sum(map(len, texts.values()))
    if size > MOST_BYTES or len(texts) > MOST_TEXTS:
        raise BadSetting(
            f"These {len(ids):,} runs have {size / 1e6:,.0f} MB and {len(texts):,} texts, and a bundle holds "
            f"{MOST_BYTES / 1e6:,.0f} MB and {MOST_TEXTS} texts: choose fewer."
        )
    about = {
        "format": FORMAT,
        "schema": SCHEMA,
        "made": now(),
        "runs": ids,
        "texts": list(texts),
        "links": {run.id: run.marks.link for run in runs if run.marks.link},
        "words": {run.id: run.marks.words for run in runs if run.marks.words},
        "heads": head_notes.of_runs(store.root, runs),
    }
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        _add(file, TITLE, json.dumps(about, indent=1).encode())
        for run in runs:
            for name in (MANIFEST, *run.files):
                _add(file, f"runs/{run.id}/{name}", (run.folder / name).read_bytes())
        for key, entry in texts.items():
            _add(file, f"texts/{key}.json", entry)
    return about


def named_texts(request: object) -> list[str]:
    """The hashes of texts that a request names: every text of 12 hexadecimal digits in it, also joined by "+"."""
    if isinstance(request, dict):
        request = list(request.values())
    if isinstance(request, list):
        return [key for value in request for key in named_texts(value)]
    return request.split("+") if isinstance(request, str) and _TEXTS.fullmatch(request) else []


def _packed(store: Any, key: str) -> bytes | None:
    try:
        name, text = store.text(key)
    except BadSetting:
        # The run can be read without its text.
        return None
    return json.dumps({"name": name, "text": text}).encode()


def _add(file: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, EARLIEST)
    entry.external_attr = 0o100644 << 16
    file.writestr(entry, data, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True)
class Arrived:
    """What came in: ids of new runs, ids of runs that stood here already (they stay as they are), hashes of texts."""

    new: list[str]
    known: list[str]
    texts: list[str]


def read_bundle(store: Any, source: str | Path | IO[bytes], own: bool = False) -> Arrived:
    """Bring the bundle `source` (path or binary file) into the store; returns Arrived. `own`: our own workers computed
    its runs. BadSetting with one sentence, and nothing written, when it is not what `write_bundle` makes."""
    if isinstance(source, (str, Path)):
        try:
            with open(source, "rb") as opened:
                return read_bundle(store, opened, own)
        except OSError as error:
            raise BadSetting(f"{str(source)[:80]!r} cannot be opened ({error.strerror}): name a bundle.") from error
    with room(store.root):
        try:
            with zipfile.ZipFile(listed(source)) as file:
                entries = entries_of(file)
                about = title_of(file, entries)
                with draft(store.root, DRAFT) as place:
                    unpack(file, entries, place)
                    return _arrive(store, place, entries, about, own)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error) as error:
            raise refusal(f"it is no sound zip file: {str(error)[:80] or type(error).__name__}") from error
        except (Damaged, Newer) as error:
            raise refusal(str(error)) from error


def _arrive(store: Any, place: Path, entries: Entries, about: dict[str, Any], own: bool) -> Arrived:
    """Put what lies unpacked in `place` into the store, once all of it is known to be sound: all of it, or after an
    error none."""
    texts = {key: place / "texts" / f"{key}.json" for key in about["texts"]}
    for key, path in texts.items():
        text_in(path, key)
    runs = [run_in(place / "runs" / run_id, entries) for run_id in about["runs"]]
    prove([run.folder for run in runs])
    present = [run.id for run in runs if store.has(run.id)]
    new = [run for run in runs if run.id not in present]
    if not own:
        _check_room(store, new)
    for run in new:
        words = checked_words(about["words"].get(run.id))
        link, when = checked_link(about["links"].get(run.id)), None if own else now()
        write_marks(run.folder, Marks(imported=when, link=link, **words))
    before = {key for key, *_ in store.texts()}
    notes = head_notes.merged(store.root, about["heads"])
    journal: dict[str, Any] = {"runs": [run.id for run in new], "texts": sorted(texts.keys() - before)}
    journal["heads"] = {name: head_notes.notes_in(store.root, name) for name in notes}
    write_json(place / JOURNAL, journal)
    try:
        for run in new:
            store.take(run.folder)
        for key, path in texts.items():
            name, text = text_in(path, key)
            store.put_text(text, name)
        head_notes.replace(store.root, notes)
    except (OSError, AnalysisError):
        # On a full disk.
        _undo(store, journal)
        raise
    # From here on all of it is here; what is left of the draft says nothing any more.
    clear(place / JOURNAL)
    if own:
        store.make_room({run.id for run in new})
    return Arrived([run.id for run in new], present, about["texts"])


def take_back(store: Any) -> None:
    """Undo what imports had moved in whose process was killed before all of it was here."""
    for place in store.root.glob(f".tmp-{DRAFT}-*"):
        journal = read_json(place / JOURNAL)
        if journal and is_free(place):
            _undo(store, journal)


def _undo(store: Any, journal: dict[str, Any]) -> None:
    # A journal of an earlier version names no notes.
    head_notes.replace(store.root, journal.get("heads", {}))
    for run_id in journal["runs"]:
        store.delete(run_id)
    for key in journal["texts"]:
        store.forget_text(key)


def _check_room(store: Any, new: list[Run]) -> None:
    """Refuse runs from elsewhere that would have to push out others. Errors: BadSetting."""
    before = [row.bytes for row in store.search(examples=False) if row.imported and not row.pinned]
    limit, most_bytes = retention.limits(store.root)
    if len(before) + len(new) > limit or sum(before) + sum(run.bytes for run in new) > most_bytes:
        raise BadSetting(
            f"The bundle brings {len(new):,} runs and {len(before):,} came in bundles before, which is more than is "
            f"kept of those ({limit:,} runs of {most_bytes / 1e6:,.0f} MB), so nothing was brought in: delete some, or "
            "keep more."
        )
