"""A stored study checked in under two minutes: a part of its numbers computed again, beside what is stored.

Measuring a study again takes up to hours. What `sample` gives of the bundled samples, and `part` of the study's own
texts, is the same code on less, so that a reader can see whether the stored numbers are what this program gives.
"""

import string
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from ...commands import commandline
from ...errors import BadSetting
from ...files import read_json
from ...models import Model
from ...runs import Result
from ...runs.stored import StudyProtocol, study_files
from ..context import Context, protocol

# A share that is 0 but for rounding differs between processors, by less than this.
NEGLIGIBLE = 1e-5
SAME, OTHER, GONE = "the same", "another", "not stored"


def check(run: Any, stored: dict) -> Result:
    """What is stored of a study beside the part of it that is computed again; nothing is stored. `run` is the `Setting`
    of the study, its corpus the folder that was named.

    numbers: `rows` (`number count stored again apart verdict`: of a list the means, and the largest distance as a
    share of the stored value), `verdict`, `sentence`, `cpu_seconds`. table: `rows`. Errors: BadSetting.
    """
    study, made_with, began = run.sizes, stored["protocol"], time.process_time()
    texts = bool(run.corpus) or "folder" not in made_with
    pieces = {"check": study.sample(run, stored)} | (study.part(run, stored) if texts else {})
    rows = [compared(*leaf, study.tolerance) for leaf in leaves(pieces, stored)]
    seconds = time.process_time() - began
    numbers = {
        "rows": rows,
        "verdict": SAME if all(row["verdict"] == SAME for row in rows) else OTHER,
        "cpu_seconds": round(seconds, 1),
        "sentence": sentence(study, made_with, rows, seconds, texts),
        "protocol": protocol(f"study {study.name}", run.lm, command=commandline("study", asked(study, made_with))),
    }
    return Result(numbers, {"rows": pd.DataFrame(rows)})


def stored_of(study: Any, defaults: dict[str, Any], context: Context, lm: Model) -> dict:
    """What is stored of a study for a model. Errors: BadSetting where nothing is, where it is of other weights or of an
    earlier version, and for options that would change what was measured."""
    options = {name: value for name, value in vars(study).items() if name in defaults and name not in _in_file(study)}
    if changed := [name for name, value in options.items() if value != defaults[name]]:
        raise BadSetting(f"A quick check takes the sizes of what is stored: leave {', '.join(changed)} out.")
    file = (study.file or study.name).format(**vars(study))
    paths = study_files([folder / "studies" for folder in context.state_dirs(lm)])
    stored = next((read_json(path) for path in paths if path.stem == file), None)
    if not stored:
        raise BadSetting(f"Nothing is stored of the study {file} for {lm.name}: measure it before it is checked.")
    made_with = StudyProtocol.of(stored["protocol"])
    if made_with.other_weights(lm.revision) or made_with.other_version:
        raise BadSetting(f"The stored study {file} is of other weights or of an earlier program: measure it again.")
    return stored


def asked(study: Any, made_with: dict) -> dict[str, Any]:
    """The arguments of the command that checks what was stored with this protocol."""
    corpus = {"corpus": "DIR"} if "folder" in made_with else {}
    changed = {name: made_with["sizes"][name] for name in _in_file(study) if name in made_with["asked"]}
    return {"name": study.name} | corpus | {"model": made_with["model"]} | changed | {"quick": True}


def _in_file(study: Any) -> list[str]:
    """The options that the name of the study's file holds."""
    return [name for _, name, _, _ in string.Formatter().parse(study.file) if name]


def leaves(again: Any, stored: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(name, stored, computed again) of all numbers of a piece of a study. A row of a table stands beside the stored
    one that has its words, of several beside the likest, and numbers in one list stay together."""
    if isinstance(again, dict):
        for key, value in again.items():
            inside = stored.get(key) if isinstance(stored, dict) else None
            yield from leaves(value, inside, f"{name}, {key}" if name else key)
    elif isinstance(again, list) and any(isinstance(row, dict) for row in again):
        for row in again:
            words = {key: value for key, value in row.items() if not isinstance(value, (float, list, dict))}
            alike = []
            for candidate in stored or ():
                plain = {key: value for key, value in candidate.items() if not isinstance(value, (list, dict))}
                if words.items() <= plain.items():
                    alike.append((sum(candidate.get(key) == value for key, value in row.items()), candidate))
            beside = max(alike, key=lambda pair: pair[0])[1] if alike else None
            spelled = " ".join(str(value) for value in words.values() if value is not None)
            yield from leaves({key: row[key] for key in row if key not in words}, beside, f"{name}, {spelled}")
    else:
        yield name, stored, again


def compared(name: str, stored: Any, again: Any, tolerance: float) -> dict[str, Any]:
    """One number, list or word beside the stored one."""
    row = {"number": name, "count": 1, "stored": stored, "again": again, "apart": None}
    if stored is None and again is not None:
        return row | {"verdict": GONE}
    if isinstance(again, (str, bool, type(None))) or isinstance(stored, str):
        return row | {"verdict": SAME if stored == again else OTHER}
    old, new = (np.ravel(np.array(values, dtype=float)) for values in (stored, again))
    if old.shape != new.shape:
        return row | {"stored": None, "again": None, "count": new.size, "verdict": OTHER}
    apart = np.abs(old - new)
    alike = bool(np.all(apart <= np.maximum(tolerance * np.abs(old), NEGLIGIBLE)))
    share = float((apart / np.maximum(np.abs(old), NEGLIGIBLE)).max(initial=0.0))
    means = {"stored": float(old.mean()), "again": float(new.mean())} if new.size else {}
    return row | means | {"count": new.size, "apart": share, "verdict": SAME if alike else OTHER}


def sentence(study: Any, made_with: dict, rows: list[dict], seconds: float, texts: bool) -> str:
    """The verdict in words, with what was computed again and what was not."""
    count, wrong = sum(row["count"] for row in rows), [row["number"] for row in rows if row["verdict"] != SAME]
    apart = max((row["apart"] for row in rows if row["apart"] is not None), default=0.0)
    text = f"{count:,} stored numbers of {study.name} were computed again in {seconds:.0f} seconds of a processor: "
    text += f"{'; '.join(wrong)} came out otherwise." if wrong else f"all came out the same, at most {apart:.1g} apart."
    if study.whole:
        text += f" Its rows were not: {study.whole}."
    elif not texts:
        text += " Its rows need their texts: name the folder with --corpus."
    took = made_with.get("seconds")
    return text + (f" All of it took {took / 3600:.1f} hours." if took else "")
