"""Comparisons and what they allow to say: the one place that words "better", "worse" and "not significant".

A `Comparison` is numbers alone: a paired difference, its interval, what it is corrected for. A `Claim` says it of a
subject. Pages, stored studies, notes and documents all take their verdicts from here, so that the same numbers are
never told in two ways.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

SIGNIFICANCE = 0.05
# Effects of 2.8 standard errors are found four times in five: 1.96 for the test at 5% and 0.84 for a power of 80%.
# A 95% interval is about 2 * 1.96 standard errors wide.
DETECTABLE = 2.8 / (2 * 1.96)


class Verdict(StrEnum):
    """What a comparison allows to say of a value and of what it is compared with."""

    LOWER = "lower"
    HIGHER = "higher"
    SAME = "the same"
    NOT_SIGNIFICANT = "not significant"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Unit:
    """How a difference is printed."""

    spec: str  # of Python's format, without a sign
    # What the stored value is multiplied with.
    scale: float = 1.0
    name: str = ""  # stands behind the number, once


UNITS = {
    "nats": Unit(".4f", name=" nats per token"),
    "change": Unit(".1%"),  # of perplexity, a share of the one it is compared with
    "fine change": Unit(".2%"),  # the same where a tenth of a per cent decides
    "points": Unit(".1f", 100, " points"),  # of a score that is stored as a share
}


@dataclass(frozen=True)
class Comparison:
    """A paired difference to what it is compared with, and how sure it is."""

    value: float
    # Of its 95% interval; None where there are too few units for one.
    low: float | None = None
    high: float | None = None
    unit: str = "nats"  # one of UNITS
    # What it is compared with, as a sentence names it.
    versus: str = ""
    # Independent texts, items or blocks that it rests on; 0 where that stands elsewhere.
    units: int = 0
    # P-value after Holm's correction for its family; None where it is judged by itself.
    p_holm: float | None = None
    # The difference of each unit, where these are too few for an interval.
    points: tuple[float, ...] = ()

    @classmethod
    def of(cls, row: Mapping[str, Any], key: str, ends: str | None = None, **about: Any) -> Self:
        """The comparison stored as `KEY`, `KEY_low`, `KEY_high`, `KEY_holm` and `KEY_points` of a row; `ends` begins
        the names of the last four where the key does not."""
        begin = f"{key}_" if ends is None else ends
        low, high, p_holm, points = (row.get(f"{begin}{name}") for name in ("low", "high", "holm", "points"))
        return cls(row[key], low, high, p_holm=p_holm, points=tuple(points or ()), **about)

    @property
    def verdict(self) -> Verdict:
        """On which side of 0 it lies, if its interval and the correction for its family leave no doubt."""
        if self.low is None or self.high is None:
            return Verdict.NOT_JUDGED
        if self.value == self.low == self.high == 0:
            return Verdict.SAME
        if not self.excludes_zero or self.p_holm is not None and self.p_holm >= SIGNIFICANCE:
            return Verdict.NOT_SIGNIFICANT
        return Verdict.HIGHER if self.low > 0 else Verdict.LOWER

    @property
    def excludes_zero(self) -> bool:
        """Whether its own interval, judged alone, lies on one side of 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    @property
    def direction(self) -> int:
        """-1 or 1 where the verdict is lower or higher, else 0."""
        return {Verdict.LOWER: -1, Verdict.HIGHER: 1}.get(self.verdict, 0)

    @property
    def minimum_detectable(self) -> float | None:
        """The smallest difference that this design tells from 0 four times in five; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return DETECTABLE * (self.high - self.low)

    @property
    def size(self) -> str:
        """The difference with its unit: `−0.0123 nats per token`."""
        return number(self.value, self.unit) + UNITS[self.unit].name

    @property
    def span(self) -> str:
        """The ends of its interval: `−0.0200 to −0.0050`; empty without one."""
        if self.low is None or self.high is None:
            return ""
        return f"{number(self.low, self.unit)} to {number(self.high, self.unit)}"

    @property
    def interval(self) -> str:
        """Its 95% interval, or why there is none: too few units, whose points are shown where they are known."""
        if self.span:
            return f"95% interval {self.span}"
        if self.points:
            points = ", ".join(number(point, self.unit) for point in self.points)
            return f"in these {len(self.points)} texts {points}"
        if self.units == 1:
            return "1 unit is too few for an interval"
        return f"{self.units:,} units are too few for an interval" if self.units else "no interval"

    @property
    def bracketed(self) -> str:
        """As a cell of a table shows it: `+1.2% (+0.5% to +2.0%)`."""
        value = number(self.value, self.unit)
        return f"{value} ({self.span})" if self.span else value

    @property
    def evidence(self) -> str:
        """Size and interval; of a difference that is not significant also what this sample could have detected."""
        parts = [f"{self.size}, {self.interval}"]
        if self.verdict is Verdict.NOT_SIGNIFICANT:
            # Otherwise a reader sees an interval without 0 beside "not significant", and does not know why.
            parts += [f"p = {self.p_holm:.2g} after Holm's correction"] if self.excludes_zero else []
            parts.append(self.detectable)
        return "; ".join(parts)

    @property
    def detectable(self) -> str:
        """The sentence part that stands beside everything that is not significant."""
        return detectable(self.minimum_detectable, self.unit)

    def relation(self, lower: str = "better", higher: str = "worse") -> str:
        """The verdict in words: `better than random groups`. A lower value is better unless the words say otherwise."""
        words, link = {
            Verdict.LOWER: (lower, "than"),
            Verdict.HIGHER: (higher, "than"),
            Verdict.SAME: ("the same", "as"),
            Verdict.NOT_SIGNIFICANT: ("not significantly different", "from"),
            Verdict.NOT_JUDGED: ("not judged", "against"),
        }[self.verdict]
        return f"{words} {link} {self.versus}" if self.versus else words


@dataclass(frozen=True)
class Claim:
    """What is said of a subject because of a comparison."""

    comparison: Comparison
    # What was compared; empty where the sentence around it names it.
    subject: str = ""
    # The words for a lower and for a higher value.
    lower: str = "better"
    higher: str = "worse"

    def text(self) -> str:
        """`Focus: better than random groups (−0.0123 nats per token, 95% interval −0.0200 to −0.0050)`."""
        predicate = f"{self.comparison.relation(self.lower, self.higher)} ({self.comparison.evidence})"
        return f"{self.subject}: {predicate}" if self.subject else predicate


def ranks(comparisons: Sequence[Comparison]) -> list[int]:
    """The rank of each of several values that are compared with one baseline, from 1 for the lowest: those of one rank
    are not told apart.

    In their order from the lowest, a value joins the group before it unless its interval lies wholly above that of the
    group's first. Intervals that overlap do not prove two values the same; two that do not are never one group.
    """
    order = sorted(range(len(comparisons)), key=lambda place: comparisons[place].value)
    listed, rank, first = [0] * len(comparisons), 0, None
    for place in order:
        comparison = comparisons[place]
        if first is None or (first.high is not None and comparison.low is not None and comparison.low > first.high):
            first, rank = comparison, rank + 1
        listed[place] = rank
    return listed


def number(value: float, unit: str) -> str:
    """A difference in one of UNITS, without the unit's name."""
    return signed(UNITS[unit].scale * value, UNITS[unit].spec)


