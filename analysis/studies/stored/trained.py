"""Training plans through both phases and measuring what comes out: what the studies that train share."""

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from analysis.corpus import text_hash, token_stream
from analysis.groups.router import FocusRouter
from analysis.models import Model
from analysis.studies.context import Context
from analysis.studies.stored.measured import Arm, Bench, Measured, router_hash
from analysis.studies.text.held_out import corpus_hash, ids_hash, read_part, sample_windows, spread_windows, write
from analysis.training.focus import finetune, train_router
from analysis.training.settings import RouterTraining

CHECKED = 2  # first steps of a plan that are stored for the bundled samples
TRAINED = 0.9  # of a unit of work: the training, the rest is measuring


@dataclass(frozen=True)
class Read:
    """What an arm read: `means` [n] nats per token of each window, `pairs` per window and layer, `shares` [L] of the
    largest groups."""

    means: np.ndarray
    pairs: float
    shares: list[float]

    @classmethod
    def of(cls, found: Measured) -> "Read":
        """The part of a measured arm that is kept."""
        return cls(found.means, found.mean_pairs, found.shares)

    @classmethod
    def kept(cls, part: dict) -> "Read":
        """What `plain` made plain."""
        return cls(np.array(part["means"]), part["pairs"], part["shares"])

    def plain(self) -> dict:
        """As plain data, losses to a millionth."""
        return {"means": [round(loss, 6) for loss in self.means.tolist()], "pairs": self.pairs, "shares": self.shares}

    @classmethod
    def pool(cls, several: list["Read"]) -> "Read":
        """Arms that differ in their seed alone as one: the mean over seeds, window by window."""
        shares = np.mean([one.shares for one in several], axis=0).tolist()
        return cls(np.mean([one.means for one in several], axis=0), float(np.mean([r.pairs for r in several])), shares)

    @property
    def loss(self) -> float:
        """Nats per token."""
        return float(self.means.mean())

    @property
    def perplexity(self) -> float:
        """exp of the loss."""
        return float(np.exp(self.loss))


