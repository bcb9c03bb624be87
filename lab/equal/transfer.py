"""Does eviction that was calibrated on one kind of text hold on another? TriAttention and KVzap, calibrated on one
domain and run on every other.

A serving stack is given one file of statistics for all texts that will come. So each domain calibrates once and is read
by all: how many of the keys that its own calibration would keep stay, and what the rest costs. The null keeps as many
keys, the first four and the newest, and is calibrated on nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from analysis.corpus import sample_texts
from analysis.methods import METHODS
from analysis.models import Model
from analysis.studies.quality.trial import KINDS, Newest, Trial, agreement, calibration_windows
from analysis.studies.stored.comparisons import Row, difference, interval_caveat
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Runnable, Setting, Windows, option
from analysis.studies.text.calibration import halves
from analysis.studies.text.held_out import check_range, domains, held_out_windows, sample_windows
from lab.harness.telling import counted, lines_of

FITTED = ("triattention", "kvzap")
NOTHING = "nothing"
# The bundled register: its first half calibrates, its second is read.
REGISTER = "register"


@dataclass(frozen=True)
class Transfer(Windows):
    """Every domain calibrates each method and reads it with the calibrations of all."""

    name = "transfer"

    length: int = option(640, "tokens of a window of text", low=16)
    windows: int = option(12, "held-out windows of each domain", low=2, high=4096)
    continuation: int = option(128, "tokens of a window that follow the prompt and are scored")
    ratio: float = option(0.5, "share of the prompt's keys that is removed", low=0.01, high=0.99)

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range("The length of the continuation", self.continuation, 2, self.length - 8)

    def measure(self, run: Setting) -> dict:
        read, rows = Read(run, self), []
        names = list(read.texts)
        for place, name in enumerate(names):
            run.context.progress(place / len(names), name)
            rows += [row for method in FITTED for row in read.rows(method, name)]
            rows.append(read.null(name))
        windows = np.concatenate([read.windows(name)[0] for name in names])
        units = np.concatenate([1000 * place + read.windows(name)[1] for place, name in enumerate(names)])
        about = {"prefix": self.length - self.continuation, "continuation": self.continuation}
        return {"rows": rows, "protocol": run.about(windows, units, **about, kernel="compacted KV cache")}

    def sample(self, run: Setting, numbers: dict) -> dict:
        ids = sample_windows(run.lm, self.length)
        fitted = KINDS["triattention"].fit(run.lm, torch.as_tensor(ids[:1]), self.ratio)
        trial = Trial(run.lm, KINDS["triattention"], self.ratio, "per_layer_perhead", ids[1:], self.length // 2)
        return {"triattention": float(trial.losses(trial.method(fitted))[0])}

    def part(self, run: Setting, numbers: dict) -> dict:
        read = Read(run, self)
        return {"rows": [next(read.rows("triattention", next(iter(read.texts))))]}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows = [row for row in numbers["rows"] if row["calibrated"] not in (row["read"], NOTHING)]
        kept = [row["agreement"] for row in rows]
        sentence = (
            f"A calibration on another domain keeps {min(kept):.0%} to {max(kept):.0%} of the keys that the domain's "
        )
        sentence += "own would keep. " + counted(rows, "such losses", {"against_own": "with the domain's own"})
        own = [row for row in numbers["rows"] if row["calibrated"] in (row["read"], NOTHING)]
        title, x = "Loss above dense, calibrated on the domain itself", ("read", "domain", "nats per token")
        return presented(
            "transfer",
            sentence,
            [lines_of(title, own, "title", *x, "against_dense")],
            interval_caveat(numbers["protocol"]),
        )


@dataclass
class Read:
    """The domains, what each of them calibrates, and what is read of it."""

    run: Setting
    sizes: Transfer
    made: dict[tuple[str, str], Any] = field(default_factory=dict)

    @cached_property
    def texts(self) -> dict[str, tuple[list[str], list[str]]]:
        """Domain -> (calibrating documents, held-out ones)."""
        first, second = halves(sample_texts()[REGISTER][1])
        return domains(self.sizes.corpus, None, self.run.context) | {REGISTER: ([first], [second])}

    def windows(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The held-out windows of a domain and their documents."""
        return held_out_windows(self.run.lm, self.texts[name][1], self.sizes.length, self.sizes.windows, fewest=1)

    def fitted(self, method: str, name: str) -> Any:
        """What is fitted of a method on a domain."""
        if (method, name) not in self.made:
            lm, train = self.run.lm, self.texts[name][0]
            windows = calibration_windows(lm, [(f"{name} {place}", text) for place, text in enumerate(train)])
            self.made[method, name] = KINDS[method].fit(lm, windows, self.sizes.ratio)
        return self.made[method, name]

    def trial(self, method: str, name: str) -> Trial:
        """The trial of a method on a domain."""
        prefix = self.sizes.length - self.sizes.continuation
        settings = self.sizes.ratio, "per_layer_perhead", self.windows(name)[0], prefix
        return Trial(self.run.lm, KINDS[method], *settings)

    def losses(self, what: str, name: str, make: Callable[[], Any]) -> np.ndarray:
        """Of a domain's windows under the method that `make` makes, found again where they were measured."""
        trial = self.trial(FITTED[0], name)
        decides = [what, name, self.sizes.ratio, trial.prefix, trial.stretches.tolist()]
        found = self.run.part(f"transfer-{what}-{name}", decides, lambda: {"losses": trial.losses(make()).tolist()})
        return np.array(found["losses"])

    def dense(self, name: str) -> np.ndarray:
        """Of dense attention."""
        return self.losses("dense", name, METHODS["dense"])

    def null(self, name: str) -> Row:
        """The first four keys and the newest, as many."""
        losses = self.losses("newest", name, lambda: Newest(ratio=self.sizes.ratio))
        row = {"method": "newest", "title": Newest.title, "calibrated": NOTHING, "read": name, "agreement": None}
        return row | difference("against_dense", losses, self.dense(name), self.windows(name)[1])

    def rows(self, method: str, name: str) -> Iterator[Row]:
        """A row for each domain that calibrates, the one that is read first."""
        trial, documents = self.trial(method, name), self.windows(name)[1]
        own, kept = None, trial.kept(self.fitted(method, name))
        for calibrated in [name, *(other for other in self.texts if other != name)]:
            fitted = self.fitted(method, calibrated)
            losses = self.losses(f"{method}-{calibrated}", name, partial(trial.method, fitted))
            row: Row = {"method": method, "title": METHODS[method].title, "calibrated": calibrated, "read": name}
            row["agreement"] = agreement(kept, trial.kept(fitted))
            row |= difference("against_dense", losses, self.dense(name), documents)
            own = losses if own is None else own
            yield row | ({} if calibrated == name else difference("against_own", losses, own, documents))


transfer = Runnable(Transfer)
