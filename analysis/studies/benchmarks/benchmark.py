"""Benchmarks: what a method does to the scores of lm-evaluation-harness's tasks, item by item against dense."""

import importlib.metadata
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from pandas import DataFrame

from ...answer import Answer, doc, record
from ...benchmarks import FOLDER, SET_UPS, TASKS
from ...claims import signed
from ...commands import commandline
from ...commands.probes import Benchmark
from ...errors import BadSetting, TooLarge
from ...metrics.intervals import BLOCKS, interval
from ...metrics.proportions import share, share_difference
from ...models import Model
from ..context import Context, protocol
from ..ready.candidates import Candidate, beside_dense, looked_ahead
from .scores import Coded, answers, code, generated, gold, width
from .tasks import Asked, asked

USUAL = ("hellaswag", "arc_easy", "piqa", "lambada", "truthfulqa", "gsm8k")
# Metrics that are no share of right answers.
NOT_SHARES = ("perplexity",)


@record
class BenchmarkRow:
    """One metric of one task under one method. Intervals are 95%; a difference is None for dense itself."""

    task: str
    title: str
    method: str = doc("label of the method")
    name: str = doc("its name")
    shots: int = doc("examples in a prompt")
    reads_future: bool = doc("whether later tokens decide over earlier ones")
    items: int = doc("questions that were asked")
    of: int = doc("questions there are")
    does_not_fit: int = doc("those left out because they are longer than the model reads")
    window: int | None = doc("tokens that the method reads whole")
    longer_than_window: float | None = doc("share of the items that are longer")
    metric: str
    value: float
    gold: float = doc("log-probability of the right answer in nats, mean")
    stderr: float | None = doc("standard error of a share")
    value_low: float | None = doc("Wilson interval of a share")
    value_high: float | None
    difference: float | None = doc("share minus that of dense, paired (Bonett and Price)")
    difference_low: float | None
    difference_high: float | None
    gold_difference: float | None = doc("gold minus that of dense, nats, interval over items")
    gold_difference_low: float | None
    gold_difference_high: float | None
    gold_difference_state: str | None = doc("what that interval rests on", default=None)


@record
class TaskFiles:
    """Where a task came from."""

    title: str
    files: list[str] = doc("names of the files that were read")
    shots: int = doc("examples in a prompt")


@record
class Benchmarked(Answer):
    """Scores of tasks under methods, item by item against dense."""

    rows: list[BenchmarkRow] = doc("one per task, method and metric", row=BenchmarkRow)
    sentences: list[str] = doc("one per task and method, of the metric that the papers print")
    sentence: str = doc("all of them")
    tasks: dict[str, TaskFiles] = doc("name -> where it came from")
    notes: list[str] = doc("what was left out, and the set-up")
    items: DataFrame = doc("one row per item and method: task, method, item, tokens, gold, and every metric's value")


def benchmark(request: Benchmark, *, context: Context) -> Benchmarked:
    """Scores of tasks under methods as in `evaluate`, dense always first, on the same items. A prompt that does not fit
    the model with its answer is left out and counted; a task of which none fits is refused. `question`: the set-ups of
    `analysis.benchmarks.SET_UPS`. Errors: BadSetting, TooLarge, NotFitted, before a pass."""
    if context.browser and request.data:
        raise BadSetting("In a browser no folder can be named: the files lie in models_cache/benchmarks.")
    dense_question = request.question == "dense"
    lm = context.model(request.model)
    listed = beside_dense(context, lm, request.methods)
    context.progress(0.0, "reading the tasks")
    folder = Path(request.data) if request.data else FOLDER
    all_tasks = [
        asked(name, folder, request.shots, request.items, request.seed)
        for name in dict.fromkeys(request.tasks or USUAL)
    ]
    fitting = [with_room(lm, task) for task in all_tasks]
    rows: list[BenchmarkRow] = []
    table: list[dict[str, Any]] = []
    done, total = 0, sum(len(coded) for _, coded, _ in fitting) * len(listed)
    for task, coded, left_out in fitting:
        dense = None
        for way in listed:
            part = context.within(done / total, len(coded) / total, f"{task.title}, {way.label}")
            counted, logs = _ask(part, lm, way, task, coded, dense_question)
            done += len(coded)
            values, right = task.values(counted), gold(logs, task.items)
            rows += [_row(task, way, coded, left_out, metric, values, right, dense) for metric in values]
            dense = dense or (values, right)
            for number, text in enumerate(coded):
                item = {"task": task.name, "method": way.label, "item": number, "tokens": text.longest}
                of_item = {metric: values[metric][number] for metric in values}
                table.append(item | {"gold": float(right[number])} | of_item)
    again = request.arguments | {"tasks": [task.name for task in all_tasks], "data": "DIR", "model": lm.name}
    settings = {
        "seed": request.seed,
        "shots": request.shots,
        "set_up": SET_UPS[request.question].letter,
        "items": request.items,
        "kernel": "masked blocks" if dense_question else "each method's own kernel where it has one",
        "harness": importlib.metadata.version("lm_eval"),
        "command": commandline("benchmark", again),
    }
    tokens, lines = sum(text.longest for _, coded, _ in fitting for text in coded), sentences(rows)
    return Benchmarked(
        rows=rows,
        sentences=lines,
        sentence=" ".join(lines),
        tasks={task.name: TaskFiles(task.title, task.files, task.shots) for task in all_tasks},
        notes=[*_notes(lm, fitting, request.question), *looked_ahead(listed)],
        items=DataFrame(table),
        protocol=protocol("benchmark", lm, None, tokens * len(listed), **settings),
    )


