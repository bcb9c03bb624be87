"""What an action will cost, predicted from what it cost on this machine before, and how far off that was."""

import os
from dataclasses import dataclass
from statistics import median, quantiles

RECENT = 20  # past runs that count: enough for a median, few enough to follow a change of machine or load
FIRST_SECONDS = 5.0  # loading and the first compilation, when nothing is known
FIRST_SECONDS_PER_TOKEN = 0.002
FIRST_SPREAD = 4.0  # a guess is shown with the width of a guess
LIVE = 20  # seconds a request may take without being asked for by a button
LONG = 600  # seconds from which a long job is offered smaller
SURE = 3  # past runs before a price is believed: the median of two is half of one that may have loaded the model
REPEATED = {  # verb -> its arguments of which every entry reads the text once more
    "evaluate": ("methods",),
    "equal-budget": ("methods",),
    "calibrate": ("caps",),
    "cap-sweep": ("caps",),
    "reads-sweep": ("shares",),
    "reads-text": ("shares",),
    "temperature-curve": ("t", "layers", "by_layer"),
}


@dataclass(frozen=True)
class Price:
    """A predicted cost: `seconds` with `low` and `high`, `bytes` of memory (None: not estimated), `n` past runs.

    With n = 0 nothing was measured here yet and the numbers are a stated default. `error`: how far the predictions of
    the past runs, each from those before it, were off in the middle, as a share of what they took; None below 2 runs.
    """

    seconds: float
    low: float
    high: float
    bytes: int | None
    n: int
    error: float | None = None

    @property
    def sentence(self):
        """The words beside a Run button."""
        span = f"{spell(self.low)} to {spell(self.high)}"
        if self.n == 0:
            words = f"First time on this machine: perhaps {spell(self.seconds)} ({span})"
        else:
            runs = "1 run" if self.n == 1 else f"{self.n} runs"
            off = "" if self.error is None else f", so far off by {self.error:.0%}"
            words = f"About {spell(self.seconds)} ({span}, from {runs} on this machine{off})"
        return words if self.bytes is None else f"{words}, {spell_bytes(self.bytes)} of memory"

    @property
    def slow(self):
        """Whether it surely takes longer than a request may take unasked."""
        return self.low > LIVE if self.n < SURE else self.seconds > LIVE

    def over(self, free):
        """Why this is more than it should be, with the numbers, or None. `free`: bytes of memory, None: unknown."""
        if self.bytes is not None and free is not None and self.bytes > free:
            return f"It needs about {spell_bytes(self.bytes)} of memory and {spell_bytes(free)} are free"
        if self.seconds > LONG:
            return f"It takes about {spell(self.seconds)}, longer than {spell(LONG)}"
        return None


def work(verb, request, tokens):
    """How much is read: `tokens`, once and once more for every entry of the arguments that repeat it."""
    lists = (request.get(name) for name in REPEATED.get(verb, ()))
    return max(int(tokens), 1) * (1 + sum(len(given) for given in lists if isinstance(given, list)))


def predict(past, tokens, bytes=None, first=None):
    """Price of `tokens` tokens (or another measure of work) from `past`, a list of (seconds, tokens), the newest first.

    Linear in tokens: the median of seconds per token over the runs of about this size. The median, so that one run
    which also loaded the model does not count. The spread is the 10th to 90th percentile, from four runs on, else the
    extremes; a single run may have been loading for the most part, so it says of a longer one only that it takes no
    less. `first`: the seconds to guess when `past` is empty.
    """
    tokens = max(int(tokens), 1)
    done = _alike([(seconds, count) for seconds, count in past[:RECENT] if seconds > 0 and count > 0], tokens)
    if not done:
        seconds = FIRST_SECONDS + FIRST_SECONDS_PER_TOKEN * tokens if first is None else first
        return Price(seconds, seconds / FIRST_SPREAD, seconds * FIRST_SPREAD, bytes, 0)
    rates = sorted(seconds / count for seconds, count in done)
    low, high = rates[0] * tokens, rates[-1] * tokens
    if len(done) == 1:
        low = min(low, done[0][0])
    elif len(done) >= 4:
        tenths = quantiles(rates, n=10, method="inclusive")
        low, high = tenths[0] * tokens, tenths[-1] * tokens
    off = [
        abs(_rate(_alike(done[at + 1 :], count)) / (seconds / count) - 1)
        for at, (seconds, count) in enumerate(done[:-1])
    ]
    return Price(_rate(done) * tokens, low, high, bytes, len(done), median(off) if off else None)


def _alike(past, tokens):
    """The runs at least half as near in size to `tokens` as the nearest: what every run costs once, however short its
    text, makes the tokens of a short one dear."""
    near = [min(count, tokens) / max(count, tokens) for _, count in past]
    return [run for run, share in zip(past, near, strict=True) if share >= max(near) / 2]


def _rate(past):
    """The median of seconds per token."""
    return median(seconds / count for seconds, count in past)


def free_memory():
    """Bytes of main memory that a program can still have, or None where the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def spell(seconds):
    """Seconds as a person says them."""
    if seconds < 0.1:
        return "under 0.1 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def spell_bytes(count):
    """Bytes as a person says them."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(count / 1e6, 1):.0f} MB"
