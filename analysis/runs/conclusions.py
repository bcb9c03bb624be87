"""Whether the headline conclusions of the stored studies are what they were on the first bundled model.

`before.csv` holds one headline per line: the stored study (the name of its file), what is concluded, the number behind
it (the list it lies in, `NAME=VALUE` or `NAME~BEGINNING` that find its row, and its key), whether it is a difference
(or a level, on no side of 0), and what it was on the first model, which hardly read far: revision de617271ffab,
November 2026. Models trained from scratch had its tokenizer and texts then.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..claims import Comparison, Verdict

SAME, FLIPPED = "the same", "the other way round"
WAITS = "not measured again yet"
LOST, FOUND, NEITHER = "no longer significant", "significant now", "significant on neither"
# Numbers whose interval stands under plain names, and what leads those.
PLAIN_ENDS = {"difference": "", "mean": "", "recovery": "", "against_static": "against_"}


@dataclass(frozen=True)
class Headline:
    """A line of `before.csv`."""

    study: str  # the name of its file
    conclusion: str
    # The list that its number lies in.
    table: str
    # Finds its row there: `NAME=VALUE`, or `NAME~BEGINNING`, with a semicolon between.
    where: str
    key: str  # of the number in the row
    # It is a difference; a level lies on no side of 0.
    judged: bool
    before: Comparison  # on the first model

    def now(self, numbers: Mapping[str, Any]) -> Comparison | None:
        """The same in the numbers of its study; None where the study has no such row, or more than one."""
        rows = numbers.get(self.table, [])
        for name, sign, wanted in re.findall(r"(\w+)([=~])([^;]*)", self.where):
            matches = str.__eq__ if sign == "=" else str.startswith
            rows = [row for row in rows if matches(str(row.get(name)), wanted)]
        if len(rows) != 1 or rows[0].get(self.key) is None:
            return None
        return Comparison(rows[0][self.key], *(rows[0][end] for end in ends_of(rows[0], self.key)))


@dataclass(frozen=True)
class Conclusion:
    """What became of a headline."""

    headline: Headline
    # None where its study waits to be measured again.
    now: Comparison | None

    @property
    def verdict(self) -> str:
        """What became of it in words; empty where nothing is judged."""
        if self.now is None:
            return WAITS
        return verdict(self.headline.before, self.now) if self.headline.judged else ""


@cache
def headlines() -> list[Headline]:
    """The lines of `before.csv`."""

    def headline(*, judged: str, before: str, before_low: str, before_high: str, **names: str) -> Headline:
        low, high = (float(end) if end else None for end in (before_low, before_high))
        return Headline(**names, judged=judged == "yes", before=Comparison(float(before), low, high))

    with open(Path(__file__).with_name("before.csv"), encoding="utf-8", newline="") as lines:
        return [headline(**line) for line in csv.DictReader(lines)]


def conclusions(studies: Mapping[str, Mapping[str, Any]]) -> list[Conclusion]:
    """Every headline. One whose study is not among `studies` (file name -> numbers), or has no such row any more,
    waits."""
    return [Conclusion(headline, headline.now(studies.get(headline.study, {}))) for headline in headlines()]


def verdict(before: Comparison, now: Comparison) -> str:
    """What became of a difference: on which side of 0 it lay and lies. Without intervals nothing is said."""
    if Verdict.NOT_JUDGED in (before.verdict, now.verdict):
        return ""
    if before.direction == now.direction:
        return SAME if before.direction else NEITHER
    if not now.direction:
        return LOST
    return FLIPPED if before.direction else FOUND


def changed(study: str, numbers: Mapping[str, Any]) -> list[str]:
    """One sentence for each headline of a stored study that lies on another side of 0 than on the first model."""
    return [
        f"{of.headline.conclusion}: {of.verdict} with this model. {of.headline.before.bracketed} on the first bundled "
        f"one, which hardly read far; {of.now.bracketed} here."
        for of in conclusions({study: numbers})
        if of.headline.study == study and of.now is not None and of.verdict in (FLIPPED, LOST, FOUND)
    ]


def ends_of(row: dict, name: str) -> list[str]:
    """The keys of the interval of a value, if the row has one: `NAME_low` and `NAME_high`, or `low` and `high`."""
    for lead in [f"{name}_", *([PLAIN_ENDS[name]] if name in PLAIN_ENDS else [])]:
        if f"{lead}low" in row and f"{lead}high" in row:
            return [f"{lead}low", f"{lead}high"]
    return []
