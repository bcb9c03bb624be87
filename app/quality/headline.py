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
        from_where = "" if since is None else f", faster from {since:,} tokens on"
        return f"{self.name} at {self.median:.2f} times dense speed ({rounds}){from_where}"


def phases(numbers: dict, context: int) -> list[Phase]:
    """The phases that a run of `launch` or `time-method` timed, of a model that reads `context` tokens at once: what
    was
    estimated beyond them is left out."""
    listed = []
    for name, title in PHASES.items():
        speed, since = numbers["speedup"].get(name), numbers["crossover"].get(name)
        if speed:
            ends = speed["median"], speed["low"], speed["high"]
            listed.append(Phase(title, numbers["length"], *ends, since if since and since <= context else None))
    return listed


def headline(results: Sequence[Shown]) -> str:
    """The fastest of the methods that keep the quality and were timed faster than dense; where none was, why not."""
    near = _near(results)
    if not near:
        return (
            f"{BEGIN} stay dense. No chosen method keeps the perplexity within {NEAR:.0%}{_but(results)}."
            if results
            else ""
        )
    timed = _timed_of(near)
    if timed:
        best = max(timed, key=_gain)
        return _verdict(best) if _gain(best) > (False, 0) else _none_wins(timed)
    able = [result for result in near if result.asked.about["kernels"]]
    if able:
        return f"{BEGIN} stay dense until a speed is measured; you can time {_names(able)} on this page."
    return f"{BEGIN} stay dense. {_names(near)} would keep the quality, but there is no kernel for that here."


def candidate(results: Sequence[Shown]) -> Shown | None:
    """The method that comes nearest to being run: the best of those that keep the quality, timed ones first."""
    near = _near(results)
    return max(_timed_of(near) or near, key=lambda result: _gain(result) if result.speed else (False, 0), default=None)


def _near(results: Sequence[Shown]) -> list[Shown]:
    return [result for result in results if result.honest and result.row["difference"] <= NEAR]


def _but(results: Sequence[Shown]) -> str:
    """Ceilings keep the quality too, but save no time."""
    ceilings = [result for result in results if result.row["ceiling"] and result.row["difference"] <= NEAR]
    return f", except {_names(ceilings)} (a ceiling scores every pair to choose: it saves no time)" if ceilings else ""


def _timed_of(near: Sequence[Shown]) -> list[Shown]:
    return [result for result in near if result.speed and result.speed["phases"]]


def _gain(result: Shown) -> tuple[bool, float]:
    """How good a method's speed is: first that no phase is slower, then its fastest phase; nothing where none is
    faster."""
    faster = [phase.median for phase in result.speed["phases"] if phase.faster]
    return (not any(phase.slower for phase in result.speed["phases"]), max(faster)) if faster else (False, 0)


def _verdict(result: Shown) -> str:
    timed, window = result.speed["phases"], result.speed["window"]
    gains, loses = ([phase.name for phase in timed if getattr(phase, way)] for way in ("faster", "slower"))
    trade = f" gains on {gains[0]} and loses on {loses[0]}" if loses else ""
    where = "" if window == timed[0].length else f" (measured at {window:,} tokens)"
    return f"{BEGIN} {result.title}{trade}, {signed(result.row['difference'])} perplexity{where}. {_timed(timed, 'At')}"


def _none_wins(timed: Sequence[Shown]) -> str:
    sentences = [f"{BEGIN} stay dense. Nothing that keeps the perplexity within {NEAR:.0%} was faster."]
    sentences += [_timed(result.speed["phases"], f"{result.title} at") for result in timed]
    sentences += [
        f"{result.title} is estimated to gain on {phase.name} from about {_rounded(phase.wins_from):,} tokens on."
        for result in timed
        for phase in result.speed["phases"]
        if phase.wins_from and phase.wins_from > phase.length
    ]
    return " ".join(sentences)


def _timed(timed_phases: Sequence[Phase], begin: str) -> str:
    return f"{begin} {timed_phases[0].length:,} tokens: {'; '.join(phase.said for phase in timed_phases)}."


def _rounded(length: int) -> int:
    return round(length, 2 - len(str(length)))


def _names(results: Sequence[Shown]) -> str:
    titles = [result.title for result in results]
    return titles[0] if len(titles) == 1 else f"{', '.join(titles[:-1])} and {titles[-1]}"
