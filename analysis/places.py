"""Where a model's files are: the bundled one, a local folder, the Hugging Face cache or the Hub.

Loads no torch, and the Hub's client only for a name that is no folder.
"""

import hashlib
import os
import re
from functools import lru_cache
from pathlib import Path

from analysis.errors import BadModel
from analysis.refusals import explained

HASHED_WHOLE = 64 << 20  # bytes; of a larger weight file only its ends are hashed
CACHE = Path(__file__).parent.parent / "models_cache"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")


def locate(name: str, root: Path | None = None) -> str | Path:
    """A folder in `models_cache`, another local folder, or a Hub id. With `root`, a folder below it or a Hub id."""
    if name == "demo" or root is None and HUB_ID.fullmatch(name) and (CACHE / name / "config.json").is_file():
        return CACHE / name
    folder = Path(os.path.expanduser(name)) if root is None else root / name
    if os.path.isdir(folder) and (root is None or root.resolve() in folder.resolve().parents):
        return folder
    if not HUB_ID.fullmatch(name) or ".." in name or root and (os.path.lexists(folder) or os.path.exists(name)):
        where = f" Folders must lie below {root.name}/." if root else ""
        raise BadModel(
            f"{name[:80]!r} is no folder here and no Hugging Face id: write it like Qwen/Qwen2.5-0.5B.{where}"
        )
    return name


def config_file(name: str, root: Path | None = None) -> Path:
    """The config.json of a model, without its weights: from disk or the cache, and from the Hub when neither has it.

    Raises BadModel as loading the model would.
    """
    place = locate(name, root)
    with explained(name, place):
        if not isinstance(place, Path):
            try:
                return Path(_hub().hf_hub_download(place, "config.json", local_files_only=True))
            except OSError:
                return Path(_hub().hf_hub_download(place, "config.json"))
        if not (place / "config.json").is_file():
            raise FileNotFoundError("config.json")
    return place / "config.json"


def weight_bytes(name: str, root: Path | None = None) -> int | None:
    """Bytes of a model's weights on this disk; None where they would have to be downloaded first. Errors: BadModel."""
    return sum(path.stat().st_size for path in _weights(locate(name, root))) or None


def revision(name: str, root: Path | None = None) -> str | None:
    """Which weights a model's name stands for now, in twelve digits: of the commit in the Hugging Face cache, or over a
    folder's configuration and weights. None where none are on this disk. Changed files are read again."""
    try:
        place = locate(name, root)
    except BadModel:
        return None
    try:
        files = _weights(place)
        if not files:
            return None
        if not isinstance(place, Path):
            return files[0].parent.name[:12]
        stats = [(path, path.stat()) for path in (place / "config.json", *files)]
        return _hash(tuple((path, stat.st_size, stat.st_mtime_ns) for path, stat in stats))
    except OSError:  # a folder that is just being written
        return None


def _weights(place: str | Path) -> list[Path]:
    """The weight files in a folder, or of a Hub id in the Hugging Face cache."""
    if not isinstance(place, Path):
        found = _hub().try_to_load_from_cache(place, "config.json")
        if not isinstance(found, str):
            return []
        place = Path(found).parent
    return sorted(place.glob("*.safetensors"))


@lru_cache(maxsize=64)
def _hash(files: tuple[tuple[Path, int, int], ...]) -> str:
    """Twelve digits over (path, size, time) of files: over what is in them, of a large one its size and both ends."""
    digest = hashlib.sha256()
    for path, size, _ in files:
        with path.open("rb") as file:
            if size > HASHED_WHOLE:
                digest.update(size.to_bytes(8, "little") + file.read(1 << 20))
                file.seek(max(0, size - (1 << 20)))
            digest.update(file.read())
    return digest.hexdigest()[:12]


def _hub():
    """The Hub's client. What it would print is said here, in a sentence."""
    import huggingface_hub
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()
    return huggingface_hub
