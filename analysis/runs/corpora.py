"""The texts a training may read when a browser asks: stored texts, or a folder below one configured root."""

import re
from pathlib import Path

from ..corpus import text_hash
from ..errors import BadSetting
from ..files import write_text
from .store import RunStore

CORPORA = Path(__file__).resolve().parents[2] / "models_cache" / "corpora"
TEXTS = re.compile(r"[0-9a-f]{12}(\+[0-9a-f]{12}){0,99}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


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
