"""Benchmark scores as a stored study: every task with its own prompts, and with examples that make the prompts long."""

from copy import copy
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.benchmarks import FOLDER, TASKS, here
from analysis.corpus import text_hash
from analysis.errors import BadSetting
from analysis.metrics.proportions import share_difference
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.benchmarks.benchmark import benchmark
from analysis.studies.benchmarks.scores import Coded, answers
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.ready.candidates import candidates
from analysis.studies.text.held_out import places, read_part, sample_windows, write
from analysis.studies.text.sizes import chosen, command

OWN, LONG = "own", "long"  # whose prompts: the task's own, and with examples that make them long
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
WINDOW = 128  # of Focus in the paper; the same for the window without groups
METHODS = (
    {"name": "dense", "settings": {}},
    {"name": "focus", "settings": {"window": WINDOW}},
    {"name": "streaming_llm", "settings": {"window": WINDOW}},
    {"name": "focus", "settings": {}},
)
CHECKED = 2  # questions of each task whose right answers' log-probabilities are kept, to be held against again
NOTES = (
    "Focus reads with the paper's window of 128 tokens, and with the window that its router was trained for; "
    "StreamingLLM is the window of 128 without groups. All read the same questions, and every difference is paired.",
    "A prompt that fits what a method reads whole is dense attention, so those stand apart: how many there are, and by "
    "how much the log-probability of their right answer changes at most.",
    "Small samples of a small model: a score near chance, or near 0, says nothing about a method. What the method "
    "changes shows in the log-probability of the right answer first.",
)


def benchmarks(
    corpus: str = "",
    model: str = "demo",
    rows: str | None = None,
    router: str = "k8-top1",
    seed: int = 0,
    output: str | None = None,
    work: str | None = None,
    *,
    context: Context,
) -> Result:
    """Scores of METHODS on the tasks that have a folder in `corpus` (default: models_cache/benchmarks), each as ASKED.

    `rows`: only these tasks. What was done is kept in `work`; the result goes to `output` (default
    `<state>/studies/benchmarks.json`). Nothing of the questions is stored, only scores, counts and log-probabilities.
    numbers: `rows`, those of `benchmark` for the metric that papers print, with `prompts` (`own` or `long`), `within`
    and `beyond` (items that fit what the method reads whole, and that do not) and how far the right answer's
    log-probability is from dense in nats: `within_moved` at most, `beyond_moved` in the mean; `pooled`, per method and
    prompts over all tasks: `items longer within within_moved beyond beyond_moved`, and `difference` of the score with
    its interval; `first`, `sentence`, `notes`, `path`. tables: `rows`, `pooled`. Errors: those of `benchmark`.
    """
    check_seed(seed)
    lm = context.model(model)
    data = Path(corpus) if corpus else FOLDER
    found = here(data)
    tasks = chosen(rows, list(TASKS), "task") if rows else found
    if not tasks:
        raise BadSetting(f"No task has its files in {data}: put them there, one folder for each of {', '.join(TASKS)}.")
    listed = [one | ({"router": router} if one["name"] == "focus" else {}) for one in METHODS]
    labels = [one.label for one in candidates(context, lm, listed)]
    path, folder = places(context, lm, "benchmarks", output, work)
    wanted = [(task, prompts, *ASKED[task][prompts]) for task in tasks for prompts in (OWN, LONG)]
    parts = []
    for at, (task, prompts, shots, items) in enumerate(wanted):
        own = copy(context)
        own.progress = lambda share, stage, at=at: context.progress((at + share) / len(wanted), stage)
        decides = [lm.revision, str(lm.dtype), task, shots, items, labels, router, seed, _files(data / task)]
        place = folder / f"benchmarks-{task}-{shots}-{text_hash(repr(decides))}.json"
        part = read_part(place)
        if part is None:
            made = benchmark([task], listed, model, corpus, shots, items, seed=seed, context=own)
            part = _part(made, task, prompts)
            write(place, part)
        parts.append(part)
    table = [row for part in parts for row in part["rows"]]
    pooled = [_pooled(parts, label, prompts) for prompts in (OWN, LONG) for label in labels]
    missing = [TASKS[name].title for name in TASKS if name not in tasks]
    numbers = {
        "sentence": sentence(pooled),
        "rows": table,
        "pooled": pooled,
        "first": {f"{part['task']}, {part['shots']}": part["first"] for part in parts},
        "notes": [
            *NOTES,
            *(note for part in parts for note in part["notes"]),
            *([f"Not scored: {', '.join(missing)}; their files are not in the folder."] if missing else []),
        ],
        "protocol": protocol(
            "study benchmarks", lm, None, sum(part["tokens"] for part in parts), seed=seed, router=router,
            set_up="A", kernel="each method's own kernel where it has one", harness=parts[0]["harness"],
            corpus=f"the first {min(row['items'] for row in table)} to {max(row['items'] for row in table)} questions "
            f"of {len(tasks)} tasks",
            files={part["task"]: part["files"] for part in parts},
            command=command("benchmarks", lm, rows=rows, router=router, seed=seed),
        ),
    }  # fmt: skip
    write(path, numbers | {"check": _check(context, lm, listed)})
    return Result(numbers | {"path": str(path)}, {"rows": pd.DataFrame(table), "pooled": pd.DataFrame(pooled)})


