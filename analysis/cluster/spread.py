"""One question in many parts: a study, a router lab or a benchmark fans out over an argument; its parts are merged.

The command `spread` says which study, over what, on which engine.
"""

import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from analysis.cluster.engine import RayJobs
from analysis.corpus import read_file, sample_texts
from analysis.errors import AnalysisError, BadSetting, Busy
from analysis.jobs import Jobs
from analysis.jobs.client import STUDIES
from analysis.runs import Result, Run, RunStore
from analysis.studies import NAMED, PARTS, STUDIES as VERBS
from analysis.studies.context import Context

MOST = 1000  # parts
LOOK = 0.25  # seconds between two looks at the jobs
TEXTS = ("text", "texts")


def spread(
    jobs: Jobs,
    store,
    verb: str,
    args: dict,
    over: str,
    values: list,
    progress: Callable[[float, str], None] = lambda fraction, stage: None,
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


def share_out(jobs: Jobs, store: RunStore, verb: str, args: dict, progress: Callable[[float, str], None]) -> Result:
    """A study that hands out parts of its own, here: the workers compute them as it asks for them, round by round.
    Stored parts are not computed again; when the study is done they go. Errors: those of the study; AnalysisError for
    a part."""
    made: dict[str, None] = {}

    def others(part: str, requests: list[dict], tell: Callable[[float, str], None]) -> list[dict]:
        runs = _runs(jobs, part, {f"{part} {at + 1}": one for at, one in enumerate(requests)}, tell)
        made.update(dict.fromkeys(runs.values()))
        return [store.open(run).numbers for run in runs.values()]

    result = VERBS[verb](**args, context=Context(store, progress, browser=False, others=others))
    for run in made:
        store.delete(run)
    return result


def _runs(jobs: Jobs, verb: str, requests: dict[str, dict], progress: Callable[[float, str], None]) -> dict[str, str]:
    """The run of each request, as jobs. AnalysisError with the first that failed, when all have ended."""
    ids: dict[str, str] = {}
    try:
        for name, args in requests.items():
            ids[name] = _submit(jobs, verb, args, ids, progress)
        found = _wait(jobs, ids, progress)
    except BaseException:
        for job in ids.values():
            jobs.cancel(job)
        raise
    failed = [(name, status) for name, status in found.items() if status.state != "done"]
    if failed:
        name, status = failed[0]
        raise AnalysisError(f"{len(failed)} of {len(ids)} parts failed; {name}: {status.error}")
    return {name: status.run_id for name, status in found.items()}


def spread_command(
    study: str,
    over: str = "",
    given: str = "{}",
    engine: str = "local",
    workers: int = 2,
    gpus: float = 0.0,
    *,
    progress: Callable[[float, str], None],
) -> Result:
    """Run the verb or named study `study` over NAME=A,B,C, its other arguments `given` as JSON. Without `over`, a study
    that hands out parts of its own, such as `search`. Errors: BadSetting."""
    if study not in VERBS and study not in NAMED:
        raise BadSetting(f"There is no study {study[:40]!r}; there are: {', '.join([*VERBS, *NAMED])}.")
    shared = not over and f"{study}-part" in PARTS
    name, values = ("", []) if shared else _over(over)
    offered = "PARTS" if shared else "STUDIES" if study in VERBS else "NAMED"
    studies = STUDIES.replace("STUDIES", offered)
    args = _given(given)
    store = RunStore()
    try:
        args = {key: _place(store, value) if key in TEXTS else value for key, value in args.items()}
        values = [_place(store, value) for value in values] if name in TEXTS else values
        jobs = _engine(engine, store, studies, workers, gpus)
        try:
            with contextlib.redirect_stdout(sys.stderr):  # Ray prints what it lost; the answer stands there alone
                if shared:
                    return share_out(jobs, store, study, args, progress)
                return spread(jobs, store, study, args, name, values, progress)
        finally:
            jobs.close()
    finally:
        store.close()


def merged(over: str, runs: dict[object, Run]) -> Result:
    """The runs of the parts as one result; the argument's value stands in each row."""
    import pandas

    parts, rows, tables = [], [], {}
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
    about = {**first.protocol, "verb": first.verb, "spread": over, "parts": len(runs)}
    joined = {name: pandas.concat(found, ignore_index=True) for name, found in tables.items()}
    return Result({"rows": rows, "parts": parts, "protocol": about}, joined)


def _submit(jobs: Jobs, verb: str, args: dict, ids: dict, progress: Callable) -> str:
    """The job's id; a full queue is waited for."""
    while True:
        try:
            return jobs.submit(verb, args)
        except Busy:
            if not any(not jobs.watch(job).ended for job in ids.values()):
                raise
            progress(0.0, f"{len(ids)} parts are in the queue, which is full")
            time.sleep(LOOK)


def _wait(jobs: Jobs, ids: dict[str, str], progress: Callable) -> dict:
    said = None
    while True:
        found = {value: jobs.watch(job) for value, job in ids.items()}
        ended = sum(status.ended is not None for status in found.values())
        running = [status for status in found.values() if status.state == "running"]
        done = (ended + sum(status.fraction for status in running)) / len(ids)
        if said != (said := (done, f"{ended} of {len(ids)} parts, {len(running)} running")):
            progress(*said)
        if ended == len(ids):
            return found
        time.sleep(LOOK)


def _engine(name: str, store: RunStore, studies: str, workers: int, gpus: float) -> Jobs:
    if not 1 <= workers <= 256:
        raise BadSetting(f"{workers} workers were asked for: give 1 to 256.")
    if name == "local":
        return Jobs(store, studies, workers)
    if name != "ray" and not name.startswith("ray://"):
        raise BadSetting(f"There is no engine {name[:40]!r}: choose local, ray, or ray://HOST:10001.")
    return RayJobs(store, studies, workers, None if name == "ray" else name, gpus)


def _over(word: str) -> tuple[str, list]:
    """NAME=A,B,C: each value as JSON where it is some, else as text."""
    name, sign, listed = word.partition("=")
    if not sign or not name.isidentifier():
        raise BadSetting(f"{word[:40]!r} names no argument with its values: write it like seed=0,1,2.")
    return name, [_value(part) for part in listed.split(",") if part]


def _value(word: str) -> object:
    try:
        return json.loads(word)
    except ValueError:
        return word


def _given(text: str) -> dict:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadSetting('The arguments are no JSON object: write them like {"model": "demo"}.')
    return found


def _place(store: RunStore, value: object) -> object:
    """A file or the name of a sample as the hash of its text in the store; what is a hash already stays."""
    if isinstance(value, list):
        return [_place(store, one) for one in value]
    if isinstance(value, str) and value in sample_texts():
        title, text = sample_texts()[value]
        return store.put_text(text, title)
    if isinstance(value, str) and Path(value).is_file():
        found = read_file(Path(value))
        return store.put_text(found.text, Path(value).name, found.said)
    return value
