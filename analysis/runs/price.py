"""What an action will cost, predicted from what it cost on this machine before."""

from dataclasses import dataclass
from statistics import median, quantiles

RECENT = 20  # past runs that count: enough for a median, few enough to follow a change of machine or load
FIRST_SECONDS = 5.0  # loading and the first compilation, when nothing is known
FIRST_SECONDS_PER_TOKEN = 0.002
FIRST_SPREAD = 4.0  # a guess is shown with the width of a guess


@dataclass(frozen=True)
class Price:
    """A predicted cost: `seconds` with `low` and `high`, `bytes` of memory (None: not estimated), `n` past runs.

    With n = 0 nothing was measured here yet and the numbers are a stated default.
    """

    seconds: float
    low: float
    high: float
    bytes: int | None
    n: int

    @property
    def sentence(self):
        """The words beside a Run button."""
        span = f"{_spell(self.low)} to {_spell(self.high)}"
        if self.n == 0:
            words = f"First time on this machine: perhaps {_spell(self.seconds)} ({span})"
        else:
            runs = "1 run" if self.n == 1 else f"{self.n} runs"
            words = f"About {_spell(self.seconds)} ({span}, from {runs} on this machine)"
        return words if self.bytes is None else f"{words}, {_spell_bytes(self.bytes)} of memory"


def predict(past, tokens, bytes=None):
    """Price of `tokens` tokens from `past`, a list of (seconds, tokens) with the newest first.

    Linear in tokens: the median of seconds per token. The median, so that one run which also loaded the model does
    not count. The spread is the 10th to 90th percentile, from four runs on, else the extremes.
    """
    tokens = max(int(tokens), 1)
    rates = sorted(seconds / count for seconds, count in past[:RECENT] if seconds > 0 and count > 0)
    if not rates:
        seconds = FIRST_SECONDS + FIRST_SECONDS_PER_TOKEN * tokens
        return Price(seconds, seconds / FIRST_SPREAD, seconds * FIRST_SPREAD, bytes, 0)
    low, high = rates[0], rates[-1]
    if len(rates) >= 4:
        tenths = quantiles(rates, n=10, method="inclusive")
        low, high = tenths[0], tenths[-1]
    return Price(median(rates) * tokens, low * tokens, high * tokens, bytes, len(rates))


def _spell(seconds):
    if seconds < 0.1:
        return "under 0.1 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _spell_bytes(count):
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(count / 1e6, 1):.0f} MB"