def recheck(stored: dict, *, context: Context) -> dict[str, tuple]:
    """The `check` of a stored study, method -> (what is stored, what comes out now)."""
    told = stored["protocol"]
    listed = [one | ({"router": told["router"]} if one["name"] == "focus" else {}) for one in METHODS]
    again = _check(context, context.model(told["model"]), listed)
    return {name: (kept, again[name]) for name, kept in stored["check"].items()}


def first_again(stored: dict, task: str, shots: int, data: Path, *, context: Context) -> dict[str, tuple]:
    """The right answers' log-probabilities of a task's first questions, from its files: method -> (stored, now)."""
    told, kept = stored["protocol"], stored["first"][f"{task}, {shots}"]
    listed = [one | ({"router": told["router"]} if one["name"] == "focus" else {}) for one in METHODS]
    made = benchmark([task], listed, told["model"], str(data), shots, CHECKED, seed=told["seed"], context=context)
    again = _part(made, task, OWN)["first"]
    return {label: (values, again[label]) for label, values in kept.items()}


def _files(place: Path) -> list:
    return [(path.name, path.stat().st_size) for path in sorted(place.glob("*"))]


def _part(made: Result, task: str, prompts: str) -> dict:
    """What one run of `benchmark` leaves: its rows of the metric that counts, and values of every item by method."""
    metric, items, numbers = TASKS[task].metric, made.tables["items"], made.numbers
    by = {label: items[items["method"] == label] for label in dict.fromkeys(items["method"])}
    dense = by["dense"]["gold"].to_numpy()
    rows = [row for row in numbers["rows"] if row["metric"] == metric]
    kept = {}
    for row in rows:
        mine = by[row["method"]]
        reach = np.inf if row["window"] is None else row["window"]
        kept[row["method"]] = {
            "right": mine[metric].tolist(),
            "moved": np.abs(mine["gold"].to_numpy() - dense).tolist(),
            "fits": (mine["tokens"] <= reach).tolist(),
        }
        row |= {"prompts": prompts} | _apart(kept[row["method"]])
    return {
        "task": task, "prompts": prompts, "shots": rows[0]["shots"], "rows": rows, "items": kept,
        "first": {label: mine["gold"][:CHECKED].tolist() for label, mine in by.items()},
        "notes": numbers["notes"], "files": numbers["tasks"][task]["files"],
        "tokens": numbers["protocol"]["tokens"], "harness": numbers["protocol"]["harness"],
    }  # fmt: skip


def _apart(items: dict) -> dict:
    """Items that fit what is read whole, and the others, with how far each kind is from dense."""
    fits, moved = np.array(items["fits"], dtype=bool), np.array(items["moved"])
    return {
        "within": int(fits.sum()),
        "within_moved": float(moved[fits].max()) if fits.any() else None,
        "beyond": int((~fits).sum()),
        "beyond_moved": float(moved[~fits].mean()) if (~fits).any() else None,
    }


def _pooled(parts: list[dict], label: str, prompts: str) -> dict:
    """A method over the items of all tasks."""
    mine = [part["items"] for part in parts if part["prompts"] == prompts]
    joined = {name: sum((one[label][name] for one in mine), []) for name in ("right", "moved", "fits")}
    apart = share_difference(joined["right"], sum((one["dense"]["right"] for one in mine), []))
    row = {"method": label, "prompts": prompts, "tasks": len(mine), "items": len(joined["right"])} | _apart(joined)
    row |= {"longer": row["beyond"] / row["items"], "value": float(np.mean(joined["right"]))}
    return row | {"difference": apart.mean, "difference_low": apart.low, "difference_high": apart.high}


def sentence(pooled: list[dict]) -> str:
    """What the window of the paper does to all tasks together, with their own prompts and with long ones."""
    said = []
    for row in pooled:
        if row["method"] != f"focus, window {WINDOW}":
            continue
        whose = {OWN: "With the tasks' own prompts", LONG: "With examples in the prompt"}[row["prompts"]]
        ends = [100 * row[f"difference{end}"] for end in ("", "_low", "_high")]
        told = f"{whose} {row['longer']:.0%} of {row['items']} items are longer than the window of {WINDOW}, and Focus "
        told += f"scores {ends[0]:+.1f} points against dense (95 % interval {ends[1]:+.1f} to {ends[2]:+.1f})"
        if row["within"]:
            told += f"; on the others no right answer's log-probability moves by more than {row['within_moved']:.0e}"
        if row["beyond"]:
            told += f"; on the longer ones it moves by {row['beyond_moved']:.2f} nats in the mean"
        said.append(f"{told}.")
    return " ".join(said)


def _check(context: Context, lm: Model, listed: list[dict]) -> dict[str, list[float]]:
    """Log-probabilities of two answers to one long prompt of the bundled samples: what a stored score rests on."""
    size = min(200, lm.max_positions)
    first, other = sample_windows(lm, size, 2).tolist()
    whole = Coded((tuple(first), tuple(first[:-4] + other[:4])), (4, 4), 0, size - 4)
    return {one.label: [log for log, _ in answers(lm, one.method, whole)] for one in candidates(context, lm, listed)}
