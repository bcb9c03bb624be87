"""Which stored studies are out of date, and measuring them again, the cheapest first."""

import copy
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from analysis.errors import AnalysisError, BadSetting, Cancelled
from analysis.files import read_json
from analysis.models import Model
from analysis.runs import Result
from analysis.runs.stored import StudyProtocol, study_files
from analysis.studies import NAMED
from analysis.studies.context import Context, protocol
from analysis.studies.stored.runner import Study
from analysis.studies.text.held_out import chosen

STOPPED = "stopped: it goes on when it is asked for again"


class OutOfTime(Cancelled):
    """The minutes are over; what was measured so far is kept."""


def remeasure(
    model: str = "demo",
    corpus: str = "",
    stale: bool = False,
    only: str | None = None,
    minutes: float | None = None,
    *,
    context: Context,
) -> Result:
    """Measure the stored studies of a model again, in order of what they cost, and say before what that will take.

    `stale`: only those of other weights, of another version or of other default sizes than now. `only`: names of stored
    files, joined by commas. `corpus`: the folder of texts, or the one that holds it and the folders of other studies.
    After so many `minutes` it stops, and goes on when it is asked for again; 0 measures nothing.
    numbers: `rows` (`name study why seconds state command`), `sentence`. table: `rows`. Errors: BadSetting.
    """
    lm = context.model(model)
    stored = stored_studies(context, lm)
    wanted = [name for name in chosen(only, list(stored), "stored study") if not stale or reasons(stored[name], lm)]
    wanted.sort(key=lambda name: stored[name]["protocol"].get("seconds") or float("inf"))
    rows = [_row(name, stored[name], lm) for name in wanted]
    sentence = takes(rows)
    context.progress(0.0, sentence)
    end = None if minutes is None else time.monotonic() + 60 * minutes
    for place, row in enumerate(rows):
        if end is not None and time.monotonic() >= end:
            break
        watched = copy.copy(context)
        watched.progress = _told(context, row["name"], place / len(rows), 1 / len(rows), end)
        try:
            _again(stored[row["name"]], lm, corpus, watched)
            row["state"] = "measured"
        except OutOfTime:
            row["state"] = STOPPED
        except Cancelled:
            raise
        except AnalysisError as error:
            row["state"] = str(error)
    numbers = {"sentence": sentence, "rows": rows, "protocol": protocol("remeasure", lm)}
    return Result(numbers, {"rows": pd.DataFrame(rows)})


def stored_studies(context: Context, lm: Model) -> dict[str, dict]:
    """Name of the file -> what is stored, of every stored study of a model; where two folders hold one, the first."""
    files = study_files([folder / "studies" for folder in context.state_dirs(lm)])
    studies = {path.stem: read_json(path) for path in files}
    return {name: numbers for name, numbers in studies.items() if numbers and _study(numbers)}


def reasons(stored: dict, lm: Model) -> list[str]:
    """Why a stored study is out of date; empty where it is not."""
    protocol, study = stored["protocol"], _study(stored)
    now = dataclasses.asdict(study.sizes(**protocol.get("asked", {})))
    changed = protocol.get("sizes") != {name: now[name] for name in study.defaults}
    checks = {
        "other weights": StudyProtocol.of(protocol).other_weights(lm.revision),
        "other version": StudyProtocol.of(protocol).other_version,
        "other sizes": changed,
    }
    return [reason for reason, holds in checks.items() if holds]


def takes(rows: list[dict]) -> str:
    """What measuring these rows will take, in words."""
    if not rows:
        return "No stored study is out of date or was asked for: nothing is measured."
    text = f"To be measured again: {', '.join(row['name'] for row in rows)}."
    seconds = [row["seconds"] for row in rows if row["seconds"]]
    if not seconds:
        return f"{text} How long that took before is not stored."
    unknown = len(rows) - len(seconds)
    without = f", without {unknown} of them, whose time is not stored" if unknown else ""
    return f"{text} Before, that took about {sum(seconds) / 3600:.1f} hours{without}."


def _study(stored: dict) -> Study | None:
    name = str(stored.get("protocol", {}).get("verb", "")).removeprefix("study ")
    return NAMED[name] if name in NAMED else None


def _row(name: str, stored: dict, lm: Model) -> dict:
    protocol = stored["protocol"]
    about = {"name": name, "study": _study(stored).name, "why": ", ".join(reasons(stored, lm)) or "asked for"}
    return about | {"seconds": protocol.get("seconds"), "state": "to be measured", "command": protocol["command"]}


def _again(stored: dict, lm: Model, corpus: str, context: Context) -> None:
    """Measure a stored study with what was asked for when it was stored. Errors: BadSetting, and those of the study."""
    protocol, study = stored["protocol"], _study(stored)
    given = {"model": lm.name, "seed": protocol["seed"]} | protocol.get("asked", {})
    if "folder" in protocol:
        if not corpus:
            raise BadSetting(
                f"It reads the folder {protocol['folder']}: name that, or the one it lies in, as the corpus."
            )
        inner = Path(corpus) / protocol["folder"]
        given["corpus"] = str(inner if inner.is_dir() else corpus)
    study(**given, context=context)


def _told(context: Context, name: str, began: float, share: float, end: float | None) -> Callable[[float, str], None]:
    """Progress of one study as a part of all; raises OutOfTime when the minutes are over."""

    def told(done: float, stage: str) -> None:
        if end is not None and time.monotonic() >= end:
            raise OutOfTime(f"The minutes were over during {name}.")
        context.progress(min(1.0, began + share * done), f"{name}: {stage}")

    return told
