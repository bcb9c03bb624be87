"""What an action will cost, predicted from what it cost on this machine before, and how far off that was."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import psutil

RECENT = 20  # past runs that count: enough for a median, few enough to follow a change of machine or load
APART = 1.5  # a run and one of so many times its size tell what more work costs
FIRST_SECONDS = 5.0  # loading and the first compilation, when nothing is known
FIRST_SECONDS_PER_TOKEN = 0.002
FIRST_SPREAD = 4.0  # a guess is shown with the width of a guess
LIVE = 20  # seconds a request may take without being asked for by a button
PATIENT = 60  # seconds from which a smaller scope stands beside the button
LONG = 600  # seconds of a long job that are said to be too many


@dataclass(frozen=True)
class Price:
    """A predicted cost: `seconds` with `low` and `high`, `bytes` of memory (None: not estimated), `n` past runs.

    With n = 0 nothing was measured here yet and the numbers are a stated default. `error`: how far the predictions of
    the past runs, each from those before it, were off in the middle, as a share of what they took; None below 2 runs.
    `fixed`: the seconds of it that do not shrink with the work.
    """

    seconds: float
    low: float
    high: float
    bytes: int | None
    n: int
    error: float | None = None
    fixed: float = 0.0

    def part(self, share: float) -> float:
        """Seconds of that share of the work."""
        return self.fixed + share * (self.seconds - self.fixed)

    @property
    def sentence(self) -> str:
        """The words beside a Run button."""
        span = f"{spell(self.low)} to {spell(self.high)}"
        if self.n == 0:
            words = f"First time on this machine: perhaps {spell(self.seconds)} ({span})"
        elif self.n == 1:
            words = f"About {spell(self.seconds)} (from 1 run on this machine)"
        else:
            words = f"About {spell(self.seconds)} ({span}, from {self.n} runs on this machine, so far off by "
            words += f"{self.error:.0%})"
        return words if self.bytes is None else f"{words}, {spell_bytes(self.bytes)} of memory"

    @property
    def slow(self) -> bool:
        """Whether it takes longer than a request may take unasked."""
        return self.seconds > LIVE

    @property
    def long(self) -> bool:
        """Whether somebody would rather wait for a part of it."""
        return self.seconds > PATIENT

    def lacks(self, free: int | None) -> bool:
        """Whether it needs more than so many bytes of memory. None: unknown."""
        return self.bytes is not None and free is not None and self.bytes > free

    def over(self, free: int | None) -> str | None:
        """Why this is more than it should be, with the numbers, or None. `free`: bytes of memory, None: unknown."""
        if self.lacks(free):
            needed, available = (
                spell_bytes(count or 0) for count in (self.bytes, free)
            )  # both are known where one lacks
            return f"It needs about {needed} of memory and {available} are free"
        if self.seconds > LONG:
            return f"It takes about {spell(self.seconds)}, longer than {spell(LONG)}"
        return None


def usual(work: float) -> float:
    """Seconds to guess for so many tokens when nothing is known."""
    return FIRST_SECONDS + FIRST_SECONDS_PER_TOKEN * work


def predict(
    past: Sequence[tuple[float, float]], work: float, bytes: int | None = None, guess: Callable[[float], float] = usual
) -> Price:
    """Price of `work` tokens, or of another measure of work, from `past`: (seconds, work), the newest first.

    A fixed part and seconds per unit of work, by Theil and Sen: medians, so that one run which also loaded the model
    does not count. `guess(work)` says the seconds where nothing was run yet; where all runs are about one size it is
    scaled to them, or they to the work, whichever is less. The spread is the 10th to 90th percentile of what the runs
    took as a share of their own prediction.
    """
    done = [(seconds, size) for seconds, size in past[:RECENT] if seconds > 0 and size > 0]
    line = _line(done, guess)
    seconds = line(work)
    if not done:
        return Price(seconds, seconds / FIRST_SPREAD, seconds * FIRST_SPREAD, bytes, 0, fixed=line(0))
    low, high = np.quantile([took / line(size) for took, size in done], (0.1, 0.9))
    off = [abs(_line(done[place + 1 :], guess)(size) / took - 1) for place, (took, size) in enumerate(done[:-1])]
    error = median(off) if off else None
    return Price(seconds, seconds * float(low), seconds * float(high), bytes, len(done), error, line(0))


def _line(done: Sequence[tuple[float, float]], guess: Callable[[float], float]) -> Callable[[float], float]:
    """work -> seconds of these runs."""
    if not done:
        return guess
    rate = median(seconds / size for seconds, size in done)
    pairs = [(larger, smaller) for larger in done for smaller in done if larger[1] >= APART * smaller[1]]
    slope = median((larger[0] - smaller[0]) / (larger[1] - smaller[1]) for larger, smaller in pairs) if pairs else 0.0
    fixed = median(seconds - slope * size for seconds, size in done)
    if slope > 0:  # where long texts take more than their share, nothing is fixed
        return lambda work: fixed + slope * work if fixed > 0 else rate * work
    scale = median(seconds / guess(size) for seconds, size in done)
    return lambda work: min(scale * guess(work), rate * work)


def together(prices: Sequence[Price]) -> Price:
    """Price of one after the other: what does not shrink with the work, such as loading the model, counts once."""
    fixed = max(price.fixed for price in prices)
    seconds, low, high = (
        fixed + sum(getattr(price, name) - price.fixed for price in prices) for name in ("seconds", "low", "high")
    )
    needed = [price.bytes for price in prices if price.bytes is not None]
    errors = [price.error for price in prices if price.error is not None]
    counts = min(price.n for price in prices)
    return Price(seconds, max(low, 0.0), high, max(needed, default=None), counts, max(errors, default=None), fixed)


def free_memory() -> int:
    """Bytes of main memory that a program can still have."""
    return psutil.virtual_memory().available


def spell(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 0.1:
        return "under 0.1 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 600:
        minutes, seconds_left = divmod(10 * round(seconds / 10), 60)
        return f"{minutes} min {seconds_left} s" if seconds_left else f"{minutes} min"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def spell_bytes(count: int) -> str:
    """Bytes as a person says them."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(count / 1e6, 1):.0f} MB"
