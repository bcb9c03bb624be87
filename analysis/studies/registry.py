"""What every verb is: where its function lives, what it leaves behind, and which page shows its runs. Loads nothing.

A verb is a line of `verbs.csv`, a named study one of `stored.csv`: the columns are the fields of `Verb`, and `leaves`
those that are true. A script `lab/NAME.py` that has no line there is a study too, one that no page shows.

Everything else about a verb is derived: its options from the signature of the function (`analysis.cli`), the command
that repeats a run (`analysis.commandline`), what a shared demo allows (`analysis.limits`), the identity of a run.
"""

import ast
import csv
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Verb:
    """One verb, or one named study.

    `place`: module and function, `room.module:function` below `analysis.studies`, or a full name. `help`: one line of
    `--help`. `changes`: it leaves something that every reader of an installation sees. `exclusive`: it takes the
    machine for itself, to time or to train. `stored`: it leaves a stored study. `page`: address of the page that shows
    its runs, with the control of its tab (`/kv-budgets?budgets=cap`; `/` is Start, empty: no page shows them).
    `version`: raise it when equal arguments give other numbers than before; older runs are then no longer found.
    `weights`: its numbers are of the model's weights; without, of models that it trains from nothing, with no more of
    the model than its tokenizer.
    """

    place: str
    help: str
    changes: bool = False
    exclusive: bool = False
    stored: bool = False
    page: str = ""
    version: int = 1
    weights: bool = True

    @property
    def module(self) -> str:
        """The full name of the module."""
        name = self.place.partition(":")[0]
        if name.startswith(OUTSIDE):
            return name
        if name.startswith("analysis."):
            return f"{ANALYSIS}.{name.removeprefix('analysis.')}"
        return f"{__package__}.{name}"

    @property
    def function(self) -> str:
        """The name of the function in it."""
        return self.place.partition(":")[2]

    @property
    def title(self) -> str:
        """Its help as a heading."""
        return self.help[0].upper() + self.help[1:]

    @property
    def brief(self) -> str:
        """Its title up to the first comma, colon, semicolon or bracket: what a job of it is called."""
        return re.split(r"[,:;(]", self.title)[0].strip()

    @property
    def study(self) -> bool:
        """Whether it is a study, which the worker offers; the others only read and write files or start processes."""
        return self.module.startswith(f"{__package__}.")


OUTSIDE = ("lab.", "tests.")  # beside the analysis in a checkout
ANALYSIS = __name__.removesuffix(".studies.registry")  # a wheel holds it as focuscope.analysis
LAB = Path(__file__).resolve().parents[2] / "lab"  # the stored studies' own code; a wheel does not hold it
ABLATIONS = "/train-a-router?evidence=ablations"


def _read(file: str, leaves: str = "") -> dict[str, Verb]:
    """Name -> verb, of a table beside this file; lines that begin with # head what follows them."""
    found = {}
    with open(Path(__file__).with_name(file), encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(line for line in lines if not line.startswith("#")):
            left = (row.get("leaves") or leaves).split()
            flags = ("changes" in left, "exclusive" in left, "stored" in left)
            weights = row.get("weights") != "no"
            found[row["name"]] = Verb(row["place"], row["help"], *flags, row["page"], int(row["version"]), weights)
    return found


def scripts(folder: Path, listed: dict[str, Verb]) -> dict[str, Verb]:
    """Name -> study, of every script in a folder of the lab that no line of `stored.csv` lists: `some_name.py` holds
    the study `some-name` as `some_name`, and the first line of its docstring says what it asks."""
    found, known = {}, {verb.module for verb in listed.values()}
    for path in sorted(folder.glob("[a-z]*.py")):
        if f"lab.{path.stem}" not in known:
            question = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem
            place = f"lab.{path.stem}:{path.stem}"
            found[path.stem.replace("_", "-")] = Verb(place, question.partition("\n")[0], True, True, True)
    return found


VERBS = _read("verbs.csv")
STORED = _read("stored.csv", leaves="changes exclusive stored")  # what `study NAME` runs
STORED |= scripts(LAB, STORED)
SHARED = {  # study that hands out parts of its own -> (what a part is called, where it is computed)
    "search": ("search-part", Verb("quality.search:search_part", "one method on some stretches of a search")),
}


def of_file(stem: str) -> tuple[str, str | None]:
    """(named study, router) of the file that holds its result: `top-k4-top1` is `top` with that router."""
    found = re.fullmatch(r"(.+?)(?:-(k\d+-top\d+.*))?", stem)
    return (found[1], found[2]) if found else (stem, None)


def version_of(study: str) -> int:
    """The version of a stored study; of one that is not in the table, the first."""
    return STORED[study].version if study in STORED else 1
