"""The folder of one run, which can prove that it is whole.

    <id>/manifest.json        request, protocol, numbers; size and SHA-256 of every other file
    <id>/tables/<name>.parquet
    <id>/arrays.safetensors

Nothing is ever unpickled.
"""

import hashlib
import json
import math
import re
from datetime import datetime
from os.path import samestat
from pathlib import Path
from typing import Any

from ..answer import Answer
from ..declaration.canonical import canonical, parsed, plain_numbers
from ..declaration.command import SCHEMA, check_verb
from ..errors import BadSetting
from ..files import change, write_text
from .keys import Asked
from .run import ARRAYS, TABLES, Damaged, Newer, Report, Result, Run, now, read_marks

MANIFEST = "manifest.json"
MAX_MANIFEST = 32_000_000  # bytes
_NAME = re.compile(r"[a-z_]{1,40}")
_FILE = re.compile(rf"{re.escape(ARRAYS)}|{TABLES}/{_NAME.pattern}\.parquet")


def write_run(folder: Path, asked: Asked, result: Result | Answer, protocol: dict[str, Any], seconds: float) -> None:
    """Fills the existing empty `folder` with one run; the manifest comes last. BadSetting for what cannot be stored."""
    if not isinstance(result, Result | Answer):
        raise BadSetting(f"The study {asked.verb} returned a {type(result).__name__}, and only a Result can be stored.")
    if result.tables:
        change()
        (folder / TABLES).mkdir()
    for name, table in result.tables.items():
        _write_table(folder / TABLES / f"{_checked(name)}.parquet", table)
    if result.arrays:
        import numpy as np
        from safetensors.numpy import save_file

        change()
        arrays = {}
        for name, given in result.arrays.items():
            array = np.asarray(given, order="C")
            if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
                raise BadSetting(
                    f"The array {name!r} has type {array.dtype}: only bool, integers and floats can be stored."
                )
            # safetensors writes the buffer as it lies: contiguous, in this machine's byte order
            arrays[_checked(name)] = array.astype(array.dtype.newbyteorder("="), copy=False)
        save_file(arrays, folder / ARRAYS)
    manifest = {
        "schema": SCHEMA,
        "id": asked.key,
        "verb": asked.verb,
        "version": asked.version,
        "revision": asked.revision,
        "request": asked.request,
        "defaults": asked.defaults,
        "created": now(),
        "seconds": float(seconds),
        "protocol": plain_numbers(protocol, "protocol"),
        "numbers": plain_numbers(result.numbers),
        "files": {
            path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": _digest(path)}
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        },
    }
    write_text(folder / MANIFEST, json.dumps(manifest, ensure_ascii=False, indent=1))


def read_run(folder: Path, example: bool = False, report: Report | None = None) -> Run:
    """The Run in `folder`, checked: a whole manifest whose request names this folder, and every file there with its
    size. FileNotFoundError when there is no such folder, Damaged when it is not what was written, Newer when its schema
    is another one than this program's."""
    before, path = folder.stat(), folder / MANIFEST
    try:
        if path.stat().st_size > MAX_MANIFEST:
            raise Damaged(f"its manifest has over {MAX_MANIFEST / 1e6:.0f} MB")
        return _run(folder, parsed(path.read_text(encoding="utf-8")), example, report)
    except FileNotFoundError:
        # It left or was replaced meanwhile.
        if not samestat(before, folder.stat()):
            raise FileNotFoundError(folder) from None
        raise Damaged("a file of it is missing") from None
    except (Damaged, Newer):
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, BadSetting) as error:
        raise Damaged(f"its manifest cannot be read: {type(error).__name__}") from error


def _run(folder: Path, manifest: dict[str, Any], example: bool, report: Report | None) -> Run:
    if (schema := manifest["schema"]) != SCHEMA:
        raise Newer(
            f"The run {folder.name} was stored by a newer Focuscope (schema {str(schema)[:20]}, and this one reads "
            f"{SCHEMA}): update this one to open it; it is kept as it is."
        )
    version, revision, files = manifest["version"], manifest["revision"], manifest["files"]
    protocol, numbers, seconds = manifest["protocol"], manifest["numbers"], float(manifest["seconds"])
    if type(version) is not int or version < 1 or not (revision is None or isinstance(revision, str)):
        raise Damaged("its manifest does not say which program and weights made it")
    for name, entry in files.items():
        if not _FILE.fullmatch(name):
            raise Damaged(f"it names a file no run has: {name[:60]!r}")
        if (folder / name).stat().st_size != entry["bytes"] or not isinstance(entry["sha256"], str):
            raise Damaged(f"{name} has another size than was written")
    if datetime.fromisoformat(manifest["created"]).tzinfo is None or not math.isfinite(seconds):
        raise Damaged("its manifest does not say when it was made and how long that took")
    if not isinstance(protocol, dict) or not isinstance(numbers, dict):
        raise Damaged("its manifest has no numbers")
    run = Run(
        id=folder.name,
        verb=check_verb(manifest["verb"]),
        request=canonical(manifest["request"]),
        version=version,
        revision=revision,
        defaults=manifest.get("defaults"),
        created=manifest["created"],
        seconds=seconds,
        protocol=protocol,
        numbers=numbers,
        example=example,
        folder=folder,
        marks=read_marks(folder),
        _files=files,
        _report=report,
    )
    if run.key != folder.name:
        raise Damaged("its manifest belongs to another request")
    return run


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write_table(path: Path, table: Any) -> None:
    import pyarrow
    import pyarrow.parquet

    try:
        names = list(table.columns)
        if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
            raise ValueError("its columns need names of text, each once")
        arrow = pyarrow.Table.from_pandas(table, preserve_index=False, nthreads=1)
        change()
        pyarrow.parquet.write_table(arrow, path, compression="zstd")
    except (pyarrow.ArrowException, AttributeError, TypeError, ValueError) as error:
        raise BadSetting(f"The table {path.stem!r} cannot be stored: {error}") from error


def _checked(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadSetting(f"{name!r} cannot name a table or an array: use a-z and underscores, at most 40.")
    return name
