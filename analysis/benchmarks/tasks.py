"""The tasks that are read from local files: what is asked about, what examples are drawn from, and how a record of each
format becomes a document of the harness."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..errors import BadSetting

Record = Mapping[str, Any]
# In this order: a plain text says least about itself.
SUFFIXES = (".jsonl", ".json", ".csv", ".txt")
# Of the files that are asked about, the first there is.
ORDER = ("test", "validation", "train")
SPLITS = {"test": r"test", "validation": r"val|dev", "train": r"train"}
MOST_BYTES = 200_000_000


@dataclass(frozen=True)
class Task:
    """`harness`: its name in lm-evaluation-harness, in the folder `place` of its tasks; `metric` is the one the papers
    print; `chance`: of a guess, None where it is not one number; `shots`: examples in a prompt, unless asked otherwise.
    `ways`: functions that turn a record of one format into the harness's document, or raise KeyError for another one.
    """

    title: str
    harness: str
    place: str
    metric: str
    chance: float | None
    ways: tuple[Callable[[Record], dict], ...]
    shots: int = 0


class Filed(Protocol):
    """Something that is read from files: its title, and what makes a document of a record of each format."""

    @property
    def title(self) -> str: ...

    @property
    def ways(self) -> tuple[Callable[[Any], Any], ...]: ...


def documents(task: Filed, name: str, folder: Path) -> tuple[list[Any], list[Any], list[str]]:
    """(what is asked, what examples are drawn from, the files' names). Examples are of another split where there is
    one, else of the same documents: then a prompt leaves its own out. Errors: BadSetting."""
    place = folder / name
    if not place.is_dir():
        raise BadSetting(
            f"{task.title} needs its files in a folder called {name} in {folder}: put them there, in the format they "
            "were published in."
        )
    paths = [path for path in place.iterdir() if path.suffix in SUFFIXES]
    splits = {}
    for way in task.ways:
        for path in sorted(paths, key=lambda path: (SUFFIXES.index(path.suffix), path.name)):
            split = next((split for split, words in SPLITS.items() if re.search(words, path.name.lower())), "test")
            if split not in splits and (records := _read(path, way)):
                splits[split] = records, path.name
        if splits:
            break
    asked_of = next((split for split in ORDER if split in splits), None)
    if asked_of is None:
        raise BadSetting(f"No file in {place} has the fields of {task.title}: put in the files as they were published.")
    drawn_from = next((split for split in reversed(ORDER) if split in splits and split != asked_of), asked_of)
    (questions, name), (examples, other_name) = splits[asked_of], splits[drawn_from]
    return questions, examples, list(dict.fromkeys([name, other_name]))


def _read(path: Path, way: Callable[[Any], Any]) -> list[Any]:
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
    records = _lines(path.read_text(encoding="utf-8-sig"), path.suffix)
    apart = path.with_name(f"{path.stem}-labels.lst")
    if not apart.is_file():
        yield from records
        return
    labels = apart.read_text(encoding="utf-8").split()
    for record, label in zip(records, labels, strict=True):
        yield {**record, "label": label}


def _lines(text: str, suffix: str) -> Iterator[Record]:
    """The records of a file: JSON lines, CSV with a header, one JSON list, or plain lines as `text`. Raises ValueError
    for a damaged one."""
    if suffix == ".csv":
        yield from csv.DictReader(io.StringIO(text), strict=True)
    elif suffix == ".json":
        yield from json.loads(text)
    elif suffix == ".txt":
        yield from ({"line": line} for line in text.splitlines() if line.strip())
    else:
        yield from (json.loads(line) for line in text.splitlines() if line.strip())


def _taken(*names: str, **converted: Callable) -> Callable[[Record], dict]:
    """What takes these fields of a record as they are, and makes those of a value."""
    return lambda record: {
        **{name: record[name] for name in names},
        **{name: make(record[name]) for name, make in converted.items()},
    }


def _lambada(record: Record) -> dict:
    text = record["text"] if "text" in record else f"{record['context']} {record['continuation']}"
    return {"text": str(text)}


def _arc(record: Record) -> dict:
    """As the dataset's own files have it, or as its loaders flatten it."""
    question: Any = record["question"]
    choices: Any = record.get("choices")
    if isinstance(question, Mapping):
        question, choices = question["stem"], question["choices"]
    if isinstance(choices, list):
        choices = {name: [choice[name] for choice in choices] for name in ("text", "label")}
    labels = list(choices["label"])
    return {"question": question, "choices": {**choices, "label": labels}, "answerKey": str(record["answerKey"])}


def _arc_ready(record: Record) -> dict:
    """A prompt that is written already, with its choices and the place of the right one."""
    query, choices = str(record["query"]), list(record["choices"])
    question = query.removeprefix("Question: ").removesuffix("\nAnswer:")
    labels = [chr(ord("A") + place) for place in range(len(choices))]
    return {
        "question": question,
        "choices": {"text": choices, "label": labels},
        "answerKey": labels[int(record["gold"])],
    }


def _truthful(record: Record) -> dict:
    """The question with its best answer first; wrong answers are parted by semicolons in the authors' own table."""
    wrong = [part.strip() for part in str(record["Incorrect Answers"]).split(";") if part.strip()]
    choices = [str(record["Best Answer"]).strip(), *wrong]
    labels = [1] + [0] * len(wrong)
    return {"question": record["Question"], "mc1_targets": {"choices": choices, "labels": labels}}


def _truthful_choices(record: Record) -> dict:
    targets = sorted(record["mc1_targets"].items(), key=lambda pair: -pair[1])
    choices, labels = ([pair[place] for pair in targets] for place in (0, 1))
    return {"question": record["question"], "mc1_targets": {"choices": choices, "labels": labels}}


HELLASWAG = _taken("activity_label", "ctx_a", "ctx_b", "endings", label=str)
PIQA = _taken("goal", "sol1", "sol2", label=int)
WINOGRANDE = _taken("sentence", "option1", "option2", answer=str)
# As in SuperGLUE, or as its own files have it.
BOOLQ: tuple[Callable[[Record], dict], ...] = (
    _taken("passage", "question", label=int),
    lambda record: {"passage": record["passage"], "question": record["question"], "label": int(record["answer"])},
)
TASKS = {
    "hellaswag": Task("HellaSwag", "hellaswag", "hellaswag", "acc_norm", 0.25, (HELLASWAG,)),
    "arc_easy": Task("ARC-Easy", "arc_easy", "arc", "acc_norm", 0.25, (_arc, _arc_ready)),
    "arc_challenge": Task("ARC-Challenge", "arc_challenge", "arc", "acc_norm", 0.25, (_arc, _arc_ready)),
    "piqa": Task("PIQA", "piqa", "piqa", "acc_norm", 0.5, (PIQA,)),
    "lambada": Task(
        "LAMBADA", "lambada_openai", "lambada", "acc", None, (_lambada, lambda record: {"text": str(record["line"])})
    ),
    "truthfulqa": Task("TruthfulQA MC1", "truthfulqa_mc1", "truthfulqa", "acc", None, (_truthful, _truthful_choices)),
    "gsm8k": Task("GSM8K", "gsm8k", "gsm8k", "exact_match", None, (_taken(question=str, answer=str),), 8),
    "boolq": Task("BoolQ", "boolq", "super_glue/boolq", "acc", 0.5, BOOLQ),
    "winogrande": Task("Winogrande", "winogrande", "winogrande", "acc", 0.5, (WINOGRANDE,)),
}
