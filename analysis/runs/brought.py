"""Files that somebody brings: uploads on their way to the worker, and the texts that a training may read when a browser
asks: stored texts, or a folder below one configured root."""

import contextlib
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..corpus import read_any, text_hash
from ..errors import BadSetting
from ..files import clear, write_bytes, write_text
from ..limits import limits
from .store import RunStore

CORPORA = Path(__file__).resolve().parents[2] / "models_cache" / "corpora"
TEXTS = re.compile(r"[0-9a-f]{12}(\+[0-9a-f]{12}){0,99}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# Seconds after which an upload that its app left behind is removed.
LEFT = 24 * 3600


@contextlib.contextmanager
def upload(root: Path, data: bytes) -> Iterator[str]:
    """The name under which the worker finds an upload in the store at `root` while it is being read."""
    folder, name = root / "uploads", secrets.token_hex(8)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > LEFT:
                clear(old)
    place = folder / name
    try:
        write_bytes(place, data)
        yield name
    finally:
        clear(place)


def read_upload(store: RunStore, upload: str, name: str) -> dict[str, Any]:
    """Store the text of an upload: {"text": its hash, "said": what was read of it}. Errors: BadText, BadSetting."""
    place = store.root / "uploads" / upload
    if not re.fullmatch(r"[0-9a-f]{16}", upload) or not place.is_file():
        raise BadSetting("This upload is not here (any more): upload the file again.")
    document = read_any(place.read_bytes(), name)
    limits().check_text(document.text.encode(), name)
    return {"text": store.put_text(document.text, name, document.said), "said": document.said}


def corpora(root: Path | None = None) -> list[str]:
    """Names of the folders of texts that can be asked for: those right below `models_cache/corpora`."""
    root = root or CORPORA
    return sorted(p.name for p in root.iterdir() if p.is_dir() and NAME.fullmatch(p.name)) if root.is_dir() else []


def corpus_folder(store: RunStore | None, corpus: str, root: Path | None = None) -> Path:
    """The folder behind what a browser asked for: `corpus` is the hashes of stored texts joined by "+", which are
    written into a folder of the store, or the name of one of `corpora`. Errors: BadSetting; nothing else is opened."""
    root = root or CORPORA
    if store is not None and TEXTS.fullmatch(corpus):
        keys = sorted(set(corpus.split("+")))
        folder = store.root / "corpora" / f"texts-{text_hash('+'.join(keys))}"
        folder.mkdir(parents=True, exist_ok=True)
        for key in keys:
            write_text(folder / f"{key}.txt", store.text(key)[1])
        return folder
    folder = root / corpus
    if not NAME.fullmatch(corpus) or not folder.is_dir() or folder.resolve().parent != root.resolve():
        raise BadSetting(
            f"{corpus[:40]!r} is no corpus here: choose stored texts, or put a folder into models_cache/corpora."
        )
    return folder
