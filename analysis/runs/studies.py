"""Studies and policies: the JSON files in a model's fitted state, read back without torch."""

import json
import re
from pathlib import Path
from typing import NoReturn

from analysis.places import plain_name
from analysis.runs.store import RunStore
from analysis.studies.registry import STORED, version_of

MOST_BYTES = 50_000_000  # a larger file is no study
MOST_POLICY = 4_000_000  # and a larger one than this no policy
POLICY_FORMAT = 1  # of a policy as JSON, see docs/policy.schema.json
POLICY_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
NEEDED = {  # beginning of a study's name -> what its pages cannot do without, beside `sentence` and `protocol`
    "dominance": ("rows", "curves", "even", "chance"),
    "causality": ("rows", "literal_minus_causal", "group_agreement", "prediction_agreement"),
}
GRID = ("rows", "columns", "panels")  # of every study that is drawn as small multiples


def study_folders(store: RunStore, model: str, revision: str) -> list[Path]:
    """Where studies of a model lie: the store's own state, then what came with the program or the command line."""
    model = plain_name(model)
    slug = re.sub(r"[^\w.-]+", "--", model).strip("-.")
    own = [store.root / "fitted" / slug / revision / "studies"]
    if store.examples is None:
        return own
    bundled = store.examples.parent
    return [*own, (bundled if model == "demo" else bundled.parent / slug / revision) / "studies"]


def study_files(folders: list[Path]) -> list[Path]:
    """The files of the studies in some folders, of each name the first."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.json")):
            found.setdefault(path.stem, path)
    return list(found.values())


def other_weights(told: dict, revision: str | None) -> bool:
    """Whether the numbers of a stored study, by its protocol `told`, are of other weights than those of `revision`: the
    model was trained on or replaced since. A study that trains from nothing reads no weights."""
    name = str(told.get("verb", "")).removeprefix("study ")
    return (name not in STORED or STORED[name].weights) and told.get("revision") != revision


def other_version(told: dict) -> bool:
    """Whether a stored study, by its protocol `told`, would give other numbers by now."""
    return told.get("version") != version_of(str(told.get("verb", "")).removeprefix("study "))


def study(path: Path) -> tuple[dict | None, str]:
    """The numbers of a stored study and "", or None and one sentence that says what is wrong with its file."""
    try:
        return _whole(path), ""
    except (OSError, ValueError) as error:
        return None, f"The stored study {path.stem[:60]} is left out ({error}): run its command again."


def policies(state_folders: list[Path]) -> dict[str, dict]:
    """name -> the JSON of every readable policy, of each name that of the first folder, fitting or not."""
    found = {}
    for folder in state_folders:
        for path in sorted((folder / "csa").glob("*.json")):
            if POLICY_NAME.fullmatch(path.stem) and path.stem not in found and (stored := _policy(path)) is not None:
                found[path.stem] = stored
    return found


def _whole(path: Path) -> dict:
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"its file has {path.stat().st_size / 1e6:,.0f} MB")
    try:
        stored = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError("its file is damaged") from error
    if not isinstance(stored, dict):
        raise ValueError("its file is damaged")
    needed = next((keys for name, keys in NEEDED.items() if path.stem.startswith(name)), ())
    needed = ("sentence", "protocol", *needed, *(GRID if "panels" in stored else ()))
    if lacking := [name for name in needed if name not in stored]:
        raise ValueError(f"it has no {lacking[0]}")
    if not isinstance(stored["sentence"], str) or not isinstance(stored["protocol"], dict):
        raise ValueError("its file is damaged")
    return stored


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"its file holds {word}")


def _policy(path: Path) -> dict | None:
    try:
        stored = json.loads(path.read_text(encoding="utf-8")) if path.stat().st_size <= MOST_POLICY else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(stored, dict) or not {"layers", "heads", "policy"} <= set(stored):
        return None
    return stored if isinstance(stored["policy"], list) else None
