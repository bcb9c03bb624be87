"""Benchmarks: what a method does to the scores of lm-evaluation-harness's tasks, item by item against dense."""

import importlib.metadata
from dataclasses import replace
from itertools import compress
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.benchmarks import FOLDER, SET_UPS, TASKS
from analysis.commandline import commandline
from analysis.errors import BadSetting, TooLarge
from analysis.methods.base import Method
from analysis.metrics.intervals import BLOCKS, interval
from analysis.metrics.proportions import share, share_difference
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.benchmarks.scores import Coded, answers, code, generated, gold, width
from analysis.studies.benchmarks.tasks import Asked, asked
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.ready.candidates import Candidate, beside_dense, looked_ahead
from analysis.studies.stored.comparisons import edges

USUAL = ("hellaswag", "arc_easy", "piqa", "lambada", "truthfulqa", "gsm8k")
NOT_SHARES = ("perplexity",)  # metrics that are no share of right answers
EMPTY = ("value_low", "value_high")
EMPTY += tuple(f"{name}{end}" for name in ("difference", "gold_difference") for end in ("", "_low", "_high"))


def benchmark(
    tasks: list[str] | None = None,
    methods: list[dict] | None = None,
    model: str = "demo",
    data: str = "",
    shots: int | None = None,
    items: int | None = None,
    question: str = "sparse",
    seed: int = 0,
    *,
    context: Context,
) -> Result:
    """Scores of `tasks` (those of USUAL) under `methods` as in `evaluate`, dense always first, on the same items.

    `data`: the folder with one folder of files per task (default, and always in a browser: models_cache/benchmarks).
    `shots`: examples in a prompt (default: the task's own, 8 of GSM8K, else none); `items`: only the first so many.
    `question`: `sparse` or `dense`, the set-ups A and B of `analysis.benchmarks.SET_UPS`. A prompt that does not fit
    the model with its answer is left out and counted; a task of which none fits is refused.
    numbers: `rows` (`task title method name metric value stderr value_low value_high items of does_not_fit window
    longer_than_window shots reads_future difference gold gold_difference`, both differences with `_low` and `_high`: a
    share of right answers has its standard error and Wilson interval, its paired difference to dense that of Bonett and
    Price; `gold` is the mean log-probability of the right answer in nats, its difference to dense has an interval over
    items; `longer_than_window` the share of items longer than what the method reads whole), `sentences`, `notes`.
    tables: `rows`, `items` (`task method item tokens gold` and the value of each metric).
    Errors: BadSetting, TooLarge, NotFitted, before a pass.
    """
    check_seed(seed)
    if question not in SET_UPS:
        raise BadSetting(f"The question is read {question[:20]!r}: it must be sparse (set-up A) or dense (set-up B).")
    if context.browser and data:
        raise BadSetting("In a browser no folder can be named: the files lie in models_cache/benchmarks.")
    for name, value, lowest in (("shots", shots, 0), ("items", items, 1)):
        if value is not None and value < lowest:
            raise BadSetting(f"The number of {name} is {value} and must be at least {lowest}.")
    lm = context.model(model)
    listed = beside_dense(context, lm, methods)
    context.progress(0.0, "reading the tasks")
    folder = Path(data) if data else FOLDER
    wanted = [asked(name, folder, shots, items, seed) for name in dict.fromkeys(tasks or USUAL)]
    fitting = [_fitting(lm, one) for one in wanted]
    rows, table, done = [], [], 0
    total = sum(len(coded) for _, coded, _ in fitting) * len(listed)
    for one, coded, left in fitting:
        dense = None
        for way in listed:
            part = context.within(done / total, len(coded) / total, f"{one.title}, {way.label}")
            found = _found(part, lm, way.method, one, coded, question == "dense")
            done += len(coded)
            values, right = one.values([result for result, _ in found]), gold([logs for _, logs in found], one.items)
            dense = dense or (values, right)
            about = _about(one, way, coded, left)
            against = dense if way is not listed[0] else None
            rows += [about | _row(one, metric, values, right, against) for metric in values]
            table += [
                {
                    "task": one.name,
                    "method": way.label,
                    "item": number,
                    "tokens": text.longest,
                    "gold": float(right[number]),
                }
                | {metric: values[metric][number] for metric in values}
                for number, text in enumerate(coded)
            ]
    request = {"tasks": [one.name for one in wanted], "data": "DIR", "model": lm.name, "methods": methods}
    request |= {"shots": shots, "items": items, "question": question, "seed": seed}
    about = {"seed": seed, "shots": shots, "set_up": SET_UPS[question].letter, "items": items}
    about |= {"kernel": "masked blocks" if question == "dense" else "each method's own kernel where it has one"}
    about |= {"harness": importlib.metadata.version("lm_eval"), "command": commandline("benchmark", request)}
    tokens, sentences_told = sum(text.longest for _, coded, _ in fitting for text in coded), sentences(rows)
    numbers = {
        "rows": rows,
        "sentences": sentences_told,
        "sentence": " ".join(sentences_told),
        "tasks": {one.name: {"title": one.title, "files": one.files, "shots": one.shots} for one in wanted},
        "notes": [*_notes(lm, fitting, question), *looked_ahead(listed)],
        "protocol": protocol("benchmark", lm, None, tokens * len(listed), **about),
    }
    return Result(numbers, {"rows": pd.DataFrame(rows), "items": pd.DataFrame(table)})


