"""What a request will cost, in seconds and memory, before anybody runs it: predicted from what like ones cost on this
machine, and from the size of the model where nothing like it was run. The same for pages and for `--plan`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from ..commands import COMMANDS
from ..commands.text import Inspect, Model
from ..declaration.command import HEADS, SMALLEST, Command, Shape
from . import machine
from .memory import held
from .run import Run

# Past runs that count: enough for a median, few enough to follow a change of machine or load.
RECENT = 10
# Runs with the same methods from which on the others do not count.
SAME = 2
# A run and one of so many times its size tell what more work costs.
APART = 1.5
# Loading and the first compilation, when nothing is known.
FIRST_SECONDS = 5.0
# Of the bundled model, what all its heads read counted.
FIRST_SECONDS_PER_TOKEN = 0.002
# A guess is shown with the width of a guess.
FIRST_SPREAD = 4.0
# Seconds a request may take without being asked for by a button.
LIVE = 20
# Seconds from which a smaller scope stands beside the button.
PATIENT = 60
# Seconds of a long job that are said to be too many.
LONG = 600

# Tokens assumed for a price before the text was counted.
FIRST_GUESS = 1000
# Operations of one token in a plain pass of the bundled model, and the passes that a reading takes beside its heads.
OF_BUNDLED, PASSES = 2 * 5.77e6, 3
OF_START = {"text": "", "router": "k8-top1", "min_distance": 128, "long_text": "windows"}  # what decides that reading
# Of a reading: what a request takes that finds it.
SERVED = 0.05
# Runs of each command that say how fast this machine is.
PACED_BY = 3

Guess = Callable[[float], float]  # work -> seconds


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

    def part(self, share: float) -> "Price":
        """Of that share of the work."""
        seconds, low, high = (self.fixed + share * (end - self.fixed) for end in (self.seconds, self.low, self.high))
        return replace(self, seconds=seconds, low=max(low, 0.0), high=high)

    @property
    def short(self) -> str:
        """The words on a button: "~20 s"."""
        return f"~{max(self.seconds, 1):.0f} s" if self.seconds < 90 else f"~{spell(self.seconds)}"

    @property
    def sentence(self) -> str:
        """The words of its tooltip."""
        span = f"{spell(self.low)} to {spell(self.high)}"
        if self.n == 0:
            words = f"First time on this machine: perhaps {spell(self.seconds)} ({span})"
        elif self.n == 1:
            words = f"About {spell(self.seconds)} (from 1 run on this machine)"
        else:
            runs = f"from {self.n} runs on this machine, so far off by {self.error:.0%}"
            words = f"About {spell(self.seconds)} ({span}, {runs})"
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
            return f"It needs about {spell_bytes(self.bytes or 0)} of memory and {spell_bytes(free or 0)} are free"
        if self.seconds > LONG:
            return f"It takes about {spell(self.seconds)}, longer than {spell(LONG)}"
        return None


def usual(work: float) -> float:
    """Seconds to guess for so many tokens when nothing is known."""
    return FIRST_SECONDS + FIRST_SECONDS_PER_TOKEN * work


def predict(past: Sequence[tuple[float, float]], work: float, bytes: int | None = None, guess: Guess = usual) -> Price:
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


def _line(done: Sequence[tuple[float, float]], guess: Guess) -> Guess:
    """work -> seconds of these runs."""
    if not done:
        return guess
    rate = median(seconds / size for seconds, size in done)
    pairs = [(larger, smaller) for larger in done for smaller in done if larger[1] >= APART * smaller[1]]
    slope = median((larger[0] - smaller[0]) / (larger[1] - smaller[1]) for larger, smaller in pairs) if pairs else 0.0
    fixed = median(seconds - slope * size for seconds, size in done)
    # Where long texts take more than their share, nothing is fixed.
    if slope > 0:
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


def predicted(store: Any, request: Command, tokens: int, card: Run | None = None, guess: Guess | None = None) -> Price:
    """Seconds of a request that reads so many tokens, from the past runs of its verb with its model in a RunStore, and
    memory beside the model's weights where its model was loaded here before. `card`: the stored one of the model, by
    default looked up. `guess`: seconds by the work, where the caller knows better than the size of the model."""
    model = str(getattr(request, "model", None) or "demo")
    card = card or store.find(Model.from_arguments({"model": model}))
    past = store.past(request.verb, model)
    # Some verbs read no text: their price is that of a run.
    counts = any(size for _, size, _ in past)
    model_prices = None if card is None or guess is not None else _ModelPrices(store, model, card.numbers)
    shape = SMALLEST if model_prices is None else model_prices.shape
    usable = _alike([entry for entry in past if entry[1] or not counts], request)
    done = [(took, request.workload(asked, size if counts else 1, shape)) for took, size, asked in usable]
    tokens = request.made_tokens or tokens
    work = request.workload(request.arguments, tokens if counts or not past else 1, shape)
    if card is None or model_prices is None:
        return predict(done, work, guess=guess or usual)
    reading, is_read = model_prices.reading(type(request)), model_prices.is_read(type(request), request.arguments)
    if request.served is not None:
        # Runs that found a reading tell nothing of those that read, and the other way round.
        alike = [model_prices.is_read(type(request), asked) == is_read for _, _, asked in usable]
        done = [entry for entry, same in zip(done, alike, strict=True) if same]
    needed = held(type(request), request.arguments, tokens, card.numbers, is_read)
    share = SERVED if is_read else 1.0
    return predict(done, work, needed, lambda size: share * reading(size))


def _alike(past: list[tuple[float, int, dict]], request: Command) -> list[tuple[float, int, dict]]:
    """Past runs with the same methods as a request, where there are enough: one method reads slower than another."""
    wanted = _named(request, request.arguments)
    same = [entry for entry in past if _named(request, entry[2]) == wanted]
    return same if len(same) >= SAME else past


def _named(command: Command, arguments: Mapping[str, Any]) -> list[str]:
    lists = (arguments.get(name) or [] for name in command.repeated_by)
    return sorted(str(entry.get("name")) for entries in lists for entry in entries if isinstance(entry, dict))


class _ModelPrices:
    """The first prices of a model on this machine, by its card: the numbers of the verb `model`."""

    def __init__(self, store: Any, model: str, card: Mapping[str, Any]) -> None:
        self.store, self.model = store, model
        self.shape = Shape(card["layers"], card["heads"])
        self.starts = [asked for _, _, asked in store.past("start", model) if asked.get("windows") is None]
        parity = card.get("parity") or {}
        # Seconds of one token in a plain pass: as measured when the model was compared with the stock one, or as its
        # size says where a card of an earlier version does not tell.
        if parity.get("seconds"):
            self.a_pass = parity["seconds"] / parity["tokens"]
        else:
            # the experts that a token visits, and the states of layers without attention
            work = card.get("token_flops") or 2 * card["parameters"]
            kind = card["device"].partition(":")[0]
            self.a_pass = work / (machine.OPERATIONS[kind] * machine.pace(kind))
        bundled = OF_BUNDLED / machine.OPERATIONS["cpu"]
        reading = self.reading_of_token() / (FIRST_SECONDS_PER_TOKEN + PASSES * bundled)
        self.shape = self.shape._replace(pace=max(1.0, reading))

    def reading_of_token(self) -> float:
        """Seconds of a token that is read, its heads looked at."""
        return FIRST_SECONDS_PER_TOKEN * min(1.0, self.shape.layers * self.shape.heads / HEADS) + PASSES * self.a_pass

    def first(self, command: type[Command], work: float) -> float:
        """Seconds of a command that was never run here, on a machine as fast as was measured or assumed."""
        readings = 1.0 if command.readings is None else command.readings
        return FIRST_SECONDS + work * (readings * self.reading_of_token() + command.passes * self.a_pass)

    def reading(self, command: type[Command]) -> Guess:
        """work -> seconds of a command that has to read, at the pace of those that ran here."""
        pace = self.pace()
        return lambda work: pace * self.first(command, work)

    def pace(self) -> float:
        """How many times as long as guessed the commands that say what they read took here with this model: what one of
        them took tells the first price of the others. Those that found a reading tell nothing."""
        took = [
            seconds / self.first(command, command.workload(asked, tokens, self.shape))
            for verb, command in COMMANDS.items()
            if command.readings is not None
            for seconds, tokens, asked in self.store.past(verb, self.model)[:PACED_BY]
            if not self.is_read(command, asked)
        ]
        return median(took) if took else 1.0

    def is_read(self, command: type[Command], asked: Mapping[str, Any]) -> bool:
        """Whether Start has read the text of a request with these arguments and left what it asks for."""
        arguments = {**command.defaults, **asked}
        if command.served is None or any(arguments.get(name, usual) != usual for name, usual in command.served.items()):
            return False
        wanted = {name: arguments[name] for name in OF_START if name in arguments}
        return bool(wanted.get("text")) and any(wanted.items() <= (OF_START | start).items() for start in self.starts)


def counted(store: Any, args: Mapping[str, Any]) -> tuple[int, int | None]:
    """(tokens, most the model reads at once) of the texts that a request names, as far as they were counted; `most` is
    None where they were not."""
    keys = [args["text"]] if args.get("text") else args.get("texts") or []
    how = {"model": args.get("model") or "demo", "long_text": args.get("long_text", "windows")}
    inspected = [store.find(Inspect(**how, text=key)) for key in keys]
    counts = [run.numbers for run in inspected if run is not None]
    tokens = sum(numbers["tokens"] for numbers in counts) or FIRST_GUESS
    if isinstance(args.get("tokens"), int):
        tokens = min(tokens, args["tokens"]) if counts else args["tokens"]
    return tokens, counts[0]["max_positions"] if counts else None


def spell(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 0.1:
        return "under 0.1 s"
    if seconds < 90:
        return f"{seconds:.{int(seconds < 10)}f} s"
    if seconds < 600:
        minutes, seconds_left = divmod(10 * round(seconds / 10), 60)
        return f"{minutes} min {seconds_left} s" if seconds_left else f"{minutes} min"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def spell_bytes(count: int) -> str:
    """Bytes as a person says them."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(count / 1e6, 1):.0f} MB"
