"""Hand-made files of two questions for every benchmark, in the formats the benchmarks are published in."""

import csv
import json
from pathlib import Path

PIQA = [{"goal": "Count.", "sol1": "7", "sol2": "777777"}, {"goal": "Count on.", "sol1": "7", "sol2": "777777"}]
HELLASWAG = {"activity_label": "Rowing", "ctx_a": "A man sits.", "ctx_b": "he", "endings": ["rows", "eats", "a", "b"]}
ARC = {"question": {"stem": "What melts?", "choices": [{"text": "ice", "label": "A"}, {"text": "stone", "label": "B"}]}}
ARC_READY = {"query": "Question: What burns?\nAnswer:", "choices": ["wood", "water"], "gold": 0}
GSM8K = {"question": "What is 1 + 1?", "answer": "1 + 1 = <<1+1=2>>2\n#### 2"}


def lines(path: Path, records: list[dict]) -> None:
    """Write records as JSON lines, their folder made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def piqa(folder: Path, labels: str = "0\n1\n", records: list[dict] = PIQA) -> Path:
    """PIQA, its labels apart: the first question's right answer is the short one, the second's the long one."""
    lines(folder / "piqa" / "valid.jsonl", records)
    (folder / "piqa" / "valid-labels.lst").write_text(labels)
    return folder


def every(folder: Path) -> Path:
    """Two questions of all nine tasks."""
    piqa(folder)
    lines(folder / "hellaswag" / "hellaswag_val.jsonl", [HELLASWAG | {"label": 0}, HELLASWAG | {"label": "1"}])
    lines(folder / "arc_easy" / "test.jsonl", [ARC_READY, ARC_READY | {"gold": 1}])
    lines(folder / "arc_challenge" / "ARC-Challenge-Test.jsonl", [ARC | {"answerKey": "A"}, ARC | {"answerKey": "B"}])
    lines(
        folder / "lambada" / "test.jsonl",
        [{"text": "the sea was calm"}, {"context": "he saw the", "continuation": "sea"}],
    )
    lines(folder / "gsm8k" / "test.jsonl", [GSM8K, GSM8K])
    lines(folder / "gsm8k" / "train.jsonl", [GSM8K] * 3)
    lines(
        folder / "boolq" / "dev.jsonl",
        [{"question": "is it", "passage": "It is.", "answer": answer} for answer in (True, False)],
    )
    sentence = {"sentence": "The cup was in the box, so _ was full.", "option1": "box", "option2": "cup"}
    lines(folder / "winogrande" / "dev.jsonl", [sentence | {"answer": "1"}, sentence | {"answer": "2"}])
    (folder / "truthfulqa").mkdir()
    with open(folder / "truthfulqa" / "TruthfulQA.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["Question", "Best Answer", "Correct Answers", "Incorrect Answers"])
        writer.writerows([[f"Is it {word}?", "No", "No; Not at all", "Yes; Always"] for word in ("so", "not")])
    return folder
