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
WITH_PLAIN_ENDS = {"difference": "", "mean": "", "recovery": "", "against_static": "against_"}  # and what leads theirs


@dataclass(frozen=True)
class Headline:
    """A line of `before.csv`."""

    study: str  # the name of its file
    conclusion: str
    table: str  # the list that its number lies in
    where: str  # finds its row there: `NAME=VALUE`, or `NAME~BEGINNING`, with a semicolon between
    key: str  # of the number in the row
    judged: bool  # it is a difference; a level lies on no side of 0
    before: Comparison  # on the first model

    def now(self, numbers: Mapping[str, Any]) -> Comparison | None:
        """The same in the numbers of its study; None where the study has no such row, or more than one."""
        wanted = re.findall(r"(\w+)([=~])([^;]*)", self.where)
        rows = [
            row
            for row in numbers.get(self.table, [])
            if all(_fits(str(row.get(name)), value, sign == "=") for name, sign, value in wanted)
        ]
        if len(rows) != 1 or rows[0].get(self.key) is None:
            return None
        low, high = [rows[0][end] for end in ends_of(rows[0], self.key)] or (None, None)
        return Comparison(rows[0][self.key], low, high)


@dataclass(frozen=True)
class Conclusion:
    """What became of a headline."""

    headline: Headline
    now: Comparison | None  # None where its study waits to be measured again
    verdict: str  # empty where nothing is judged


@cache
def headlines() -> list[Headline]:
    """The lines of `before.csv`."""
    with open(Path(__file__).with_name("before.csv"), encoding="utf-8", newline="") as lines:
        return [
            Headline(
                study=line["study"],
                conclusion=line["conclusion"],
                table=line["table"],
                where=line["where"],
                key=line["key"],
                judged=line["judged"] == "yes",
                before=Comparison(float(line["before"]), _number(line["before_low"]), _number(line["before_high"])),
            )
            for line in csv.DictReader(lines)
        ]


def conclusions(studies: Mapping[str, Mapping[str, Any]]) -> list[Conclusion]:
    """Every headline. One whose study is not among `studies` (file name -> numbers), or has no such row any more,
    waits."""
    judged = []
    for headline in headlines():
        now = headline.now(studies.get(headline.study, {}))
        became = WAITS if now is None else verdict(headline.before, now) if headline.judged else ""
        judged.append(Conclusion(headline, now, became))
    return judged


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


def _number(text: str) -> float | None:
    return float(text) if text else None


def _fits(value: str, wanted: str, exactly: bool) -> bool:
    return value == wanted if exactly else value.startswith(wanted)


def ends_of(row: dict, name: str) -> list[str]:
    """The keys of the interval of a value, if the row has one: `NAME_low` and `NAME_high`, or `low` and `high`."""
    plain = WITH_PLAIN_ENDS.get(name)
    keys = ([f"{name}_low", f"{name}_high"], [] if plain is None else [f"{plain}low", f"{plain}high"])
    return next((pair for pair in keys if pair and all(key in row for key in pair)), [])
