"""Benchmark scores as a stored study: every task with its own prompts, and with examples that make the prompts long."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analysis.benchmarks import FOLDER, TASKS, here
from analysis.claims import Claim, Comparison
from analysis.commands.probes import Benchmark
from analysis.errors import BadSetting
from analysis.metrics.proportions import share_difference
from analysis.studies.benchmarks.benchmark import benchmark
from analysis.studies.benchmarks.scores import Coded, answers
from analysis.studies.context import Context
from analysis.studies.ready.candidates import candidates
from analysis.studies.stored.comparisons import edges
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Setting, Study, option
from analysis.studies.text.held_out import chosen, sample_windows

# Whose prompts: the task's own, and with examples that make them long.
OWN, LONG = "own", "long"
ASKED = {  # task -> of each kind of prompts (examples in it, questions)
    "hellaswag": {OWN: (0, 100), LONG: (8, 40)},
    "arc_easy": {OWN: (0, 100), LONG: (8, 40)},
    "arc_challenge": {OWN: (0, 100), LONG: (8, 40)},
    "piqa": {OWN: (0, 100), LONG: (8, 40)},
    "lambada": {OWN: (0, 100), LONG: (8, 40)},
    "truthfulqa": {OWN: (0, 40), LONG: (4, 12)},
    "gsm8k": {OWN: (0, 4), LONG: (8, 8)},
    "boolq": {OWN: (0, 40), LONG: (4, 20)},
    "winogrande": {OWN: (0, 100), LONG: (8, 40)},
}
# Of Focus in the paper; the same for the window without groups.
WINDOW = 128
METHODS = (
    {"name": "dense", "settings": {}},
    {"name": "focus", "settings": {"window": WINDOW}},
    {"name": "streaming_llm", "settings": {"window": WINDOW}},
    {"name": "focus", "settings": {}},
)
PROMPTS = {OWN: "With the tasks' own prompts", LONG: "With examples in the prompt"}
NOTES = (
    "Focus reads with the paper's window of 128 tokens, and with the window that its router was trained for; "
    "StreamingLLM is the window of 128 without groups. All read the same questions, and every difference is paired.",
    "A prompt that fits what a method reads whole is dense attention, so those stand apart: how many there are, and by "
    "how much the log-probability of their right answer changes at most.",
    "Small samples of a small model: a score near chance, or near 0, says nothing about a method. What the method "
    "changes shows in the log-probability of the right answer first.",
)
DENSE = "Dense"  # its label
# Questions of each task whose right answers' log-probabilities are kept, to be held against again.
CHECKED = 2


class Benchmarks(Study):
    """Scores of METHODS on the tasks that have a folder of files, each as ASKED. Nothing of the questions is stored,
    only scores, counts and log-probabilities: those of items that fit what a method reads whole stand apart, which are
    dense attention."""

    tables = ("rows", "pooled")

    corpus: str = option("", "a folder with one folder of files for each task (default: models_cache/benchmarks)")
    rows: str | None = option(None, "only these tasks, separated by commas (default: those whose files are there)")
    router: str = option("k8-top1", "router of Focus, named by its groups and memberships, such as k8-top1")

    def measure(self, run: Setting) -> dict:
        data = Path(self.corpus) if self.corpus else FOLDER
        tasks = chosen(self.rows, list(TASKS), "task") if self.rows else here(data)
        if not tasks:
            raise BadSetting(
                f"No task has its files in {data}: put them there, one folder for each of {', '.join(TASKS)}."
            )
        methods, parts, rows, notes = _methods(self.router), [], [], [*NOTES]
        labels = [candidate.label for candidate in candidates(run.context, run.lm, methods)]
        wanted = [(task, prompts, *ASKED[task][prompts]) for task in tasks for prompts in (OWN, LONG)]
        for place, (task, prompts, shots, items) in enumerate(wanted):
            files = [(path.name, path.stat().st_size) for path in sorted((data / task).glob("*"))]
            context = run.context.within(place / len(wanted), 1 / len(wanted))
            arguments = {"model": self.model, "data": self.corpus, "shots": shots, "items": items, "seed": self.seed}
            make = partial(_part, context, task, prompts, methods, arguments)
            decides = [task, shots, items, labels, self.router, self.seed, files]
            parts.append(run.part(f"benchmarks-{task}-{shots}", decides, make))
            rows += parts[-1]["rows"]
            notes += parts[-1]["notes"]
        missing = [TASKS[name].title for name in TASKS if name not in tasks]
        counts = [row["items"] for row in rows]
        notes += [f"Not scored: {', '.join(missing)}; their files are not in the folder."] if missing else []
        return {
            "rows": rows,
            "pooled": [_pooled(parts, label, prompts) for prompts in (OWN, LONG) for label in labels],
            "first": {f"{part['task']}, {part['shots']}": part["first"] for part in parts},
            "notes": notes,
            "protocol": {
                "tokens": sum(part["tokens"] for part in parts),
                "router": self.router,
                "set_up": "A",
                "kernel": "each method's own kernel where it has one",
                "harness": parts[0]["harness"],
                "corpus": f"the first {min(counts)} to {max(counts)} questions of {len(tasks)} tasks",
                "files": {part["task"]: part["files"] for part in parts},
            },
        }

    def sample(self, run: Setting, numbers: dict) -> dict:
        size = min(200, run.lm.max_positions)
        first, second = sample_windows(run.lm, size, 2).tolist()
        text = Coded((tuple(first), tuple(first[:-4] + second[:4])), (4, 4), 0, size - 4)
        methods = candidates(run.context, run.lm, _methods(self.router))
        return {method.label: [log for log, _ in answers(run.lm, method.method, text)] for method in methods}

    def part(self, run: Setting, numbers: dict) -> dict:
        task, shots = next(iter(numbers["first"])).split(", ")
        again = first_again(numbers, task, int(shots), Path(self.corpus), context=run.context)
        return {"first": {f"{task}, {shots}": {label: now for label, (_, now) in again.items()}}}

    @staticmethod
    def shown(numbers: dict) -> dict:
        parts = []
        for row in numbers["pooled"]:
            if row["method"] == f"Focus, window {WINDOW}":
                change = Comparison.of(row, "difference", unit="points", versus="dense attention")
                part = f"{PROMPTS[row['prompts']]} {row['longer']:.0%} of {row['items']} items are longer than the "
                parts.append(
                    f"{part}window of {WINDOW}, and Focus is {Claim(change, lower='worse', higher='better').text()}."
                )
        return presented("benchmarks", " ".join(parts), None, *numbers["notes"])


def _methods(router: str) -> list[dict]:
    return [method | ({"router": router} if method["name"] == "focus" else {}) for method in METHODS]


def _part(context: Context, task: str, prompts: str, methods: list[dict], given: dict) -> dict:
    """What one run of `benchmark` leaves: its rows of the metric that counts, and values of every item by method."""
    scored = benchmark(Benchmark(tasks=[task], methods=methods, **given), context=context)
    metric, table, numbers = TASKS[task].metric, scored.tables["items"], scored.numbers
    by_method = {label: table[table["method"] == label] for label in dict.fromkeys(table["method"])}
    dense = by_method[DENSE]["gold"].to_numpy()
    rows = [row for row in numbers["rows"] if row["metric"] == metric]
    items = {}
    for row in rows:
        scores = by_method[row["method"]]
        reach = np.inf if row["window"] is None else row["window"]
        items[row["method"]] = {
            "right": scores[metric].tolist(),
            "moved": np.abs(scores["gold"].to_numpy() - dense).tolist(),
            "fits": (scores["tokens"] <= reach).tolist(),
        }
        row |= {"prompts": prompts} | _within_and_beyond(items[row["method"]])
    return {
        "task": task,
        "prompts": prompts,
        "shots": rows[0]["shots"],
        "rows": rows,
        "items": items,
        "first": {label: scores["gold"][:CHECKED].tolist() for label, scores in by_method.items()},
        "notes": numbers["notes"],
        "files": numbers["tasks"][task]["files"],
        "tokens": numbers["protocol"]["tokens"],
        "harness": numbers["protocol"]["harness"],
    }


def _within_and_beyond(items: dict) -> dict:
    """Items that fit what is read whole, and the others, with how far each kind is from dense: at most, and in the
    mean."""
    fits, moved = np.array(items["fits"], dtype=bool), np.array(items["moved"])
    return {
        "within": int(fits.sum()),
        "within_moved": float(moved[fits].max()) if fits.any() else None,
        "beyond": int((~fits).sum()),
        "beyond_moved": float(moved[~fits].mean()) if (~fits).any() else None,
    }


def _pooled(parts: list[dict], label: str, prompts: str) -> dict:
    """A method over the items of all tasks."""
    tasks = [part["items"] for part in parts if part["prompts"] == prompts]
    items: dict[str, list] = {}
    for name in ("right", "moved", "fits"):
        items[name] = [value for task in tasks for value in task[label][name]]
    row: dict[str, Any] = {"method": label, "prompts": prompts, "tasks": len(tasks), "items": len(items["right"])}
    row |= _within_and_beyond(items)
    row |= {"longer": row["beyond"] / row["items"], "value": float(np.mean(items["right"]))}
    row |= edges("difference", share_difference(items["right"], sum((task[DENSE]["right"] for task in tasks), [])))
    return row | ({"difference_low": None, "difference_high": None} if label == DENSE else {})


def first_again(stored: dict, task: str, shots: int, data: Path, *, context: Context) -> dict[str, tuple]:
    """The right answers' log-probabilities of a task's first questions, from its files: method -> (stored, now)."""
    protocol, first = stored["protocol"], stored["first"][f"{task}, {shots}"]
    arguments = {name: protocol[name] for name in ("model", "seed")} | {"shots": shots, "items": CHECKED}
    again = _part(context, task, OWN, _methods(protocol["router"]), arguments | {"data": str(data)})["first"]
    return {label: (values, again[label]) for label, values in first.items()}
