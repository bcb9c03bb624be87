"""Whether the headline conclusions of the stored studies are what they were on the first bundled model.

`before.csv` holds one headline per line: the stored study (the name of its file), what is concluded, the number behind
it (the list it lies in, `NAME=VALUE` or `NAME~BEGINNING` that find its row, and its key), whether it is a difference
(or a level, on no side of 0), and what it was on the first model, which hardly read far: revision de617271ffab,
November 2026. Models trained from scratch had its tokenizer and texts then.
"""

import csv
import re
from functools import cache
from pathlib import Path

SAME, FLIPPED = "the same", "the other way round"
WAITS = "not measured again yet"
LOST, FOUND, NEITHER = "no longer significant", "significant now", "significant on neither"
WITH_PLAIN_ENDS = {"difference": "", "mean": "", "recovery": "", "against_static": "against_"}  # and what leads theirs


@cache
def headlines() -> list[dict]:
    """The lines of `before.csv`; an empty interval is None."""
    with open(Path(__file__).with_name("before.csv"), encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    ends = ("before", "before_low", "before_high")
    return [row | {name: float(row[name]) if row[name] else None for name in ends} for row in rows]


def conclusions(studies: dict[str, dict]) -> list[dict]:
    """Every headline: `study conclusion before now verdict`, the values with `_low` and `_high` (None: no interval).
    One whose study is not among `studies` (file name -> numbers), or has no such row any more, waits."""
    rows = []
    for line in headlines():
        row = {name: line[name] for name in ("study", "conclusion", "before", "before_low", "before_high")}
        now = found(line, studies.get(line["study"], {}))
        before = (line["before"], line["before_low"], line["before_high"])
        outcome = ""
        if now is None:
            outcome = WAITS
        elif line["judged"] == "yes":
            outcome = verdict(before, now)
        row |= dict(zip(("now", "now_low", "now_high"), now or [None] * 3, strict=True))
        rows.append(row | {"verdict": outcome})
    return rows


def found(line: dict, numbers: dict) -> tuple[float, float | None, float | None] | None:
    """(value, low, high) of a headline in the numbers of its study; None where the study has no such row."""
    wanted = re.findall(r"(\w+)([=~])([^;]*)", line["where"])
    rows = [
        row
        for row in numbers.get(line["table"], [])
        if all(_fits(str(row.get(name)), value, sign == "=") for name, sign, value in wanted)
    ]
    if len(rows) != 1 or rows[0].get(line["key"]) is None:
        return None
    row = rows[0]
    low, high = [row[end] for end in ends_of(row, line["key"])] or (None, None)
    return row[line["key"]], low, high


def _fits(said: str, value: str, whole: bool) -> bool:
    return said == value if whole else said.startswith(value)


def ends_of(row: dict, name: str) -> list[str]:
    """The keys of the interval of a value, if the row has one: `NAME_low` and `NAME_high`, or `low` and `high`."""
    plain = WITH_PLAIN_ENDS.get(name)
    keys = ([f"{name}_low", f"{name}_high"], [] if plain is None else [f"{plain}low", f"{plain}high"])
    return next((pair for pair in keys if pair and all(key in row for key in pair)), [])


def verdict(before: tuple, now: tuple) -> str:
    """What became of a difference, each (value, low, high): on which side of 0 it lay and lies. Without intervals
    nothing is said."""
    if None in (*before, *now):
        return ""
    was, is_ = (0 if low <= 0 <= high else 1 if value > 0 else -1 for value, low, high in (before, now))
    if was == is_:
        return SAME if was else NEITHER
    return FLIPPED if was and is_ else LOST if was else FOUND


def changed(study: str, numbers: dict) -> list[str]:
    """One sentence for each headline of a stored study that lies on another side of 0 than on the first model."""
    rows = (row for row in conclusions({study: numbers}) if row["study"] == study)
    return [
        f"{row['conclusion']}: {row['verdict']} with this model. {_spelled(row, 'before')} on the first "
        f"bundled one, which hardly read far; {_spelled(row, 'now')} here."
        for row in rows
        if row["verdict"] in (FLIPPED, LOST, FOUND)
    ]


def _spelled(row: dict, name: str) -> str:
    return f"{row[name]:+.4f} ({row[f'{name}_low']:+.4f} to {row[f'{name}_high']:+.4f})"
