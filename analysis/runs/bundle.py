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
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..corpus import text_hash
from ..declaration.canonical import parsed
from ..declaration.command import SCHEMA
from ..errors import AnalysisError, BadSetting
from ..files import change, clear, draft, is_free, read_json, write_json
from . import head_notes, retention
from .folder import MANIFEST, MAX_MANIFEST, read_run
from .keys import is_id
from .proof import prove
from .run import Damaged, Marks, Newer, Run, checked_link, checked_words, now, write_marks
from .shelf import room
from .texts import MAX_BYTES

FORMAT, TITLE = 1, "bundle.json"
# In the name of the folder into which a bundle is unpacked; in it, what is being moved into the store.
DRAFT, JOURNAL = "bundle", "arrival.json"
MOST_RUNS, MOST_TEXTS, MOST_FILES = 500, 500, 5_000
MOST_BYTES = 2_000_000_000  # of all files, unpacked
# A zip knows no file without a date; the same runs give the same file.
EARLIEST = (1980, 1, 1, 0, 0, 0)
_TEXTS = re.compile(r"[0-9a-f]{12}(\+[0-9a-f]{12})*")
_ID = "[0-9a-f]{12}"
NAMES = re.compile(
    rf"{re.escape(TITLE)}|texts/{_ID}\.json"
    rf"|runs/{_ID}/(?:manifest\.json|arrays\.safetensors|tables/[a-z_]{{1,40}}\.parquet)"
)
# Bytes of the list of files: our names are short.
CENTRAL = 200 * MOST_FILES
# Of a zip file: signature, disks, entries, size and place of the list, comment.
END = struct.Struct("<4s4H2LH")
KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
BLOCK = 1 << 20
Entries = dict[str, zipfile.ZipInfo]


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
            with zipfile.ZipFile(_listed(source)) as file:
                entries = _entries(file)
                about = _title(file, entries)
                with draft(store.root, DRAFT) as place:
                    _unpack(file, entries, place)
                    return _arrive(store, place, entries, about, own)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error) as error:
            raise _refusal(f"it is no sound zip file: {str(error)[:80] or type(error).__name__}") from error
        except (Damaged, Newer) as error:
            raise _refusal(str(error)) from error


def _arrive(store: Any, place: Path, entries: Entries, about: dict[str, Any], own: bool) -> Arrived:
    """Put what lies unpacked in `place` into the store, once all of it is known to be sound: all of it, or after an
    error none."""
    texts = {key: place / "texts" / f"{key}.json" for key in about["texts"]}
    for key, path in texts.items():
        _text(path, key)
    runs = [_run(place / "runs" / run_id, entries) for run_id in about["runs"]]
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
            name, text = _text(path, key)
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


def _refusal(why: str) -> BadSetting:
    return BadSetting(f"The bundle is refused ({why}) and nothing of it was kept: export it again where it was made.")


def _listed(file: IO[bytes]) -> IO[bytes]:
    """`file`, once its list of files is known to be short: that list is read whole before it can be judged."""
    size = file.seek(0, 2)
    file.seek(max(0, size - END.size - 65_535 - 20))
    tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + END.size:
        raise _refusal("it is no zip file")
    _, _, _, _, count, length, _, _ = END.unpack_from(tail, end)
    if tail[max(0, end - 20) : end].startswith(b"PK\x06\x07") or count > MOST_FILES or length > CENTRAL:
        raise _refusal(f"it lists {count:,} files in {length:,} bytes, and the limit is {MOST_FILES:,}")
    file.seek(0)
    return file


