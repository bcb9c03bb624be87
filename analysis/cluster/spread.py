"""One question in many parts: a study, a router lab or a benchmark fans out over an argument; its parts are merged.

The command `spread` says which study, over what, on which engine.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..commands import named
from ..commands.runs import Spread
from ..corpus import read_file, sample_texts
from ..errors import AnalysisError, BadSetting, Busy
from ..jobs import Jobs
from ..jobs.client import STUDIES
from ..runs import Result, Run, RunStore
from ..studies import NAMED, PARTS, STUDIES as VERBS
from ..studies.context import Context
from .engine import RayJobs

MOST = 1000  # parts
# Seconds between two looks at the jobs.
LOOK = 0.25
TEXTS = ("text", "texts")
Request = dict[str, Any]
Progress = Callable[[float, str], None]


def spread(
    jobs: Jobs,
    store: RunStore,
    verb: str,
    args: Request,
    over: str,
    values: list[Any],
    progress: Progress = lambda fraction, stage: None,
) -> Result:
    """The study `verb` with `args` for every one of `values` of the argument `over`, each as a job of its own.

    What is stored is not computed again, so what was stopped goes on. numbers: `rows`, those of all parts with the
    value they belong to, `parts` (value, run, seconds and every plain number of it), `protocol`; tables: those of the
    parts below each other. Errors: BadSetting; AnalysisError with the first part that failed, when all have ended.
    """
    if not 0 < len(values) <= MOST or len(set(map(str, values))) != len(values):
        raise BadSetting(f"{len(values):,} values of {over} were given, and 1 to {MOST:,} different ones are spread.")
    runs = _runs(jobs, verb, {f"{over} {value}": {**args, over: value} for value in values}, progress)
    return merged(over, {value: store.open(runs[f"{over} {value}"]) for value in values})


def share_out(jobs: Jobs, store: RunStore, verb: str, args: Request, progress: Progress) -> Result:
    """A study that hands out parts of its own, here: the workers compute them as it asks for them, round by round.
    Stored parts are not computed again; when the study is done they go. Errors: those of the study; AnalysisError for
    a part."""
    parts: set[str] = set()

    def compute(part: str, requests: list[Request], tell: Progress) -> list[Request]:
        runs = _runs(jobs, part, {f"{part} {number}": args for number, args in enumerate(requests, 1)}, tell)
        parts.update(runs.values())
        return [store.open(run).numbers for run in runs.values()]

    result: Result = VERBS[verb](**args, context=Context(store, progress, browser=False, others=compute))
    for run in parts:
        store.delete(run)
    return result


def _runs(jobs: Jobs, verb: str, requests: dict[str, Request], progress: Progress) -> dict[str, str]:
    """The run of each request, as jobs. AnalysisError with the first that failed, when all have ended."""
    ids: dict[str, str] = {}
    last = None
    try:
        for name, args in requests.items():
            # A full queue is waited for, as long as jobs of ours fill it.
            while name not in ids:
                try:
                    ids[name] = jobs.submit(named(verb, args))
                except Busy:
                    if all(jobs.watch(job).ended for job in ids.values()):
                        raise
                    progress(0.0, f"{len(ids)} parts are in the queue, which is full")
                    time.sleep(LOOK)
        while True:
            statuses = {name: jobs.watch(job) for name, job in ids.items()}
            ended = sum(status.ended is not None for status in statuses.values())
            running = [status.fraction for status in statuses.values() if status.state == "running"]
            now = (ended + sum(running)) / len(ids), f"{ended} of {len(ids)} parts, {len(running)} running"
            if now != last:
                progress(*now)
                last = now
            if ended == len(ids):
                break
            time.sleep(LOOK)
    except BaseException:
        for job in ids.values():
            jobs.cancel(job)
        raise
    failed = [f"{name}: {status.error}" for name, status in statuses.items() if status.state != "done"]
    if failed:
        raise AnalysisError(f"{len(failed)} of {len(ids)} parts failed; {failed[0]}")
    return {name: str(status.run) for name, status in statuses.items()}


def spread_command(request: Spread, *, progress: Progress) -> Result:
    """Run the verb or named study `study` over NAME=A,B,C, its other arguments `given` as JSON. Without `over`, a study
    that hands out parts of its own, such as `search`. Errors: BadSetting."""
    study, over, engine, workers = request.study, request.over, request.engine, request.workers
    if study not in VERBS and study not in NAMED:
        raise BadSetting(f"There is no study {study[:40]!r}; there are: {', '.join([*VERBS, *NAMED])}.")
    if engine not in ("local", "ray") and not engine.startswith("ray://"):
        raise BadSetting(f"There is no engine {engine[:40]!r}: choose local, ray, or ray://HOST:10001.")
    shared = not over and f"{study}-part" in PARTS
    name, sign, values = over.partition("=")
    if not shared and not (sign and name.isidentifier()):
        raise BadSetting(f"{over[:40]!r} names no argument with its values: write it like seed=0,1,2.")
    args = _json(request.given or "{}")
    if not isinstance(args, dict):
        raise BadSetting('The arguments are no JSON object: write them like {"model": "demo"}.')
    offered = "PARTS" if shared else "STUDIES" if study in VERBS else "NAMED"
    studies = STUDIES.replace("STUDIES", offered)
    store = RunStore()
    args = {key: _stored(store, value) if key in TEXTS else value for key, value in args.items()}
    parts = [_json(value) for value in values.split(",") if value]
    if name in TEXTS:
        parts = [_stored(store, value) for value in parts]
    if engine == "local":
        jobs = Jobs(store, studies, workers)
    else:
        jobs = RayJobs(store, studies, workers, None if engine == "ray" else engine, request.gpus)
    # Ray prints what it lost; on standard output the answer stands alone.
    with contextlib.closing(jobs), contextlib.redirect_stdout(sys.stderr):
        if shared:
            return share_out(jobs, store, study, args, progress)
        return spread(jobs, store, study, args, name, parts, progress)


def merged(over: str, runs: dict[object, Run]) -> Result:
    """The runs of the parts as one result; the argument's value stands in each row."""
    import pandas

    parts, rows = [], []
    tables: dict[str, list[pandas.DataFrame]] = {}
    for value, run in runs.items():
        plain = {name: number for name, number in run.numbers.items() if isinstance(number, (int, float, str))}
        parts.append({over: value, "run": run.id, "seconds": run.seconds, **plain})
        rows += [{over: value, **row} for row in run.numbers.get("rows") or () if isinstance(row, dict)]
        for name in run.tables:
            table = run.table(name)
            if over not in table.columns:
                table.insert(0, over, str(value) if isinstance(value, (list, dict)) else value)
            tables.setdefault(name, []).append(table)
    first = next(iter(runs.values()))
    protocol = {**first.protocol, "verb": first.verb, "spread": over, "parts": len(runs)}
    joined = {name: pandas.concat(pieces, ignore_index=True) for name, pieces in tables.items()}
    return Result({"rows": rows, "parts": parts, "protocol": protocol}, joined)


def _json(word: str) -> Any:
    """A value as JSON where it is some, else as text."""
    try:
        return json.loads(word)
    except ValueError:
        return word


def _stored(store: RunStore, value: Any) -> Any:
    """A file or the name of a sample as the hash of its text in the store; what is a hash already stays."""
    if isinstance(value, list):
        return [_stored(store, item) for item in value]
    if isinstance(value, str) and value in sample_texts():
        title, text = sample_texts()[value]
        return store.put_text(text, title)
    if isinstance(value, str) and Path(value).is_file():
        document = read_file(Path(value))
        return store.put_text(document.text, Path(value).name, document.said)
    return value
