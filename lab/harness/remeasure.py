"""Which stored studies are out of date, and measuring them again, the cheapest first."""

import copy
import time
from pathlib import Path

import pandas as pd

from analysis.errors import AnalysisError, BadSetting, Cancelled
from analysis.files import read_json
from analysis.models import Model
from analysis.runs import Result
from analysis.runs.stored import StudyProtocol, study_files
from analysis.studies import NAMED
from analysis.studies.context import Context, protocol
from analysis.studies.text.held_out import chosen

STOPPED = "stopped: it goes on when it is asked for again"


class OutOfTime(Cancelled):
    """The minutes are over; what was measured so far is stored."""


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
    files = study_files([folder / "studies" for folder in context.state_dirs(lm)])
    studies = {path.stem: read_json(path) or {} for path in files}
    stored = {name: numbers for name, numbers in studies.items() if study_of(numbers) in NAMED}
    rows = []
    for name in chosen(only, list(stored), "stored study"):
        made_with, why = stored[name]["protocol"], reasons(stored[name], lm)
        if why or not stale:
            row = {"name": name, "study": study_of(stored[name]), "why": ", ".join(why) or "asked for"}
            row |= {"seconds": made_with.get("seconds"), "state": "to be measured", "command": made_with["command"]}
            rows.append(row)
    rows.sort(key=lambda row: row["seconds"] or float("inf"))
    sentence = takes(rows)
    context.progress(0.0, sentence)
    end = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    for place, row in enumerate(rows):
        if time.monotonic() >= end:
            break
        try:
            inside = limited(context.within(place / len(rows), 1 / len(rows), row["name"]), end)
            measure_again(stored[row["name"]], lm, corpus, inside)
            row["state"] = "measured"
        except OutOfTime:
            row["state"] = STOPPED
        except Cancelled:
            raise
        except AnalysisError as error:
            row["state"] = str(error)
    numbers = {"sentence": sentence, "rows": rows, "protocol": protocol("remeasure", lm)}
    return Result(numbers, {"rows": pd.DataFrame(rows)})


def study_of(stored: dict) -> str:
    """The name of the study that this is stored of."""
    return str(stored.get("protocol", {}).get("verb", "")).removeprefix("study ")


def reasons(stored: dict, lm: Model) -> list[str]:
    """Why a stored study is out of date; empty where it is not."""
    made_with, study = stored["protocol"], NAMED[study_of(stored)]
    now = study.defaults | made_with.get("asked", {})
    checks = {
        "other weights": StudyProtocol.of(made_with).other_weights(lm.revision),
        "other version": StudyProtocol.of(made_with).other_version,
        "other sizes": made_with.get("sizes") != now,
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


def measure_again(stored: dict, lm: Model, corpus: str, context: Context) -> None:
    """Measure a stored study with what was asked for when it was stored. Errors: BadSetting, and those of the study."""
    made_with = stored["protocol"]
    study = NAMED[study_of(stored)]
    options = {"model": lm.name, "seed": made_with["seed"]} | made_with.get("asked", {})
    if folder := made_with.get("folder"):
        if not corpus:
            raise BadSetting(f"It reads the folder {folder}: name that, or the one it lies in, as the corpus.")
        inner = Path(corpus) / folder
        options["corpus"] = str(inner if inner.is_dir() else corpus)
    study(**options, context=context)


def limited(context: Context, end: float) -> Context:
    """The context, whose progress raises OutOfTime once the clock has passed `end`."""
    watched = copy.copy(context)

    def progress(done: float, stage: str) -> None:
        if time.monotonic() >= end:
            raise OutOfTime(f"The minutes were over during {stage}.")
        context.progress(done, stage)

    watched.progress = progress
    return watched
