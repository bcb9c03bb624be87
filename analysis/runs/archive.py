"""The zip file of a bundle that somebody else made: what it holds is judged before anything of it is shown.

Whatever is wrong is one sentence.
"""

import json
import re
import stat
import struct
import zipfile
from pathlib import Path
from typing import IO, Any

from ..corpus import text_hash
from ..declaration.canonical import parsed
from ..declaration.command import SCHEMA
from ..errors import BadSetting
from ..files import change
from . import head_notes
from .folder import MANIFEST, MAX_MANIFEST, read_run
from .keys import is_id
from .run import Run
from .texts import MAX_BYTES

FORMAT, TITLE = 1, "bundle.json"
MOST_RUNS, MOST_TEXTS, MOST_FILES = 500, 500, 5_000
MOST_BYTES = 2_000_000_000  # of all files, unpacked
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


def refusal(why: str) -> BadSetting:
    """The one sentence about a bundle that is wrong."""
    return BadSetting(f"The bundle is refused ({why}) and nothing of it was kept: export it again where it was made.")


def listed(file: IO[bytes]) -> IO[bytes]:
    """`file`, once its list of files is known to be short: that list is read whole before it can be judged."""
    size = file.seek(0, 2)
    file.seek(max(0, size - END.size - 65_535 - 20))
    tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + END.size:
        raise refusal("it is no zip file")
    _, _, _, _, count, length, _, _ = END.unpack_from(tail, end)
    if tail[max(0, end - 20) : end].startswith(b"PK\x06\x07") or count > MOST_FILES or length > CENTRAL:
        raise refusal(f"it lists {count:,} files in {length:,} bytes, and the limit is {MOST_FILES:,}")
    file.seek(0)
    return file


def entries_of(file: zipfile.ZipFile) -> Entries:
    """name -> ZipInfo of every file, none of them strange."""
    files, total = {}, 0
    for entry in file.infolist():
        name, mode = repr(entry.filename[:60]), entry.external_attr >> 16
        if not NAMES.fullmatch(entry.filename):
            raise refusal(f"it holds {name}, a name no bundle has")
        if entry.filename in files:
            raise refusal(f"it holds {name} twice")
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise refusal(f"{name} is a link or a device, not a file")
        if entry.flag_bits & 1 or entry.compress_type not in KINDS:
            raise refusal(f"{name} is encrypted, or packed in a way no bundle is")
        total += entry.file_size
        files[entry.filename] = entry
    if len(files) > MOST_FILES or total > MOST_BYTES:
        raise refusal(
            f"it unpacks to {len(files):,} files of {total / 1e6:,.0f} MB, and the limit is {MOST_FILES:,} files of "
            f"{MOST_BYTES / 1e6:,.0f} MB"
        )
    return files


def title_of(file: zipfile.ZipFile, entries: Entries) -> dict[str, Any]:
    """The contents of bundle.json, when they name exactly what the bundle holds."""
    if TITLE not in entries or entries[TITLE].file_size > MAX_MANIFEST:
        raise refusal(f"it has no {TITLE}")
    try:
        about = parsed(file.read(entries[TITLE]))
        version, schema = about["format"], about["schema"]
        runs, texts, links = about["runs"], about["texts"], about.get("links", {})
        words = about.get("words", {})
        named = set(runs), set(texts)
        valid = all(is_id(key) for key in [*runs, *texts]) and isinstance(links, dict) and isinstance(words, dict)
        heads = head_notes.checked(about.get("heads", {}))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise refusal(f"its {TITLE} cannot be read") from error
    if version != FORMAT or schema != SCHEMA:
        raise refusal(
            f"it has format {str(version)[:20]} and schema {str(schema)[:20]}, and this version reads format {FORMAT} "
            f"and schema {SCHEMA}"
        )
    inside = tuple(
        {path.split("/")[1].removesuffix(".json") for path in entries if path.startswith(place)}
        for place in ("runs/", "texts/")
    )
    if not valid or inside != named or len(runs) + len(texts) > sum(map(len, named)):
        raise refusal(f"its {TITLE} names other runs or texts than it holds")
    if not 0 < len(runs) <= MOST_RUNS or len(texts) > MOST_TEXTS:
        raise refusal(f"it holds {len(runs):,} runs and {len(texts):,} texts, and {MOST_RUNS} are the limit of each")
    return about | {"links": links, "words": words, "heads": heads}


def unpack(file: zipfile.ZipFile, entries: Entries, place: Path) -> None:
    """Write every file below `place`, by our own names, and never more of it than the list of files says."""
    for name, entry in entries.items():
        target = place / name
        change()
        target.parent.mkdir(parents=True, exist_ok=True)
        left = entry.file_size
        with file.open(entry) as packed, target.open("xb") as out:
            while block := packed.read(BLOCK):
                left -= len(block)
                if left < 0:
                    raise refusal(f"{name!r} is larger than it says")
                out.write(block)
        if left:
            raise refusal(f"{name!r} is smaller than it says")


def run_in(folder: Path, entries: Entries) -> Run:
    """The Run in an unpacked folder, whole: its manifest names it and exactly its files, each with its checksum."""
    try:
        # Half a character would stop a page later.
        json.dumps(parsed((folder / MANIFEST).read_bytes()), ensure_ascii=False).encode()
        run = read_run(folder)
    except (ValueError, RecursionError, FileNotFoundError) as error:
        raise refusal(f"the manifest of {folder.name} cannot be read") from error
    packed = {name for name in entries if name.startswith(f"runs/{folder.name}/")}
    if packed != {f"runs/{folder.name}/{name}" for name in (MANIFEST, *run.files)}:
        raise refusal(f"the run {folder.name} comes with files that its manifest does not name")
    run.prove()
    return run


def text_in(path: Path, key: str) -> tuple[str, str]:
    """(name, text) of an unpacked text whose content has that hash; a refusal for any other."""
    try:
        entry = parsed(path.read_bytes()) if path.stat().st_size <= 7 * MAX_BYTES else {}
        name, text = entry["name"], entry["text"]
        if isinstance(name, str) and text_hash(text) == key and len(text.encode()) <= MAX_BYTES:
            return name, text
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise refusal(f"the text {key} is not the one of that name")