@dataclass
class Trainer:
    """Trains on the documents `train` and measures on held-out `windows` [n, T], all with the same `n_sink`.

    Whatever is done lies in `work`, named by a hash of all that decides it, and is not done again; a training that was
    stopped goes on from its checkpoint. `expected` units of work (a training, or arms on the base model) are to do.
    """

    lm: Model
    train: list[str]
    windows: np.ndarray
    n_sink: int
    work: Path
    context: Context
    expected: int
    done: int = 0

    @cached_property
    def texts(self) -> str:
        """Twelve digits that name the training texts."""
        return corpus_hash(self.train)

    @cached_property
    def ids(self) -> np.ndarray:
        """The training texts as one run of tokens; made when something has to be trained."""
        self.context.progress(min(1.0, self.done / self.expected), "tokenising the training texts")
        return token_stream(self.lm.tokenizer, self.train)

    def sample(self, count: int) -> np.ndarray:
        """`count` windows of the training texts as long as the held-out ones, evenly spaced [n, T]."""
        length = self.windows.shape[1]
        path = self.work / f"training-windows-{self._key(count, length)}.npy"
        if not path.is_file():
            np.save(path, spread_windows(self.ids, length, count).reshape(-1, length))
        return np.load(path)

    def router(self, name: str, plan: RouterTraining) -> FocusRouter:
        """The router that phase 1 of the plan gives."""
        path = self.work / f"router-{self._key(asdict(plan))}.safetensors"
        if not path.is_file():
            checkpoint = path.with_suffix(".checkpoint")
            made, _, log = train_router(self.lm, self.ids, plan, checkpoint, self._told(name, 1.0))
            made.save(path, revision=self.lm.revision, losses=[row["loss"] for row in log])
            checkpoint.unlink(missing_ok=True)
        self.done += 1
        return FocusRouter.load(path, self.lm.num_layers, self.lm.width)

    def measure(self, router: FocusRouter, arms: list[Arm], windows: np.ndarray | None = None) -> dict[str, Read]:
        """Arms on the base model as it is, on the held-out windows or these; one unit of work."""
        found = self._bench(self.lm, router, self.windows if windows is None else windows, self.work, len(arms), 0.0)
        read = {arm.name: Read.of(found.measure(arm)) for arm in arms}
        self.done += 1
        return read

    def tuned(
        self, name: str, plan: RouterTraining, start: FocusRouter, arms: Callable[[FocusRouter], list[Arm]],
        more: np.ndarray | None = None,
    ) -> dict[str, dict[str, Read]]:  # fmt: skip
        """Phase 2 of a plan from the router `start`: what the arms, made for the router it ends with, read with the
        fine-tuned model: `held out`, and on the windows `more` `trained on`."""
        windows = {"held out": self.windows} | ({} if more is None else {"trained on": more})
        asked = [(arm.name, arm.settings, arm.drawn) for arm in arms(start)]
        named = {where: ids_hash(ids) for where, ids in windows.items()}
        part = self.work / f"tuned-{self._key(asdict(plan), router_hash(start), asked, named)}.json"
        found = read_part(part)
        if found is None:
            checkpoint = self.work / f"tuned-{self._key(asdict(plan), router_hash(start))}.checkpoint"
            own, router, _, log = finetune(self.lm, start, self.ids, plan, checkpoint, self._told(name, TRAINED))
            found = {"losses": [row["loss"] for row in log]}
            for at, (where, ids) in enumerate(windows.items()):
                began = TRAINED + (1 - TRAINED) * at / len(windows)
                bench = self._bench(own, router, ids, None, len(arms(router)) * len(windows), began, f"{name}, ")
                found[where] = {arm.name: Read.of(bench.measure(arm)).plain() for arm in arms(router)}
            write(part, found)
            checkpoint.unlink(missing_ok=True)
        self.done += 1
        return {where: {arm: Read.kept(one) for arm, one in found[where].items()} for where in windows}

    def _key(self, *decides) -> str:
        return text_hash(repr([self.lm.revision, str(self.lm.dtype), self.texts, self.n_sink, *decides]))

    def _told(self, name: str, share: float, began: float = 0.0):
        def told(done: float, stage: str) -> None:
            self.context.progress(min(1.0, (self.done + began + share * done) / self.expected), f"{name}{stage}")

        name = name if name.endswith(", ") or not name else f"{name}, "
        return told

    def _bench(self, lm, router, ids, work, count: int, began: float, name: str = "") -> Bench:
        where = SimpleNamespace(progress=self._told(name, 1 - began, began))
        return Bench(lm, router, ids, self.n_sink, work, where, expected=count)


def phase_2(plan: RouterTraining, router: FocusRouter, reading: str, window: int | None = None) -> tuple:
    """(plan, start) of fine-tuning from a router: through its soft gate or under a hard mask, or one of the controls;
    `window` tokens are always read (default: the router's)."""
    start = router if window is None else router.variant(window=window)
    return replace(plan, phase=2, reading=reading).after(start), start


def first_losses(lm: Model, plans: dict[str, RouterTraining]) -> dict[str, list[float]]:
    """Training losses of the first steps of plans on the bundled samples: what can be computed without their corpus.

    Plans of phase 2 begin with the router that the first plan gives, which is one of phase 1.
    """
    found, router = {}, None
    for name, plan in plans.items():
        ids = sample_windows(lm, min(plan.length, lm.max_positions)).reshape(-1)
        few = replace(plan, steps=CHECKED, calibration_windows=2, check_windows=0)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "checkpoint"
            if plan.phase == 1:
                made, _, log = train_router(lm, ids, few, place)
                router = router or made
            else:
                log = finetune(lm, router.variant(**asdict(few.router_settings())), ids, few, place)[-1]
        found[name] = [row["loss"] for row in log]
    return found


def recheck(stored: dict, *, context: Context) -> dict[str, tuple]:
    """The `check` of a stored study whose `plans` are beside it, plan -> (what is stored, what comes out now)."""
    lm = context.model(stored["protocol"]["model"])
    again = first_losses(lm, {name: RouterTraining(**plan) for name, plan in stored["plans"].items()})
    return {name: (losses, again[name]) for name, losses in stored["check"].items()}


def checked(lm: Model, plans: dict[str, RouterTraining]) -> dict:
    """`plans` and `check` of a study, to be stored with it."""
    return {"plans": {name: asdict(plan) for name, plan in plans.items()}, "check": first_losses(lm, plans)}