def detectable(smallest: float | None, unit: str = "nats") -> str:
    """What a sample could have detected, from the smallest such effect; None: there was no interval to take it from."""
    if smallest is None:
        return "too few texts to judge"
    about = UNITS[unit]
    # The difference itself, just before, has named the stored unit.
    name = "" if about.scale == 1 else about.name
    spelled = f"{smallest:.2%}" if "%" in about.spec else f"{about.scale * smallest:.2g}{name}"
    return f"the smallest effect this sample could detect is {spelled}"


def signed(value: float, spec: str = ".4f") -> str:
    """A change in a format of Python: +1.0% or −1.0%, with a minus that is no hyphen; what is printed as 0 has no
    sign."""
    spelled = f"{value:+{spec.lstrip('+')}}"
    return spelled.replace("-", "−") if re.search("[1-9]", spelled) else spelled.lstrip("+-")


def speeds(speedup: Mapping[str, Mapping[str, float] | None], rounds: int) -> str:
    """Who is faster, a token and the prompt, from the median, slowest and quickest ratio to dense of each: `Each token
    1.14x faster. Prompt: undecided after 5 rounds.` Rounds on both sides of 1 decide nothing."""
    sentences = []
    for phase, name in {"per_token": "Each token", "prefill": "Prompt"}.items():
        ratio = speedup.get(phase)
        if ratio is None:
            sentences.append(f"{name}: no kernel here.")
        elif ratio["low"] <= 1 <= ratio["high"]:
            sentences.append(f"{name}: undecided after {rounds} {'round' if rounds == 1 else 'rounds'}.")
        elif ratio["low"] > 1:
            sentences.append(f"{name} {ratio['median']:.2f}x faster.")
        else:
            sentences.append(f"{name} {1 / ratio['median']:.2f}x slower.")
    return " ".join(sentences)
