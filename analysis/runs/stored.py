"""A stored study, read from its JSON file: the one reader for every study that was ever stored, without torch.

A file holds the numbers of a study under the names that the study gave them, and how it is shown. Files of earlier
programs lack some of what is here; every field that may be missing has a default.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from json import JSONDecodeError
from pathlib import Path
from typing import Any, Self

from ..declaration.canonical import parsed
from ..files import read_json
from ..places import plain_name
from ..studies.registry import STORED, version_of
from .store import RunStore

# A larger file is no study.
MOST_BYTES = 50_000_000
# Bytes; a larger file is no policy.
MOST_POLICY = 4_000_000
# Of a policy as JSON, see docs/policy.schema.json.
POLICY_FORMAT = 1
POLICY_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
NEEDED = {  # beginning of a study's name -> numbers that its page cannot do without
    "dominance": ("rows", "curves", "even", "chance"),
    "causality": ("rows", "literal_minus_causal", "group_agreement", "prediction_agreement"),
}


@dataclass(frozen=True)
class Column:
    """A column of the rows."""

    name: str  # its key in a row
    label: str  # what a reader calls it
    unit: str = ""  # `share` is shown in per cent


@dataclass(frozen=True)
class Series:
    """One line of a panel, as long as its x values."""

    name: str
    y: list  # None where there is no value
    # Its 95% interval, where there is one.
    low: list | None = None
    high: list | None = None
    # Numbers that a paper prints, on another model and other text.
    paper: bool = False


@dataclass(frozen=True)
class Panel:
    """One small chart of a study."""

    title: str
    # The column that its x values are of.
    x: str
    x_label: str
    x_values: list
    y_label: str
    series: list[Series]
    # The values are read as per cent.
    share: bool = False
    up: str = ""  # "low": low values are drawn high
    # The interval of each x value, where there is one.
    x_low: list | None = None
    x_high: list | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """From its plain data."""
        return cls(**{**stored, "series": [Series(**line) for line in stored["series"]]})


@dataclass(frozen=True)
class StudyProtocol:
    """How a study was measured. A study may add facts of its own, which stand in the file alone."""

    verb: str  # `study NAME`
    model: str = ""
    revision: str = ""  # of the model's weights
    # Of the study; raised when the same sizes would give other numbers.
    version: int | None = None
    command: str = ""  # that measures it again
    date: str = ""
    seed: int | None = None
    dtype: str = ""
    device: str = ""
    kernel: str = ""
    corpus: str | None = None  # the texts, in words
    window: int | None = None  # tokens of a window of text
    unit: str = ""  # what the intervals are over
    # How many of them; None where there are no intervals.
    units: int | None = None
    steps: int | None = None  # of training
    # Its name, where a study reads with one.
    router: str | None = None
    sizes: dict[str, Any] = field(default_factory=dict)  # every option of the study
    # The options that were not the defaults.
    asked: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)  # package -> version

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """From its plain data, whatever else stands there."""
        names = {about.name for about in fields(cls)}
        return cls(**{"verb": ""} | {name: value for name, value in stored.items() if name in names})

    @property
    def study(self) -> str:
        """The name of the study, as its command has it."""
        return self.verb.removeprefix("study ")

    def other_weights(self, revision: str | None) -> bool:
        """Whether the numbers are of other weights than those of `revision`: the model was trained on or replaced
        since. A study that trains from nothing reads no weights."""
        return (self.study not in STORED or STORED[self.study].weights) and self.revision != revision

    @property
    def other_version(self) -> bool:
        """Whether the study would give other numbers by now."""
        return self.version != version_of(self.study)


@dataclass(frozen=True)
class StoredStudy:
    """A stored study: what it claims, how it is drawn, how it was made, and all of its numbers."""

    sentence: str  # what it claims
    protocol: StudyProtocol
    # Of its rows; empty where a page has columns of its own.
    columns: list[Column]
    panels: list[Panel]
    notes: list[str]
    # Its main table, under the keys of its columns.
    rows: list[dict[str, Any]]
    # Everything that is stored, under the names that the study gave it.
    numbers: dict[str, Any]

    @classmethod
    def of(cls, numbers: dict[str, Any]) -> Self:
        """From what its file holds."""
        return cls(
            numbers["sentence"],
            StudyProtocol.of(numbers["protocol"]),
            [Column(**about) for about in numbers.get("columns", ())],
            [Panel.of(about) for about in numbers.get("panels", ())],
            list(numbers.get("notes") or ()),
            numbers.get("rows", []),
            numbers,
        )


def read_study(path: Path) -> tuple[StoredStudy | None, str]:
    """A stored study and "", or None and one sentence that says what is wrong with its file."""
    try:
        return StoredStudy.of(_numbers(path)), ""
    except (OSError, ValueError, TypeError, KeyError) as error:
        why = error if isinstance(error, (OSError, ValueError)) else "its file is damaged"
        return None, f"The stored study {path.stem[:60]} is left out ({why}): run its command again."


def _numbers(path: Path) -> dict[str, Any]:
    """What the file holds. Errors: ValueError, whose words complete a sentence."""
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"its file has {path.stat().st_size / 1e6:,.0f} MB")
    try:
        numbers = parsed(path.read_text(encoding="utf-8"))
    except (JSONDecodeError, RecursionError) as error:
        raise ValueError("its file is damaged") from error
    if not isinstance(numbers, dict):
        raise ValueError("its file is damaged")
    needed = next((keys for name, keys in NEEDED.items() if path.stem.startswith(name)), ())
    drawn = ("rows", "columns", "panels") if "panels" in numbers else ()
    if lacking := [name for name in ("sentence", "protocol", *needed, *drawn) if name not in numbers]:
        raise ValueError(f"it has no {lacking[0]}")
    if not isinstance(numbers["sentence"], str) or not isinstance(numbers["protocol"], dict):
        raise ValueError("its file is damaged")
    return numbers


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
        stored = read_json(path) if path.stat().st_size <= MOST_POLICY else None
    except OSError:
        return None
    if stored is None or not {"layers", "heads", "policy"} <= stored.keys():
        return None
    return stored if isinstance(stored["policy"], list) else None
