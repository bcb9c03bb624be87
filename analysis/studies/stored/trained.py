"""Training plans through both phases and measuring what comes out: what the studies that train share."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from ...corpus import text_hash, token_stream
from ...files import clear
from ...groups.router import FocusRouter
from ...models import Model
from ...training.focus import finetune, train_router
from ...training.settings import RouterTraining
from ..context import Context
from ..text.held_out import corpus_hash, ids_hash, sample_windows, spread_windows
from .comparisons import Row
from .measured import DRAWS, Arm, Bench, Measured, drawn_arms, router_hash
from .runner import Seeds, Setting, Windows, option

# First steps of a plan that are stored for the bundled samples.
CHECKED = 2
# Of a unit of work: the training, the rest is measuring.
TRAINED = 0.9
# Of a curve of losses.
POINTS = 20


class Training(Seeds, Windows):
    """What a study that trains routers, or copies of the model with them, can be asked for."""

    length: int = option(512, "tokens in a sequence and in a window of text")
    steps: int = option(600, "of training in each phase")
    tokens_per_step: int = option(512, "of training")
    groups: int = option(8, "number of groups K of the router")
    window: int = option(16, "number of recent tokens that are always read")
    n_sink: int = option(4, "number of first tokens that are always read", low=0, high=64)
    rate: float = option(1e-3, "learning rate of the router")
    base_rate: float = option(1e-4, "learning rate of the model in phase 2")
    rows: str | None = option(None, "only these rows, separated by commas (default: all)")

    def plan(self, **more: Any) -> RouterTraining:
        """The training in phase 1; `more` adds to it and overrides. Errors: BadSetting."""
        names = "groups window n_sink steps tokens_per_step length rate base_rate seed".split()
        return RouterTraining(**{name: getattr(self, name) for name in names} | {"check_windows": 0} | more)

    def sample(self, run: Setting, numbers: dict) -> dict[str, list[float]]:
        return first_losses(run.lm, numbers)


@dataclass(frozen=True)
class Read:
    """What an arm read: `means` [n] nats per token of each window, `pairs` per window and layer, `shares` [L] of the
    largest groups."""

    means: np.ndarray
    pairs: float
    shares: list[float]

    @classmethod
    def of(cls, arm: Measured) -> Self:
        """The part of a measured arm that studies store."""
        return cls(arm.means, arm.mean_pairs, arm.shares)

    @classmethod
    def stored(cls, part: dict) -> Self:
        """What `plain` made plain."""
        return cls(np.array(part["means"]), part["pairs"], part["shares"])

    def plain(self) -> dict[str, Any]:
        """As plain data, losses to a millionth."""
        return vars(self) | {"means": [round(loss, 6) for loss in self.means.tolist()]}

    @classmethod
    def pool(cls, several: list[Self]) -> Self:
        """Arms that differ in their seed alone as one: the mean over seeds, window by window."""
        means, shares = (np.mean([getattr(read, name) for read in several], axis=0) for name in ("means", "shares"))
        return cls(means, float(np.mean([read.pairs for read in several])), shares.tolist())

    @property
    def loss(self) -> float:
        """Nats per token."""
        return float(self.means.mean())

    @property
    def perplexity(self) -> float:
        """exp of the loss."""
        return float(np.exp(self.loss))


def chance_arms(router: FocusRouter, plan: RouterTraining) -> list[Arm]:
    """Random tokens in as many groups as a router has, drawn apart for each seed of its training."""
    return drawn_arms(router, plan.window, DRAWS * plan.seed)


@dataclass(frozen=True)
class Tuned:
    """What the arms read with a fine-tuned copy: held-out windows, and windows that it was trained on; `observed`
    is what a look at the copy and its router gave."""

    held_out: dict[str, Read]
    trained_on: dict[str, Read]
    observed: dict[str, float]


@dataclass(kw_only=True)
class Trainer:
    """Trains on `documents` and measures on held-out `windows` [n, T]; `units` [n] says which document each is of.

    What is done lies in `work`, named by a hash of all that decides it, and is not done again; a training that was
    stopped goes on from its checkpoint. `expected` units of work are to do, of which `done` are. An arm is trained at
    most `seeds` times; `curves` are the losses of the trainings so far, as `loss_curve`.
    """

    lm: Model
    documents: list[str]
    windows: np.ndarray
    units: np.ndarray
    work: Path
    context: Context
    expected: int
    done: int = 0
    seeds: int = 1
    curves: list[Row] = field(default_factory=list)

    @classmethod
    def of(cls, run: Setting, **more: Any) -> Self:
        """On the texts of a setting; `more` adds to that and overrides. Errors: BadSetting, BadText."""
        about: dict[str, Any] = {"lm": run.lm, "work": run.work, "context": run.context}
        about["seeds"] = vars(run.sizes).get("seeds", 1)
        if "documents" not in more:
            about |= {"documents": run.texts[0], "windows": run.windows, "units": run.documents}
        return cls(**about | more)

    @cached_property
    def texts(self) -> str:
        """Twelve digits that name the training texts."""
        return corpus_hash(self.documents)

    @cached_property
    def ids(self) -> np.ndarray:
        """The training texts as one run of tokens; made when something has to be trained."""
        self.context.progress(min(1.0, self.done / self.expected), "tokenising the training texts")
        return token_stream(self.lm.tokenizer, self.documents)

    def named(self, name: str, seed: int) -> str:
        """What a training is called in the progress: its seed is said where there are several."""
        return name if self.seeds == 1 else f"{name}, seed {seed}"

    def part(self, name: str, decides: list, make: Callable[[Path], dict]) -> dict:
        """What `make(doing)` gives, stored and found again as `Context.part` does; one unit of work."""
        result = self.context.part(self.work, name, decides, lambda doing: make(doing or self.work))
        self.done += 1
        return result

    def within(self, name: str, share: float = 1.0, began: float = 0.0) -> Context:
        """The context of a piece of the current unit: a `share` of it, from the fraction `began` on."""
        return self.context.within((self.done + began) / self.expected, share / self.expected, name)


@dataclass(kw_only=True)
class PhaseTrainer(Trainer):
    """Trains routers (phase 1) and copies of the model with them (phase 2); everything reads with the same `n_sink`."""

    n_sink: int

    def sample(self, count: int) -> np.ndarray:
        """`count` windows of the training texts as long as the held-out ones, evenly spaced [n, T]."""
        length = self.windows.shape[1]
        return spread_windows(self.ids, length, count).reshape(-1, length)

    def router(self, name: str, plan: RouterTraining) -> FocusRouter:
        """The router that phase 1 of the plan gives; one unit of work."""
        router = self.of_phase_1(name, plan)
        self.done += 1
        self.curves += loss_curve(router.about["losses"], training=name, seed=plan.seed)
        return router

    def of_phase_1(self, name: str, plan: RouterTraining) -> FocusRouter:
        """As `router`, a piece of another unit of work."""
        path = self.work / f"router-{self._key(plan.plain())}.safetensors"
        with self.context.alone(path, name):
            if not path.is_file():
                checkpoint, report = path.with_suffix(".checkpoint"), self.within(self.named(name, plan.seed)).progress
                router, _, log = train_router(self.lm, self.ids, plan, checkpoint, report)
                router.save(path, revision=self.lm.revision, losses=[row["loss"] for row in log])
                clear(checkpoint)
        return FocusRouter.load(path, self.lm.num_layers, self.lm.width)

    def measure(self, router: FocusRouter, arms: list[Arm], windows: np.ndarray | None = None) -> dict[str, Read]:
        """Arms on the base model as it is, on the held-out windows or these; one unit of work."""
        ids = self.windows if windows is None else windows
        bench = Bench(self.lm, router, ids, self.n_sink, self.work, self.within(""), expected=len(arms))
        reads = {arm.name: Read.of(bench.measure(arm)) for arm in arms}
        self.done += 1
        return reads

    def tuned(
        self,
        name: str,
        plan: RouterTraining,
        start: FocusRouter,
        arms: Callable[[FocusRouter], Mapping[str, list[Arm]]],
        more: np.ndarray | None = None,
        look: Callable[[Model, FocusRouter], dict[str, float]] | None = None,
    ) -> Tuned:
        """Phase 2 of a plan from the router `start`: what the arms, made for the router it ends with, read with the
        fine-tuned model, those of one name as one, on the windows `more` too; and what `look` gives of both."""
        windows = {"held out": self.windows} | ({} if more is None else {"trained on": more})
        settings = [(arm.name, arm.settings, arm.drawn) for several in arms(start).values() for arm in several]
        texts = {where: ids_hash(ids) for where, ids in windows.items()}
        checkpoint = self.work / f"tuned-{self._key(plan.plain(), router_hash(start))}.checkpoint"

        def make(doing: Path) -> dict:
            report = self.within(self.named(name, plan.seed), TRAINED).progress
            copy, router, _, log = finetune(self.lm, start, self.ids, plan, checkpoint, report)
            result: dict[str, Any] = {"losses": [row["loss"] for row in log]}
            context, named = self.within(self.named(name, plan.seed), 1 - TRAINED, TRAINED), arms(router)
            count = sum(map(len, named.values()))
            for number, (where, ids) in enumerate(windows.items()):
                bench = Bench(copy, router, ids, self.n_sink, None, context, count * len(windows), count * number)
                result[where] = {
                    arm.name: Read.of(bench.measure(arm)).plain() for arms in named.values() for arm in arms
                }
            return result | ({"observed": look(copy, router)} if look else {})

        decides = [plan.plain(), router_hash(start), settings, texts, *(["observed"] if look else [])]
        parts = self.part("tuned", self._decides(*decides), make)
        clear(checkpoint)
        self.curves += loss_curve(parts["losses"], training=name, seed=plan.seed)
        reads: dict[str, dict[str, Read]] = {"trained on": {}}
        for where in windows:
            stored = {arm: Read.stored(part) for arm, part in parts[where].items()}
            named = arms(start).items()
            reads[where] = {name: Read.pool([stored[arm.name] for arm in several]) for name, several in named}
        return Tuned(reads["held out"], reads["trained on"], parts.get("observed", {}))

    def _decides(self, *more: object) -> list:
        return [self.lm.revision, str(self.lm.dtype), self.texts, self.n_sink, *more]

    def _key(self, *more: object) -> str:
        return text_hash(repr(self._decides(*more)))


def phase_2(
    plan: RouterTraining, router: FocusRouter, reading: str, window: int | None = None
) -> tuple[RouterTraining, FocusRouter]:
    """(plan, start) of fine-tuning from a router: through its soft gate or under a hard mask, or one of the controls;
    `window` tokens are always read (default: the router's)."""
    start = router if window is None else router.variant(window=window)
    return replace(plan, phase=2, reading=reading).after(start), start


def loss_curve(losses: list[float], points: int = POINTS, **about: Any) -> list[Row]:
    """The losses of a training, in nats per token, as few points `step loss`, means of the steps between; `about` says
    whose they are."""
    rows = []
    for piece in np.array_split(np.arange(len(losses)), min(points, len(losses))):
        loss = round(float(np.mean([losses[step] for step in piece])), 5)
        rows.append(about | {"step": int(piece[-1]) + 1, "loss": loss})
    return rows


def first_losses(lm: Model, numbers: dict) -> dict[str, list[float]]:
    """Training losses of the first steps of each of the stored `plans`, on the bundled samples; plans of phase 2 begin
    with the router that the first plan gives, which is one of phase 1."""
    losses, first = {}, None
    for name, settings in numbers["plans"].items():
        few = RouterTraining(**settings | {"steps": CHECKED, "calibration_windows": 2, "check_windows": 0})
        ids = sample_windows(lm, min(few.length, lm.max_positions)).reshape(-1)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "checkpoint"
            if few.phase == 1:
                router, _, log = train_router(lm, ids, few, place)
                first = first or router
            else:
                assert first is not None
                log = finetune(lm, first.variant(**asdict(few.router_settings())), ids, few, place)[-1]
        losses[name] = [row["loss"] for row in log]
    return losses


def plain(plans: dict[str, RouterTraining]) -> dict[str, dict]:
    """Plans as plain data."""
    return {name: asdict(plan) for name, plan in plans.items()}
