"""What stands beside a printed row: where a number of ours is stored, the command that makes it, and its state.

Nothing measured is written here: a `Number` says where it stands in a stored study or run, and `reading` looks there.
"""

import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..commands import commandline
from ..commands.groups import AS_PRINTED

MEASURED, ALIKE, RELATED, NOT_MEASURED, CANNOT_HOLD, DAMAGED = STATES = (
    "measured here",
    "same quantity",
    "related",
    "not measured",
    "cannot hold",
    "the printed text is damaged",
)
# Commands that read no weights.
SHAPES = ("bench", "worth", "pretrain")
UNITS = ("ppl", "share", "change", "nats", "x", "tokens", "keys", "points", "")
# What a command reads where a page fills in its own.
FILLED = {"text": "story", "corpus": "DIR"}
READS_ROUTER = re.compile(r"python -m \w+ study .*--router k(\d+)-top(\d+)(?:-(\w+))?")
FOLDS: dict[str, Callable[[list], float]] = {"median": statistics.median, "largest": max, "count": len}


@dataclass(frozen=True)
class Number:
    """Where one number of ours is stored."""

    says: str  # what it is, for a reader
    # Keys of what is stored and, where a list stands, the values that choose one of its rows.
    path: tuple[Any, ...]
    # One of UNITS: `share` is a fraction shown in per cent, `change` one with its sign.
    unit: str = "ppl"
    # The paper's column that prints the same quantity of the same kind of thing.
    column: str = ""
    # The stored study; without one the number stands in the run of the row's own job.
    study: str = ""
    # One of FOLDS, where a list of numbers stands, or of lists of them.
    fold: str = ""
    # Begins the names of the interval's ends, `low` and `high`, where its own name does not.
    ends: str | None = None


@dataclass(frozen=True)
class Reading:
    """A number that is stored."""

    number: Number
    value: float
    low: float | None = None  # of its 95% interval
    high: float | None = None
    stderr: float | None = None  # of a score
    items: int | None = None  # that a score is of


@dataclass(frozen=True)
class Job:
    """How a row is measured: by a button, and by the command that says the same."""

    # Without one there is the command alone, as `said`.
    verb: str = ""
    # A page fills in `model`, and `text` or `corpus`.
    args: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)  # what only the command says
    said: str = ""
    # Option of a study -> values that the row needs in its grid.
    adds: dict[str, Any] = field(default_factory=dict)

    def again(self, protocol: Mapping[str, Any]) -> "Job":
        """The job of a study that makes what is stored with this protocol again, and the row too where its grid lacks
        it. What was asked for stands in the protocol alone: a second record of it has been wrong before."""
        asked = dict(protocol.get("asked", {})) | ({"seed": protocol["seed"]} if protocol.get("seed") else {})
        for name in self.adds.keys() & asked.keys():
            joined = isinstance(asked[name], str)
            values = list(dict.fromkeys([*(asked[name].split(",") if joined else asked[name]), *self.adds[name]]))
            asked[name] = ",".join(values) if joined else values
        return replace(self, args=self.args | {name: asked[name] for name in asked if name not in self.args})

    @property
    def command(self) -> str:
        """The command line that measures the row, on the story or on a folder DIR."""
        args = {
            name: value if value is False else value or FILLED.get(name)
            for name, value in (self.args | self.more).items()
        }
        return self.said or commandline(self.verb, args)


def commands(command: str, model: str) -> list[str]:
    """The commands that lead to a number on a model, in their order: first the training of the router that the last
    one reads, if it reads one. A model without routers takes them all. `model` is put in where none is named."""
    training = []
    if router := READS_ROUTER.match(command):
        args = {"corpus": "DIR", "groups": int(router[1]), "top": int(router[2]), "label": router[3]}
        args = (AS_PRINTED if router[3] == "printed" else {}) | args
        training = [commandline("train-router", args)]
    if command.split()[3] in SHAPES:
        return [*training, command]
    named = re.search(r"--model (\S+)", command)
    option = f" --model {named[1] if named else model}"
    return [*(line + option for line in training), command if named else command + option]


@dataclass(frozen=True)
class Panel:
    """A place on a page that shows what a row is about."""

    page: str  # its address; empty for Start
    label: str  # what a reader calls it
    controls: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Beside:
    """What stands beside one printed row."""

    job: Job
    panel: Panel
    numbers: tuple[Number, ...] = ()
    # What is missing where nothing is measured.
    needs: str = ""
    # Why the row as printed cannot hold.
    cannot: str = ""
    # What of the printed text at hand is lost, which is no fault of the paper's.
    damaged: str = ""
    # The number of the finding that explains `cannot`.
    finding: int | None = None


# A number of ours as it is stored, or None.
Lookup = Callable[[Number, Beside], Reading | None]


def reading(number: Number, stored: Mapping[str, Any] | None) -> Reading | None:
    """The number in what is stored, or None where it is not there. The interval is `KEY_low` and `KEY_high`; a score, a
    `value`, has its `stderr` and `items`."""
    place: Any = stored
    holder: Any = {}
    for step in number.path:
        holder = place
        place = _row(place, step) if isinstance(step, Mapping) else _entry(place, step)
        if place is None:
            return None
    if number.fold and isinstance(place, Sequence) and (values := list(_flat(place))):
        place = FOLDS[number.fold](values)
    if isinstance(place, bool) or not isinstance(place, (int, float)):
        return None
    begin = f"{number.path[-1]}_" if number.ends is None else number.ends
    low, high = (_entry(holder, f"{begin}{end}") for end in ("low", "high"))
    score = (_entry(holder, "stderr"), _entry(holder, "items")) if number.path[-1] == "value" else ()
    return Reading(number, float(place), low, high, *score)


def readings(beside: Beside, lookup: Lookup) -> list[Reading]:
    """Every number of ours that is stored for a row."""
    values = (lookup(number, beside) for number in beside.numbers)
    return [number for number in values if number is not None]


def row_state(beside: Beside, differences: Sequence[str], stored: Sequence[Reading]) -> str:
    """One of STATES. `differences`: of each number that is a quantity the row prints, what it was measured on that the
    row was not. A row is measured where one has none, alike where all have one, and related where only other quantities
    are stored. A row that cannot hold, or whose text is damaged, stays so, whatever is measured."""
    if beside.cannot or beside.damaged:
        return CANNOT_HOLD if beside.cannot else DAMAGED
    if differences:
        return MEASURED if "" in differences else ALIKE
    return RELATED if stored else NOT_MEASURED


def _flat(values: Iterable) -> Iterator[float]:
    """The numbers of a list, or of lists in it."""
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield value


def _row(rows: object, wanted: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        return None
    return next((row for row in rows if all(row.get(name) == value for name, value in wanted.items())), None)


def _entry(holder: object, name: Any) -> Any:
    if isinstance(holder, Mapping):
        return holder.get(name)
    if isinstance(holder, Sequence) and isinstance(name, int) and name < len(holder):
        return holder[name]
    return None
