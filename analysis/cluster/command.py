"""`spread` from the command line: which study, over what, on which engine."""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

from analysis.cluster.engine import RayJobs
from analysis.cluster.spread import spread
from analysis.corpus import read_file, sample_texts
from analysis.errors import BadSetting
from analysis.jobs import Jobs
from analysis.jobs.client import STUDIES
from analysis.runs import Result, RunStore
from analysis.studies import NAMED, STUDIES as VERBS

TEXTS = ("text", "texts")


def spread_command(
    study: str,
    over: str,
    given: str = "{}",
    engine: str = "local",
    workers: int = 2,
    gpus: float = 0.0,
    *,
    progress: Callable[[float, str], None],
) -> Result:
    """Run the verb or named study `study` over NAME=A,B,C, its other arguments `given` as JSON. Errors: BadSetting."""
    if study not in VERBS and study not in NAMED:
        raise BadSetting(f"There is no study {study[:40]!r}; there are: {', '.join([*VERBS, *NAMED])}.")
    name, values = _over(over)
    studies = STUDIES if study in VERBS else STUDIES.replace(":STUDIES", ":NAMED")
    args = _given(given)
    store = RunStore()
    try:
        args = {key: _place(store, value) if key in TEXTS else value for key, value in args.items()}
        values = [_place(store, value) for value in values] if name in TEXTS else values
        jobs = _engine(engine, store, studies, workers, gpus)
        try:
            with contextlib.redirect_stdout(sys.stderr):  # Ray prints what it lost; the answer stands there alone
                return spread(jobs, store, study, args, name, values, progress)
        finally:
            jobs.close()
    finally:
        store.close()


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
        return store.put_text(read_file(Path(value)), Path(value).name)
    return value
