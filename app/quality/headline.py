"""The sentence on top of Quality vs speed: what to run for this text on this machine."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.quality.words import NEAR, Shown, signed

BEGIN = "For this text and machine:"
PHASES = {"prefill": "the prompt", "per_token": "later tokens"}


@dataclass(frozen=True)
class Phase:
    """What a timing says of one phase against dense: the speed-up at `length` tokens with the range of its rounds, and
    the length from which it wins (None: at none that the model can read). Beyond `length` that is an estimate."""

    name: str
    length: int
    median: float
    low: float
    high: float
    wins_from: int | None

    @property
    def faster(self) -> bool:
        """Whether every round was faster than dense."""
        return self.low > 1

    @property
    def slower(self) -> bool:
        """Whether every round was slower than dense."""
        return self.high < 1

    @property
    def said(self) -> str:
        """The phase in a sentence: rounds on both sides of 1 show no difference."""
        rounds = f"{self.low:.2f} to {self.high:.2f}"
        if not (self.faster or self.slower):
            return f"{self.name}, no difference shown ({self.median:.2f} times dense speed, {rounds})"
        since = self.wins_from if self.faster and (self.wins_from or self.length) < self.length else None
        more = "" if since is None else f", faster from {since:,} tokens on"
        return f"{self.name} at {self.median:.2f} times dense speed ({rounds}){more}"


def phases(numbers: dict, most: int) -> list[Phase]:
    """The phases that a run of `launch` or `time-method` timed, of a model that reads `most` tokens at once: what was
    estimated beyond them is left out."""
    found = []
    for name, said in PHASES.items():
        speed, since = numbers["speedup"].get(name), numbers["crossover"].get(name)
        if speed:
            ends = speed["median"], speed["low"], speed["high"]
            found.append(Phase(said, numbers["length"], *ends, since if since and since <= most else None))
    return found


def headline(shown: Sequence[Shown]) -> str:
    """The fastest of the methods that keep the quality and were timed faster than dense; where none was, why not."""
    near = _near(shown)
    if not near:
        return (
            f"{BEGIN} stay dense. No chosen method keeps the perplexity within {NEAR:.0%}{_but(shown)}."
            if shown
            else ""
        )
    timed = _timed_of(near)
    if timed:
        best = max(timed, key=_gain)
        return _verdict(best) if _gain(best) > (False, 0) else _none_wins(timed)
    able = [one for one in near if one.asked.about["kernels"]]
    if able:
        return f"{BEGIN} stay dense until a speed is measured; you can time {_names(able)} on this page."
    return f"{BEGIN} stay dense. {_names(near)} would keep the quality, but there is no kernel for that here."


def candidate(shown: Sequence[Shown]) -> Shown | None:
    """The method that comes nearest to being run: the best of those that keep the quality, timed ones first."""
    near = _near(shown)
    return max(_timed_of(near) or near, key=lambda one: _gain(one) if one.speed else (False, 0), default=None)


def _near(shown: Sequence[Shown]) -> list[Shown]:
    return [one for one in shown if one.honest and one.row["difference"] <= NEAR]


def _but(shown: Sequence[Shown]) -> str:
    """Ceilings keep the quality too, but save no time."""
    ceilings = [one for one in shown if one.row["ceiling"] and one.row["difference"] <= NEAR]
    return f", except {_names(ceilings)} (a ceiling scores every pair to choose: it saves no time)" if ceilings else ""


def _timed_of(near: Sequence[Shown]) -> list[Shown]:
    return [one for one in near if one.speed and one.speed["phases"]]


def _gain(one: Shown) -> tuple[bool, float]:
    """How good a method's speed is: first that no phase is slower, then its fastest phase; nothing where none is
    faster."""
    faster = [phase.median for phase in one.speed["phases"] if phase.faster]
    return (not any(phase.slower for phase in one.speed["phases"]), max(faster)) if faster else (False, 0)


def _verdict(one: Shown) -> str:
    found, window = one.speed["phases"], one.speed["window"]
    gains, loses = ([phase.name for phase in found if getattr(phase, way)] for way in ("faster", "slower"))
    trade = f" gains on {gains[0]} and loses on {loses[0]}" if loses else ""
    where = "" if window == found[0].length else f" (measured at {window:,} tokens)"
    return f"{BEGIN} {one.title}{trade}, {signed(one.row['difference'])} perplexity{where}. {_timed(found, 'At')}"


def _none_wins(timed: Sequence[Shown]) -> str:
    said = [f"{BEGIN} stay dense. Nothing that keeps the perplexity within {NEAR:.0%} was faster."]
    said += [_timed(one.speed["phases"], f"{one.title} at") for one in timed]
    said += [
        f"{one.title} is estimated to gain on {phase.name} from about {_rounded(phase.wins_from):,} tokens on."
        for one in timed
        for phase in one.speed["phases"]
        if phase.wins_from and phase.wins_from > phase.length
    ]
    return " ".join(said)


def _timed(found: Sequence[Phase], begin: str) -> str:
    return f"{begin} {found[0].length:,} tokens: {'; '.join(phase.said for phase in found)}."


def _rounded(length: int) -> int:
    return round(length, 2 - len(str(length)))


def _names(shown: Sequence[Shown]) -> str:
    titles = [one.title for one in shown]
    return titles[0] if len(titles) == 1 else f"{', '.join(titles[:-1])} and {titles[-1]}"
