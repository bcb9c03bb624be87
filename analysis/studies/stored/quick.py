"""A stored study checked in under two minutes: a part of its numbers computed again, beside what is stored.

Measuring a study again takes up to hours. What `sample` gives of the bundled samples, and `part` of the study's own
texts, is the same code on less, so that a reader can see whether the stored numbers are what this program gives.
"""

import string
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, Protocol

import numpy as np
import pandas as pd

from ...commands import commandline
from ...errors import BadSetting
from ...files import read_json
from ...models import Model
from ...runs import Result
from ...runs.stored import StudyProtocol, study_files
from ..context import Context, protocol

NOTHING = 1e-5  # what is no difference: a share that is 0 but for rounding differs between processors
SAME, OTHER, GONE = "the same", "another", "not stored"


class Study(Protocol):
    """What is read of a study here; the runner, which calls this module, says what the whole of one is."""

    name: str
    file: str
    sizes: type
    sample: Callable[[Any, dict], dict]
    part: Callable[[Any, dict], dict] | None
    whole: str
    tolerance: float


def check(study: Study, at: Any, stored: dict) -> Result:
    """What is stored of a study beside the part of it that is computed again; nothing is stored. `at` is the
    runner's setting where it was measured, its corpus the folder that was given.

    numbers: `rows` (`number count stored again apart verdict`: of a list the means, and the largest distance as a
    share of the stored value), `verdict`, `sentence`, `cpu_seconds`. table: `rows`. Errors: BadSetting.
    """
    told, began = stored["protocol"], time.process_time()
    pieces = {"check": study.sample(at, stored)}
    texts = "folder" not in told or bool(at.sizes.corpus)
    if study.part is not None and texts:
        pieces |= study.part(at, stored)
    rows = [compared(*one, study.tolerance) for one in leaves(pieces, stored)]
    spent = time.process_time() - began
    numbers = {"rows": rows, "verdict": verdict(rows), "cpu_seconds": round(spent, 1)}
    numbers["sentence"] = sentence(study, told, rows, spent, texts)
    command = commandline("study", asked(study, told))
    numbers["protocol"] = protocol(f"study {study.name}", at.lm, command=command)
    return Result(numbers, {"rows": pd.DataFrame(rows)})


def stored_of(study: Study, context: Context, lm: Model, given: dict) -> dict:
    """What is stored of a study for a model. Errors: BadSetting where nothing is, where it is of other weights or of an
    earlier version, and for options that would change what was measured."""
    named = {name for _, name, _, _ in string.Formatter().parse(study.file) if name}
    usual = {one.name: one.default for one in fields(study.sizes)}
    named |= {"model", "corpus"}
    changed = [name for name, value in given.items() if value != usual[name] and name not in named]
    if changed:
        raise BadSetting(f"A quick check takes the sizes of what is stored: leave {', '.join(changed)} out.")
    file = (study.file or study.name).format(**usual | given)
    paths = study_files([folder / "studies" for folder in context.state_dirs(lm)])
    path = next((one for one in paths if one.stem == file), None)
    found = read_json(path) if path else None
    if not found:
        raise BadSetting(f"Nothing is stored of the study {file} for {lm.name}: measure it before it is checked.")
    made = StudyProtocol.of(found["protocol"])
    if made.other_weights(lm.revision) or made.other_version:
        raise BadSetting(f"The stored study {file} is of other weights or of an earlier program: measure it again.")
    return found


def asked(study: Study, told: dict) -> dict:
    """The arguments of the command that checks what was stored with this protocol."""
    named = [name for _, name, _, _ in string.Formatter().parse(study.file) if name]
    found = {"name": study.name} | ({"corpus": "DIR"} if "folder" in told else {}) | {"model": told["model"]}
    return found | {name: told["sizes"][name] for name in named if name in told["asked"]} | {"quick": True}


def leaves(again: Any, stored: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(name, stored, computed again) of all numbers of a piece of a study. A row of a table stands beside the stored
    one that has its words, of several beside the likest, and numbers in one list stay together."""
    if isinstance(again, dict):
        for key, value in again.items():
            inside = stored.get(key) if isinstance(stored, dict) else None
            yield from leaves(value, inside, f"{name}, {key}" if name else key)
    elif isinstance(again, list) and any(isinstance(one, dict) for one in again):
        for row in again:
            words = {key: value for key, value in row.items() if not isinstance(value, (float, list, dict))}
            rows = [one for one in stored or () if words.items() <= _plain(one).items()]
            beside = max(rows, key=lambda one: sum(one.get(key) == value for key, value in row.items()), default=None)
            said = " ".join(str(value) for value in words.values() if value is not None)
            numbers = {key: value for key, value in row.items() if key not in words}
            yield from leaves(numbers, beside, f"{name}, {said}")
    else:
        yield name, stored, again


def compared(name: str, stored: Any, again: Any, tolerance: float) -> dict:
    """One number, list or word beside the stored one."""
    row = {"number": name, "count": 1, "stored": stored, "again": again, "apart": None}
    if stored is None and again is not None:
        return row | {"verdict": GONE}
    if isinstance(again, (str, bool, type(None))) or isinstance(stored, str):
        return row | {"verdict": SAME if stored == again else OTHER}
    old, new = (np.ravel(np.array(one, dtype=float)) for one in (stored, again))
    if old.shape != new.shape:
        return row | {"stored": None, "again": None, "count": new.size, "verdict": OTHER}
    apart = np.abs(old - new)
    alike = bool(np.all(apart <= np.maximum(tolerance * np.abs(old), NOTHING)))
    share = float((apart / np.maximum(np.abs(old), NOTHING)).max(initial=0.0))
    means = {"stored": float(old.mean()), "again": float(new.mean())} if new.size else {}
    return row | means | {"count": new.size, "apart": share, "verdict": SAME if alike else OTHER}


def verdict(rows: list[dict]) -> str:
    """Of all rows together: the same, or another where one of them is not."""
    return SAME if all(row["verdict"] == SAME for row in rows) else OTHER


def sentence(study: Study, told: dict, rows: list[dict], spent: float, texts: bool) -> str:
    """The verdict in words, with what was computed again and what was not."""
    count, wrong = sum(row["count"] for row in rows), [row["number"] for row in rows if row["verdict"] != SAME]
    apart = max((row["apart"] for row in rows if row["apart"] is not None), default=0.0)
    said = f"{count:,} stored numbers of {study.name} were computed again in {spent:.0f} seconds of a processor: "
    said += f"{'; '.join(wrong)} came out otherwise." if wrong else f"all came out the same, at most {apart:.1g} apart."
    if study.part is not None and not texts:
        said += f" Its rows need their texts: name the folder with --corpus. Left out: {about(study.part)}."
    if study.part is None:
        said += f" Its rows were not: {study.whole}."
    took = told.get("seconds")
    return said + (f" All of it took {took / 3600:.1f} hours." if took else "")


def checks(study: Study, told: dict) -> str:
    """Which command checks what was stored with this protocol, for a document."""
    return f"`{commandline('study', asked(study, told))}` checks a part of it in under two minutes."


def about(function: Any) -> str:
    """What a part is, from the first sentence of its docstring."""
    return " ".join(function.__doc__.split("\n\n")[0].split()).rstrip(".")


def _plain(row: Any) -> dict:
    return {key: value for key, value in row.items() if not isinstance(value, (list, dict))}
