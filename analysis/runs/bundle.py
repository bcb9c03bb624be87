"""A bundle: one zip file that holds runs and the texts they read, to be opened on another machine.

    bundle.json                   format, schema, the ids of the runs and texts inside, the pages that made the runs
    runs/<id>/manifest.json       and the other files of each run, as they lie in the store
    texts/<hash>.json             name and content

Writing stands here, reading in `unbundle`; `store` is a RunStore in both.
"""

import json
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from analysis.errors import BadSetting
from analysis.runs.database import now
from analysis.runs.folder import MANIFEST
from analysis.runs.keys import SCHEMA, is_id

FORMAT, TITLE = 1, "bundle.json"
MOST_RUNS, MOST_TEXTS, MOST_FILES = 500, 500, 5_000
MOST_BYTES = 2_000_000_000  # of all files, unpacked
EARLIEST = (1980, 1, 1, 0, 0, 0)  # a zip knows no file without a date; the same runs give the same file
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
    texts = {key: entry for run in runs for key in named_texts(run.request) if (entry := _text(store, key))}
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


def _text(store: Any, key: str) -> bytes | None:
    try:
        name, text = store.text(key)
    except BadSetting:
        return None  # the run can be read without its text
    assert is_id(key)
    return json.dumps({"name": name, "text": text}).encode()


def _add(file: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, EARLIEST)
    entry.external_attr = 0o100644 << 16
    file.writestr(entry, data, zipfile.ZIP_DEFLATED)
