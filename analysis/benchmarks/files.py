"""Documents from a task's folder: what is asked about, and what examples are drawn from."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from analysis.benchmarks.tasks import Record, Task, lines
from analysis.errors import BadSetting

SUFFIXES = (".jsonl", ".json", ".csv", ".txt")  # in this order: a plain text says least about itself
ORDER = ("test", "validation", "train")  # of the files that are asked about, the first there is
SPLITS = {"test": r"test", "validation": r"val|dev", "train": r"train"}
MOST_BYTES = 200_000_000


def documents(task: Task, name: str, folder: Path) -> tuple[list[dict], list[dict], list[str]]:
    """(what is asked, what examples are drawn from, the files' names). Examples are of another split where there is
    one, else of the same documents: then a prompt leaves its own out. Errors: BadSetting."""
    place = folder / name
    if not place.is_dir():
        raise BadSetting(
            f"{task.title} needs its files in a folder called {name} in {folder}: put them there, in the format they "
            "were published in."
        )
    found = {}
    for way in task.ways:
        for path in sorted(place.iterdir(), key=lambda path: (SUFFIXES.index(path.suffix)
                           if path.suffix in SUFFIXES else len(SUFFIXES), path.name)):  # fmt: skip
            split = _split(path.name)
            if path.suffix in SUFFIXES and split not in found and (made := _read(path, way)):
                found[split] = made, path.name
        if found:
            break
    asked = next((split for split in ORDER if split in found), None)
    if asked is None:
        raise BadSetting(f"No file in {place} has the fields of {task.title}: put in the files as they were published.")
    shown = next((split for split in reversed(ORDER) if split in found and split != asked), asked)
    return found[asked][0], found[shown][0], list(dict.fromkeys([found[asked][1], found[shown][1]]))


def _split(name: str) -> str:
    return next((split for split, words in SPLITS.items() if re.search(words, name.lower())), "test")


def _read(path: Path, way: Callable[[Record], dict]) -> list[dict]:
    """The documents of a file, or none where its records have other fields. Errors: BadSetting for a damaged one."""
    if path.stat().st_size > MOST_BYTES:
        raise BadSetting(
            f"{path.name} has {path.stat().st_size / 1e6:,.0f} MB and at most {MOST_BYTES / 1e6:,.0f} are read."
        )
    try:
        return [way(record) for record in _labelled(path)]
    except (KeyError, TypeError, AttributeError, IndexError):
        return []
    except ValueError as error:
        raise BadSetting(f"{path.name} is damaged ({str(error)[:80]}): put the file in as it was published.") from error


def _labelled(path: Path) -> Iterator[Record]:
    """The records of a file, each with its line of `NAME-labels.lst` where labels lie apart, as those of PIQA do."""
    records = lines(path.read_text(encoding="utf-8-sig"), path.suffix)
    apart = path.with_name(f"{path.stem}-labels.lst")
    if not apart.is_file():
        yield from records
        return
    labels = apart.read_text(encoding="utf-8").split()
    for record, label in zip(records, labels, strict=True):
        yield {**record, "label": label}
