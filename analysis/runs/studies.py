"""Where a model's stored studies and policies lie, and the policies, read back without torch."""

import json
import re
from pathlib import Path

from ..places import plain_name
from .store import RunStore

MOST_POLICY = 4_000_000  # bytes; a larger file is no policy
POLICY_FORMAT = 1  # of a policy as JSON, see docs/policy.schema.json
POLICY_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


def study_folders(store: RunStore, model: str, revision: str) -> list[Path]:
    """Where studies of a model lie: the store's own state, then what came with the program or the command line."""
    model = plain_name(model)
    slug = re.sub(r"[^\w.-]+", "--", model).strip("-.")
    folders = [store.root / "fitted" / slug / revision / "studies"]
    if store.examples is None:
        return folders
    bundled = store.examples.parent
    return [*folders, (bundled if model == "demo" else bundled.parent / slug / revision) / "studies"]


def study_files(folders: list[Path]) -> list[Path]:
    """The files of the studies in some folders, of each name the first."""
    files: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.json")):
            files.setdefault(path.stem, path)
    return list(files.values())


def policies(state_folders: list[Path]) -> dict[str, dict]:
    """name -> the JSON of every readable policy, of each name that of the first folder, fitting or not."""
    readable = {}
    for folder in state_folders:
        for path in sorted((folder / "csa").glob("*.json")):
            if POLICY_NAME.fullmatch(path.stem) and path.stem not in readable and (stored := _policy(path)) is not None:
                readable[path.stem] = stored
    return readable


def _policy(path: Path) -> dict | None:
    try:
        stored = json.loads(path.read_text(encoding="utf-8")) if path.stat().st_size <= MOST_POLICY else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(stored, dict) or not {"layers", "heads", "policy"} <= set(stored):
        return None
    return stored if isinstance(stored["policy"], list) else None
