"""What stands beside a printed row: where a number of ours is stored, the command that makes it, and its state.

Nothing measured is written here: a `Number` says where it stands in a stored study or run, and `reading` looks there.
"""

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from analysis.commandline import commandline

MEASURED, RELATED, NOT_MEASURED, CANNOT_HOLD, DAMAGED = STATES = (
    "measured here",
    "related",
    "not measured",
    "cannot hold",
    "the printed text is damaged",
)
SHAPES = ("bench", "worth")  # verbs that read no weights
UNITS = ("ppl", "share", "change", "nats", "x", "tokens", "keys", "points", "")
FILLED = {"text": "story", "corpus": "DIR"}  # what a command reads where a page fills in its own
TRAINED = re.compile(r"python -m \w+ study .*--router k(\d+)-top(\d+)\b")  # these read a trained router
FOLDS = {"": None, "median": statistics.median, "largest": max, "count": len}


@dataclass(frozen=True)
class Number:
    """One number of ours: what it `says`, and its `path`, keys and, where a list stands, the values that choose one of
    its rows. `study` names the stored study; without one the number stands in the run of the row's own job. `column`:
    the paper's column that prints the same quantity of the same kind of thing, if there is one. `unit` is one of UNITS:
    `share` is a fraction shown in per cent, `change` one with its sign. `fold`: one of FOLDS, where a list stands of
    numbers, or of lists of them. `ends` begins the names of the interval's ends, `low` and `high`, where the number's
    own name does not.
    """

    says: str
    path: tuple
    unit: str = "ppl"
    column: str = ""
    study: str = ""
    fold: str = ""
    ends: str | None = None


@dataclass(frozen=True)
class Reading:
    """A number that was found, with its 95% interval, its standard error and the items it is of, where they are
    stored."""

    number: Number
    value: float
    low: float | None = None
    high: float | None = None
    stderr: float | None = None
    items: int | None = None


@dataclass(frozen=True)
class Job:
    """How a row is measured: `verb` and `args`, for a button and for the command; without a verb the command alone, as
    it is `said`. A page fills in `model`, and `text` or `corpus` where the verb takes one; `more` is what only the
    command says. `adds`: options of a study, each with the values without which its grid would lack the row."""

    verb: str = ""
    args: dict = field(default_factory=dict)
    more: dict = field(default_factory=dict)
    said: str = ""
    adds: dict = field(default_factory=dict)

    def again(self, protocol: Mapping) -> "Job":
        """The job of a study that makes what is stored with this protocol again, and the row too where its grid lacks
        it: what it was asked for stands in the protocol alone, and a second record of it has been wrong before."""
        asked = dict(protocol.get("asked", {})) | ({"seed": protocol["seed"]} if protocol.get("seed") else {})
        for name in self.adds.keys() & asked.keys():
            listed = asked[name].split(",") if isinstance(asked[name], str) else asked[name]
            every = list(dict.fromkeys([*listed, *self.adds[name]]))
            asked[name] = ",".join(every) if isinstance(asked[name], str) else every
        return replace(self, args=self.args | {name: asked[name] for name in asked if name not in self.args})

    @property
    def command(self) -> str:
        """The command line that measures the row, on the story or on a folder DIR."""
        return self.said or commandline(self.verb, {n: v or FILLED.get(n) for n, v in (self.args | self.more).items()})


def commands(command: str, model: str) -> list[str]:
    """The commands that lead to a number on a model, in their order: first the training of the router that the last
    one reads, if it reads one. A model without routers takes them all. `model` is put in where none is named."""
    first, found = [], TRAINED.match(command)
    if found:
        first = [commandline("train-router", {"corpus": "DIR", "groups": int(found[1]), "top": int(found[2])})]
    named = re.search(r"--model (\S+)", command)
    if command.split()[3] in SHAPES:
        return [*first, command]
    said = f" --model {named[1] if named else model}"
    return [*(one + said for one in first), command if named else command + said]


@dataclass(frozen=True)
class Panel:
    """A place on a page that shows what a row is about: the page's address, what a reader calls it, its controls."""

    page: str
    label: str
    controls: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Beside:
    """What stands beside one printed row. `cannot`: why the row as printed cannot hold, with the number of the
    `finding`; `damaged`: what of the printed text at hand is lost, which is no fault of the paper's; `needs`: what is
    missing where nothing is measured."""

    job: Job
    panel: Panel
    numbers: tuple[Number, ...] = ()
    needs: str = ""
    cannot: str = ""
    damaged: str = ""
    finding: int | None = None


Found = Callable[[Number, Beside], Mapping | None]  # the stored numbers that a number stands in, or None


def reading(number: Number, stored: Mapping | None) -> Reading | None:
    """The number in what is stored, or None where it is not there. The interval is `KEY_low` and `KEY_high`; a score, a
    `value`, has its `stderr` and `items`."""
    at, inside = stored, {}
    for step in number.path:
        inside = at
        at = _row(at, step) if isinstance(step, Mapping) else _entry(at, step)
        if at is None:
            return None
    if number.fold and isinstance(at, Sequence) and (listed := _flat(at)):
        at = FOLDS[number.fold](listed)
    if isinstance(at, bool) or not isinstance(at, (int, float)):
        return None
    begin = f"{number.path[-1]}_" if number.ends is None else number.ends
    low, high = (_entry(inside, f"{begin}{end}") for end in ("low", "high"))
    score = (_entry(inside, "stderr"), _entry(inside, "items")) if number.path[-1] == "value" else ()
    return Reading(number, float(at), low, high, *score)


def readings(beside: Beside, found: Found) -> list[Reading]:
    """Every number of ours that is stored for a row."""
    read = (reading(number, found(number, beside)) for number in beside.numbers)
    return [one for one in read if one is not None]


def state(beside: Beside, known: Sequence[Reading], printed: Iterable[str]) -> str:
    """One of STATES, for a row that prints these columns. It is measured where a number of ours stands beside one of
    them, and related where only other quantities are known. A row that cannot hold, or whose text is
    damaged, stays so, whatever is measured."""
    if beside.cannot or beside.damaged:
        return CANNOT_HOLD if beside.cannot else DAMAGED
    if {one.number.column for one in known} & set(printed):
        return MEASURED
    return RELATED if known else NOT_MEASURED


def _flat(listed: Sequence) -> list:
    """The numbers of a list, or of lists in it."""
    return [value for one in listed for value in (_flat(one) if isinstance(one, list) else [one])]


def _row(rows: object, wanted: Mapping) -> Mapping | None:
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        return None
    return next((row for row in rows if all(row.get(name) == value for name, value in wanted.items())), None)


def _entry(holder: object, name: object) -> object:
    if isinstance(holder, Mapping):
        return holder.get(name)
    places = isinstance(holder, Sequence) and isinstance(name, int) and name < len(holder)
    return holder[name] if places else None
