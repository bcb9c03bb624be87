"""Where a model's files are: the bundled one, a local folder, the Hugging Face cache or the Hub. Loads no torch."""

import os
import re
from pathlib import Path

from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.utils import logging

from analysis.errors import BadModel
from analysis.refusals import explained

logging.set_verbosity_error()  # what the Hub's client would print is said here, in a sentence

CACHE = Path(__file__).parent.parent / "models_cache"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")


def locate(name: str, root: Path | None = None) -> str | Path:
    """A folder in `models_cache`, another local folder, or a Hub id. With `root`, anything else than a folder below it
    or a Hub id is refused."""
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
                return Path(hf_hub_download(place, "config.json", local_files_only=True))
            except OSError:
                return Path(hf_hub_download(place, "config.json"))
        if not (place / "config.json").is_file():
            raise FileNotFoundError("config.json")
    return place / "config.json"


def weight_bytes(name: str, root: Path | None = None) -> int | None:
    """Bytes of a model's weights on this disk; None where they would have to be downloaded first. Errors: BadModel."""
    place = locate(name, root)
    if not isinstance(place, Path):
        found = try_to_load_from_cache(place, "config.json")
        if not isinstance(found, str):
            return None
        place = Path(found).parent
    return sum(path.stat().st_size for path in place.glob("*.safetensors")) or None
