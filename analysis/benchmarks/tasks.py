"""The tasks that are read from local files, and how a record of each format becomes a document of the harness."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

Record = Mapping[str, object]


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


def lines(text: str, suffix: str) -> Iterator[Record]:
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


def _hellaswag(record: Record) -> dict:
    names = ("activity_label", "ctx_a", "ctx_b", "endings")
    return {name: record[name] for name in names} | {"label": str(record["label"])}


def _arc(record: Record) -> dict:
    """As the dataset's own files have it, or as its loaders flatten it."""
    question, choices = record["question"], record.get("choices")
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


def _piqa(record: Record) -> dict:
    return {name: record[name] for name in ("goal", "sol1", "sol2")} | {"label": int(record["label"])}


def _lambada(record: Record) -> dict:
    text = record["text"] if "text" in record else f"{record['context']} {record['continuation']}"
    return {"text": str(text)}


def _lambada_line(record: Record) -> dict:
    return {"text": str(record["line"])}


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


def _gsm8k(record: Record) -> dict:
    return {name: str(record[name]) for name in ("question", "answer")}


def _boolq(record: Record) -> dict:
    label = record["label"] if "label" in record else record["answer"]
    return {"passage": record["passage"], "question": record["question"], "label": int(label)}


def _winogrande(record: Record) -> dict:
    return {name: record[name] for name in ("sentence", "option1", "option2")} | {"answer": str(record["answer"])}


TASKS = {
    "hellaswag": Task("HellaSwag", "hellaswag", "hellaswag", "acc_norm", 0.25, (_hellaswag,)),
    "arc_easy": Task("ARC-Easy", "arc_easy", "arc", "acc_norm", 0.25, (_arc, _arc_ready)),
    "arc_challenge": Task("ARC-Challenge", "arc_challenge", "arc", "acc_norm", 0.25, (_arc, _arc_ready)),
    "piqa": Task("PIQA", "piqa", "piqa", "acc_norm", 0.5, (_piqa,)),
    "lambada": Task("LAMBADA", "lambada_openai", "lambada", "acc", None, (_lambada, _lambada_line)),
    "truthfulqa": Task("TruthfulQA MC1", "truthfulqa_mc1", "truthfulqa", "acc", None, (_truthful, _truthful_choices)),
    "gsm8k": Task("GSM8K", "gsm8k", "gsm8k", "exact_match", None, (_gsm8k,), 8),
    "boolq": Task("BoolQ", "boolq", "super_glue/boolq", "acc", 0.5, (_boolq,)),
    "winogrande": Task("Winogrande", "winogrande", "winogrande", "acc", 0.5, (_winogrande,)),
}