def _entries(file: zipfile.ZipFile) -> Entries:
    """name -> ZipInfo of every file, none of them strange."""
    files, total = {}, 0
    for entry in file.infolist():
        name, mode = repr(entry.filename[:60]), entry.external_attr >> 16
        if not NAMES.fullmatch(entry.filename):
            raise _refusal(f"it holds {name}, a name no bundle has")
        if entry.filename in files:
            raise _refusal(f"it holds {name} twice")
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise _refusal(f"{name} is a link or a device, not a file")
        if entry.flag_bits & 1 or entry.compress_type not in KINDS:
            raise _refusal(f"{name} is encrypted, or packed in a way no bundle is")
        total += entry.file_size
        files[entry.filename] = entry
    if len(files) > MOST_FILES or total > MOST_BYTES:
        raise _refusal(
            f"it unpacks to {len(files):,} files of {total / 1e6:,.0f} MB, and the limit is {MOST_FILES:,} files of "
            f"{MOST_BYTES / 1e6:,.0f} MB"
        )
    return files


def _title(file: zipfile.ZipFile, entries: Entries) -> dict[str, Any]:
    """The contents of bundle.json, when they name exactly what the bundle holds."""
    if TITLE not in entries or entries[TITLE].file_size > MAX_MANIFEST:
        raise _refusal(f"it has no {TITLE}")
    try:
        about = parsed(file.read(entries[TITLE]))
        version, schema = about["format"], about["schema"]
        runs, texts, links = about["runs"], about["texts"], about.get("links", {})
        words = about.get("words", {})
        named = set(runs), set(texts)
        valid = all(is_id(key) for key in [*runs, *texts]) and isinstance(links, dict) and isinstance(words, dict)
        heads = head_notes.checked(about.get("heads", {}))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _refusal(f"its {TITLE} cannot be read") from error
    if version != FORMAT or schema != SCHEMA:
        raise _refusal(
            f"it has format {str(version)[:20]} and schema {str(schema)[:20]}, and this version reads format {FORMAT} "
            f"and schema {SCHEMA}"
        )
    inside = tuple(
        {path.split("/")[1].removesuffix(".json") for path in entries if path.startswith(place)}
        for place in ("runs/", "texts/")
    )
    if not valid or inside != named or len(runs) + len(texts) > sum(map(len, named)):
        raise _refusal(f"its {TITLE} names other runs or texts than it holds")
    if not 0 < len(runs) <= MOST_RUNS or len(texts) > MOST_TEXTS:
        raise _refusal(f"it holds {len(runs):,} runs and {len(texts):,} texts, and {MOST_RUNS} are the limit of each")
    return about | {"links": links, "words": words, "heads": heads}


def _unpack(file: zipfile.ZipFile, entries: Entries, place: Path) -> None:
    for name, entry in entries.items():
        target = place / name
        change()
        target.parent.mkdir(parents=True, exist_ok=True)
        left = entry.file_size
        with file.open(entry) as packed, target.open("xb") as out:
            while block := packed.read(BLOCK):
                left -= len(block)
                if left < 0:
                    raise _refusal(f"{name!r} is larger than it says")
                out.write(block)
        if left:
            raise _refusal(f"{name!r} is smaller than it says")


def _run(folder: Path, entries: Entries) -> Run:
    """The Run in an unpacked folder, whole: its manifest names it and exactly its files, each with its checksum."""
    try:
        # Half a character would stop a page later.
        json.dumps(parsed((folder / MANIFEST).read_bytes()), ensure_ascii=False).encode()
        run = read_run(folder)
    except (ValueError, RecursionError, FileNotFoundError) as error:
        raise _refusal(f"the manifest of {folder.name} cannot be read") from error
    packed = {name for name in entries if name.startswith(f"runs/{folder.name}/")}
    if packed != {f"runs/{folder.name}/{name}" for name in (MANIFEST, *run.files)}:
        raise _refusal(f"the run {folder.name} comes with files that its manifest does not name")
    run.prove()
    return run


def _text(path: Path, key: str) -> tuple[str, str]:
    """(name, text) of an unpacked text whose content has that hash; a refusal for any other."""
    try:
        entry = parsed(path.read_bytes()) if path.stat().st_size <= 7 * MAX_BYTES else {}
        name, text = entry["name"], entry["text"]
        if isinstance(name, str) and text_hash(text) == key and len(text.encode()) <= MAX_BYTES:
            return name, text
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise _refusal(f"the text {key} is not the one of that name")
