"""The stored studies that `study NAME` runs, one line of `stored.csv` each. Loads nothing of them.

They are no commands: their sizes are declared in the lab, which a wheel does not hold, so that this table says what
pages need of them. A script `lab/NAME.py` that has no line there is a study too, one that no page shows.
"""

import ast
import csv
import re
from dataclasses import dataclass
from pathlib import Path

# The stored studies' own code; a wheel does not hold it.
LAB = Path(__file__).resolve().parents[2] / "lab"
ABLATIONS = "/train-a-router?evidence=ablations"
# A part that `search` hands out: one method on some stretches.
PART = "quality.search:search_part"


@dataclass(frozen=True)
class StoredStudy:
    """A named study whose result is stored.

    `place`: its module and function. `page`: the address that shows it. `version`: raise it when equal sizes give other
    numbers than before. `weights`: its numbers are of the model's weights; without, of models that it trains from
    nothing, with no more of the model than its tokenizer. `help`: one line about it.
    """

    place: str
    page: str
    version: int
    weights: bool
    help: str

    @property
    def title(self) -> str:
        """Its help as a heading."""
        return self.help[0].upper() + self.help[1:]

    @property
    def brief(self) -> str:
        """Its title up to the first comma, colon, semicolon or bracket: what a job of it is called."""
        return re.split(r"[,:;(]", self.title)[0].strip()

    def full_place(self) -> str:
        """Module and function that measure it."""
        return self.place if self.place.startswith("lab.") else f"{__package__}.{self.place}"


with Path(__file__).with_name("stored.csv").open(encoding="utf-8", newline="") as _table:
    STORED = {
        row["name"]: StoredStudy(row["place"], row["page"], int(row["version"]), row["weights"] != "no", row["help"])
        for row in csv.DictReader(_table)
    }


def scripts(folder: Path, listed: dict[str, StoredStudy]) -> dict[str, StoredStudy]:
    """Name -> study, of every script in a folder of the lab that no line of `stored.csv` lists: `some_name.py` holds
    the study `some-name` as `SomeName`, and the first line of its docstring says what it asks."""
    found, known = {}, {study.place.partition(":")[0] for study in listed.values()}
    for path in sorted(folder.glob("[a-z]*.py")):
        if f"lab.{path.stem}" not in known:
            question = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem
            kind, line = "".join(map(str.capitalize, path.stem.split("_"))), question.partition("\n")[0]
            place = f"lab.{path.stem}:{kind}.run"
            found[path.stem.replace("_", "-")] = StoredStudy(place, page="", version=1, weights=True, help=line)
    return found


STORED |= scripts(LAB, STORED)


def of_file(stem: str) -> tuple[str, str | None]:
    """(named study, router) of the file that holds its result: `top-k4-top1` is `top` with that router."""
    found = re.fullmatch(r"(.+?)(?:-(k\d+-top\d+.*))?", stem)
    return (found[1], found[2]) if found else (stem, None)


def version_of(study: str) -> int:
    """The version of a stored study; of one that is not in the table, the first."""
    return STORED[study].version if study in STORED else 1
