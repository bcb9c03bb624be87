"""What the studies that read with a router share: the bench of a setting, and windows that read as many pairs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analysis.groups.router import FocusRouter
from analysis.studies.groups.routers import trained_router
from analysis.studies.stored.comparisons import Row, difference
from analysis.studies.stored.measured import KERNELS, Arm, Bench, causal_pairs, dense_of, router_hash, trained_arm
from analysis.studies.stored.runner import Setting, Windows, option
from analysis.studies.stored.trained import PhaseTrainer, Read
from analysis.studies.text.held_out import ids_hash, sample_windows


class Routed(Windows):
    """A study that reads held-out windows with a trained router."""

    router: str = option("k8-top1", "router of Focus, named by its groups and memberships, such as k8-top1")
    window: int | None = option(None, "tokens that are always read (default: the router's)")
    n_sink: int | None = option(None, "first tokens always read (default: the router's)", low=0, high=64)

    def bench(self, run: Setting, expected: int, windows: np.ndarray | None = None) -> tuple[FocusRouter, int, Bench]:
        """The trained router, the window that is always read, and the bench of the held-out windows [n, T], where
        stored arms are found again, or of these, where nothing is stored."""
        router = trained_router(run.context, run.lm, self.router)
        n_sink = router.n_sink if self.n_sink is None else self.n_sink
        work, ids = (run.work, run.windows) if windows is None else (None, windows)
        return router, self.window or router.window, Bench(run.lm, router, ids, n_sink, work, run.context, expected)

    def sample_losses(self, run: Setting, arms: Callable[[FocusRouter, int], Iterable[Arm]]) -> dict[str, list[float]]:
        """Arm -> mean loss of two windows of the bundled samples."""
        router, window, bench = self.bench(run, 1, sample_windows(run.lm, self.length))
        listed = list(arms(router, window))
        bench.expected = len(listed)
        return {arm.name: bench.measure(arm).means.tolist() for arm in listed}

    def facts(self, run: Setting, router: FocusRouter, window: int, n_sink: int, **about: Any) -> Row:
        """What such a study stores of how it was read; `about` goes into its protocol."""
        windows, length = run.windows.shape
        facts = {"router": self.router, "window": window, "n_sink": n_sink, "windows": windows, "length": length}
        named = {"kernel": KERNELS, "router": self.router, "router_hash": router_hash(router)}
        return facts | {"protocol": run.about(run.windows, **named | about)}

    def part(self, run: Setting, numbers: dict) -> dict:
        return dense_part(run, numbers)


def dense_part(run: Setting, numbers: dict) -> dict:
    """Dense attention on all held-out windows, which every arm is held against."""
    level = dense_of(run.lm, run.windows, run.context).level
    piece = {"dense": level} if "dense" in numbers else {"rows": [{"arm": "dense"} | level]}
    return piece | {"protocol": {"text": ids_hash(run.windows)}}


def window_pairs(window: int, length: int, n_sink: int = 0) -> int:
    """Query-key pairs that the last `window` tokens and the first `n_sink` give a text of `length` tokens."""
    # Keys a query may read, itself included.
    before = np.arange(length) + 1
    return int(np.minimum(before, window).sum() + np.clip(before - window, 0, n_sink).sum())


def equal_pairs_window(pairs: float, length: int, n_sink: int = 0) -> int:
    """The window that reads, with the same sinks, the number of pairs nearest to `pairs` (of two, the smaller one)."""
    counts = np.array([window_pairs(window, length, n_sink) for window in range(1, length + 1)])
    return int(np.abs(counts - pairs).argmin()) + 1


def pairs_share(pairs: float, length: int) -> float:
    """Pairs as a share of all causal ones in a text of `length` tokens."""
    return pairs / causal_pairs(length)


def named_arms(router: FocusRouter, window: int) -> dict[str, list[Arm]]:
    """The trained router read hard, with causal and with literal groups."""
    trained, literal = (trained_arm(name, router, window) for name in ("trained", "trained, literal"))
    return {"trained": [trained], "literal": [literal]}


def pooled_reads(
    trainer: PhaseTrainer, router: FocusRouter, arms: Mapping[Any, list[Arm]], ids: np.ndarray | None = None
) -> dict[Any, Read]:
    """What arms read, by what they are called; those of one name, which differ in their draw alone, as one."""
    reads = trainer.measure(router, [arm for several in arms.values() for arm in several], ids)
    return {name: Read.pool([reads[arm.name] for arm in several]) for name, several in arms.items()}


@dataclass
class Reads:
    """What arms read, by name, one of every seed, on windows of `documents` [n]."""

    documents: np.ndarray
    of_seeds: dict[Any, list[Read]] = field(default_factory=dict)

    def add(self, reads: Mapping[Any, Read]) -> None:
        """What the arms of one seed read."""
        for name, read in reads.items():
            self.of_seeds.setdefault(name, []).append(read)

    def __getitem__(self, name: Any) -> Read:
        """All seeds of an arm as one."""
        return Read.pool(self.of_seeds[name])

    def worst(self, name: Any) -> float:
        """The largest share of a group in any layer and seed."""
        return max(share for read in self.of_seeds[name] for share in read.shares)

    def losses(self, name: Any) -> np.ndarray:
        """Nats per token of each window [seeds, n]."""
        return np.stack([read.means for read in self.of_seeds[name]])

    def levels(self, arms: Mapping[str, Any]) -> Row:
        """The perplexities of arms, key of the row -> arm."""
        return {key: self[name].perplexity for key, name in arms.items()}

    def differences(self, arms: Mapping[str, tuple[Any, Any]]) -> Row:
        """The paired differences of arms, key of the row -> (arm, what it is compared with)."""
        row: Row = {}
        for key, (name, control) in arms.items():
            row |= difference(key, self.losses(name), self.losses(control), self.documents)
        return row
