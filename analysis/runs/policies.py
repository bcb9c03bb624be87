"""The policies stored for a model, read back without torch: their budgets, and how they were made."""

import json
import re
from pathlib import Path

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
FOLDER = "csa"
MOST_BYTES = 4_000_000  # a larger file is no policy
NEEDED = ("layers", "heads", "policy")


def policies(state_folders: list[Path]) -> dict[str, dict]:
    """name -> the JSON of every readable policy, of each name that of the first folder. Whether one fits the model is
    for the studies to say."""
    found = {}
    for folder in state_folders:
        for path in sorted((folder / FOLDER).glob("*.json")):
            if NAME.fullmatch(path.stem) and path.stem not in found and (stored := _read(path)) is not None:
                found[path.stem] = stored
    return found


def _read(path: Path) -> dict | None:
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    good = isinstance(stored, dict) and all(name in stored for name in NEEDED) and isinstance(stored["policy"], list)
    return stored if good else None