def with_room(lm: Model, task: Asked) -> tuple[Asked, list[Coded], int]:
    """The task with the items that fit the model, their tokens, and how many do not. Errors: TooLarge."""
    coded = [code(lm.tokenizer, item) for item in task.items]
    fits = [text.longest <= lm.max_positions for text in coded]
    if not any(fits):
        sizes = [text.longest for text in coded]
        raise TooLarge(
            f"{task.title} with {task.shots} examples does not fit {lm.name}: its {len(coded):,} prompts have "
            f"{min(sizes):,} to {max(sizes):,} tokens and {lm.max_positions:,} are read at once: ask for fewer examples"
            " with --shots, or take a model that reads more."
        )
    return replace(task, items=list(compress(task.items, fits))), list(compress(coded, fits)), fits.count(False)


def _ask(
    context: Context, lm: Model, way: Candidate, task: Asked, coded: list[Coded], dense_question: bool
) -> tuple[list[list], list[list]]:
    """(what the harness counts of every item, (log-probability, greedy) of its answers)."""
    counted: list[list] = []
    logs: list[list[tuple[float, bool]]] = []
    for number, (item, text) in enumerate(zip(task.items, coded, strict=True)):
        context.progress(number / len(coded), f"{number + 1} of {len(coded)}")
        logs.append(answers(lm, way.method, text, dense_question))
        if item.until is None:
            counted.append(logs[-1])
        else:
            counted.append([generated(lm, way.method, text, item.until, dense_question)])
    return counted, logs


def _row(
    task: Asked,
    way: Candidate,
    coded: list[Coded],
    left_out: int,
    metric: str,
    values: dict[str, list[float]],
    right: np.ndarray,
    dense: tuple[dict[str, list[float]], np.ndarray] | None,
) -> BenchmarkRow:
    """The score of a metric, and the right answers' log-probability; `dense`: both of dense attention."""
    scores, n, is_share = values[metric], len(right), metric not in NOT_SHARES
    reach = width(way.method)
    row: dict[str, Any] = {"stderr": None, "longer_than_window": None}
    longer = np.array([reach is None or text.longest > reach for text in coded])
    if reach is not None:
        row["longer_than_window"] = float(longer.mean())
    if is_share and n > 1:
        row["stderr"] = float(np.std(scores, ddof=1) / np.sqrt(n))
    measured = {"value": share(scores) if is_share else None, "difference": None, "gold_difference": None}
    if dense is not None:
        # A prompt that fits the window is read densely: what differs there is rounding.
        of_gold = measured["gold_difference"] = interval(np.where(longer, right - dense[1], 0.0), fewest=BLOCKS)
        row["gold_difference_state"] = of_gold.state.replace("units", "items")
        if is_share:
            measured["difference"] = share_difference(scores, dense[0][metric])
    for name, estimate in measured.items():
        row[f"{name}_low"] = estimate and estimate.low
        row[f"{name}_high"] = estimate and estimate.high
        row[name] = estimate and estimate.mean
    row["value"] = task.mean(metric, scores)
    return BenchmarkRow(
        task=task.name,
        title=task.title,
        method=way.label,
        name=way.name,
        shots=task.shots,
        reads_future=way.method.reads_future,
        items=len(coded),
        of=len(coded) + left_out,
        does_not_fit=left_out,
        window=reach,
        metric=metric,
        gold=float(right.mean()),
        **row,
    )


def sentences(rows: list[BenchmarkRow]) -> list[str]:
    """One sentence per task and method, of the metric that the papers print."""
    lines = []
    for row in rows:
        task = TASKS.get(row.task)
        if row.metric != (task.metric if task else "acc"):
            continue
        line = f"{row.title}, {row.method}: {row.value:.1%} ({row.metric}, n = {row.items:,})"
        if row.name != "dense":
            points = [100 * (edge or 0) for edge in (row.difference, row.difference_low, row.difference_high)]
            difference, low, high = (signed(point, ".1f") for point in points)
            line += f", {difference} points against dense (95% interval {low} to {high})"
        if row.longer_than_window is not None:
            line += f"; {row.longer_than_window:.0%} of the items are longer than the {row.window:,} tokens it reads "
            line += "whole"
        lines.append(f"{line}.")
    return lines


def _notes(lm: Model, fitting: list[tuple[Asked, list[Coded], int]], question: str) -> list[str]:
    notes = [
        f"{task.title}: {left_out:,} of {left_out + len(coded):,} prompts with {task.shots} examples are longer than "
        f"the {lm.max_positions:,} tokens that are read at once; they are left out."
        for task, coded, left_out in fitting
        if left_out
    ]
    if question == "dense":
        notes.append(f"Set-up {SET_UPS[question].letter}: {SET_UPS[question].means}")
    return notes