def _fitting(lm: Model, task: Asked) -> tuple[Asked, list[Coded], int]:
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
    task = replace(task, items=list(compress(task.items, fits)))
    return task, list(compress(coded, fits)), fits.count(False)


def _found(
    context: Context, lm: Model, method: Method, task: Asked, coded: list[Coded], dense_question: bool
) -> list[tuple]:
    """Of every item: what the harness counts, and (log-probability, greedy) of the answers."""
    results = []
    for number, (item, text) in enumerate(zip(task.items, coded, strict=True)):
        context.progress(number / len(coded), f"{number + 1} of {len(coded)}")
        logs = answers(lm, method, text, dense_question)
        counted = logs if item.until is None else [generated(lm, method, text, item.until, dense_question)]
        results.append((counted, logs))
    return results


def _about(task: Asked, way: Candidate, coded: list[Coded], left: int) -> dict:
    reach = width(way.method)
    longer = None if reach is None else float(np.mean([text.longest > reach for text in coded]))
    about = {"task": task.name, "title": task.title, "method": way.label, "name": way.name, "shots": task.shots}
    about |= {"reads_future": way.method.reads_future, "items": len(coded), "of": len(coded) + left}
    return about | {"does_not_fit": left, "window": reach, "longer_than_window": longer}


def _row(task: Asked, metric: str, values: dict, right: np.ndarray, dense: tuple | None) -> dict:
    """The score of a metric, and the right answers' log-probability; `dense`: both of dense attention."""
    scores, n = values[metric], len(right)
    row = {"metric": metric, "value": task.mean(metric, scores), "gold": float(right.mean())}
    row |= dict.fromkeys(("stderr", *EMPTY))
    counted = metric not in NOT_SHARES
    if counted:
        interval_of_share = share(scores)
        row["stderr"] = float(np.std(scores, ddof=1) / np.sqrt(n)) if n > 1 else None
        row |= {"value_low": interval_of_share.low, "value_high": interval_of_share.high}
    if dense is not None:
        over = interval(right - dense[1], fewest=BLOCKS)
        row |= edges("gold_difference", over) | {"gold_difference_state": over.state.replace("units", "items")}
        row |= edges("difference", share_difference(scores, dense[0][metric])) if counted else {}
    return row


def sentences(rows: list[dict]) -> list[str]:
    """One sentence per task and method, of the metric that the papers print."""
    lines = []
    for row in rows:
        task = TASKS.get(row["task"])
        if row["metric"] != (task.metric if task else "acc"):
            continue
        line = f"{row['title']}, {row['method']}: {row['value']:.1%} ({row['metric']}, n = {row['items']:,})"
        if row["name"] != "dense":
            points = [100 * row[f"difference{end}"] for end in ("", "_low", "_high")]
            line += f", {points[0]:+.1f} points against dense (95% interval {points[1]:+.1f} to {points[2]:+.1f})"
        if row["longer_than_window"] is not None:
            share_longer, reach = row["longer_than_window"], row["window"]
            line += f"; {share_longer:.0%} of the items are longer than the {reach:,} tokens it reads whole"
        lines.append(f"{line}.")
    return lines


def _notes(lm: Model, fitting: list[tuple], question: str) -> list[str]:
    said = [
        f"{one.title}: {left:,} of {left + len(coded):,} prompts with {one.shots} examples are longer than the "
        f"{lm.max_positions:,} tokens that are read at once; they are left out."
        for one, coded, left in fitting
        if left
    ]
    if question == "dense":
        said.append(f"Set-up {SET_UPS[question].letter}: {SET_UPS[question].means}")
    return said
