"""The trainings of the baselines, one way each, and what is read of a model afterwards."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from ...groups.router import FocusRouter
from ...methods import METHODS
from ...methods.base import Method
from ...metrics.quality import token_losses
from ...models import Model
from ...seam.attention import apply
from ...training.extend import Extension, extend
from ...training.focus import finetune as finetune_all
from ...training.lora import finetune_lora, lora_copy, trainable
from ...training.settings import RouterTraining
from ..context import Context
from ..stored.measured import DENSE, READINGS, Arm, Bench, trained_arm
from ..stored.trained import TRAINED, PhaseTrainer, phase_2
from ..text.held_out import ids_hash
from .finetune_tasks import answers

RANKS = (4, 16)
READ = {"trained": "hard groups", "trained, soft": "soft gate"}
READERS = {"performer": "Performer", "routing_transformer": "Routing Transformer"}  # read in the place of attention


@dataclass(frozen=True)
class Way:
    """One training: what, its rank or its number of groups, and its learning rate."""

    kind: str
    size: int | None
    rate: float

    @property
    def line(self) -> str:
        """Its name without the rate."""
        if self.kind in READERS:
            return f"{READERS[self.kind]}, fine-tuned"
        return {"lora": f"LoRA r={self.size}", "focus": f"Focus K={self.size}", "full": "full fine-tuning"}[self.kind]

    @property
    def name(self) -> str:
        """Its name."""
        return f"{self.line}, {self.rate:g}"


@dataclass(kw_only=True)
class Baselines(PhaseTrainer):
    """Trains in every way, and reads held-out windows of every domain, `held`, and the questions `asked`."""

    held: dict[str, np.ndarray]
    asked: dict[str, list]

    def base(self, plan: RouterTraining) -> dict:
        """What the base is: `means` and `tasks`."""
        decides, base = self._decides(self._measured(), plan.seed), self._untrained(plan)
        return self.part("baselines-base", decides, lambda _: self._read(self.lm, DENSE, base, plan, 0.0, "base"))

    def untrained(self, kind: str, plan: RouterTraining) -> dict:
        """`means` and `tasks` of the model as it was pretrained, read by another method."""
        decides = self._decides(asdict(plan), kind, self._measured())
        name = f"{READERS[kind]}, as pretrained, seed {plan.seed}"

        def make(_: Path) -> dict:
            return self._read_by(self.lm, self._reader(kind, plan), 0.0, name)

        return self.part("baselines-read", decides, make)

    def way(self, way: Way, plan: RouterTraining, seeds: int) -> tuple[RouterTraining | None, dict]:
        """(its plan as a router's or a control's training, `parameters` trained and what every reading gives) of one
        training of so many."""
        name = way.name if seeds == 1 else f"{way.name}, seed {plan.seed}"
        if way.kind in READERS:
            run_plan = replace(plan, base_rate=way.rate)
            decides = self._decides(asdict(run_plan), way.kind, self._measured())
            return None, self.part("baselines", decides, lambda doing: self._with(way, name, run_plan, doing))
        if way.kind == "focus":
            run_plan, start = replace(plan, groups=way.size, rate=way.rate), None
        else:
            length = self.windows.shape[1]
            run_plan, start = phase_2(replace(plan, base_rate=way.rate), self._untrained(plan), "alone", length)
        decides = self._decides(asdict(run_plan), way.kind, way.size, self._measured())
        train = self._focus if way.kind == "focus" else self._copy
        return run_plan, self.part("baselines", decides, lambda doing: train(way, name, run_plan, start, doing))

    def _focus(self, way: Way, name: str, plan: RouterTraining, start: None, doing: Path) -> dict:
        """The router alone, read hard and through its soft gate."""
        router, reads = self.router(name, plan), {}
        # The router and its reading are one unit.
        self.done -= 1
        for read, reading_name in READ.items():
            arm = trained_arm(read, router, plan.window)
            reads[read] = self._read(self.lm, arm, router, plan, TRAINED, f"{name}, {reading_name}")
        return {"parameters": router.size, "reads": reads}

    def _copy(self, way: Way, name: str, plan: RouterTraining, start: FocusRouter, doing: Path) -> dict:
        """A copy of the model, with LoRA or whole."""
        checkpoint, report = doing / "training.checkpoint", self.told(name, TRAINED)
        if way.kind == "lora":
            tuned = finetune_lora(self.lm, start, self.ids, plan, way.size, checkpoint, report)[0]
            parameters = trainable(lora_copy(self.lm, way.size).lm)
        else:
            tuned = finetune_all(self.lm, start, self.ids, plan, checkpoint, report)[0]
            parameters = sum(p.numel() for p in tuned.lm.parameters())
        return {"parameters": parameters, "reads": {"dense": self._read(tuned, DENSE, start, plan, TRAINED, name)}}

    def _with(self, way: Way, name: str, plan: RouterTraining, doing: Path) -> dict:
        """A copy of the model, all of it trained while it reads by another method."""
        names, method = "length steps tokens_per_step warm_up clip seed".split(), self._reader(way.kind, plan)
        extension = Extension(rate=plan.base_rate, **{name: getattr(plan, name) for name in names})
        report, place = self.told(name, TRAINED), doing / "training.checkpoint"
        tuned, _ = extend(self.lm, self.ids, extension, place, report, self.texts, method)
        parameters = sum(p.numel() for p in tuned.lm.parameters())
        return {"parameters": parameters, "reads": {way.kind: self._read_by(tuned, method, TRAINED, name)}}

    def _reader(self, kind: str, plan: RouterTraining) -> Method:
        """Performer with random features of its own for each seed; Routing Transformer with as many clusters as Focus
        has groups, found in as many windows of the training texts."""
        if kind == "performer":
            return METHODS[kind](seed=plan.seed % 100)
        about = {"window": plan.window, "n_sink": self.n_sink, "clusters": plan.groups, "seed": plan.seed}
        return METHODS[kind](**about).fit(self.lm, torch.as_tensor(self.sample(plan.calibration_windows)))

    def _measured(self) -> list:
        items = {name: len(questions) for name, questions in self.asked.items()}
        return [{name: ids_hash(ids) for name, ids in self.held.items()}, items]

    def _untrained(self, plan: RouterTraining) -> FocusRouter:
        return FocusRouter(self.lm.num_layers, self.lm.width, plan.router_settings(), seed=plan.seed)

    def _read(self, lm: Model, arm: Arm, router: FocusRouter, plan: RouterTraining, began: float, name: str) -> dict:
        """What an arm of Focus reads, or dense attention."""
        method = METHODS["dense"]()
        if arm is not DENSE:
            method = METHODS["focus"].build(router, window=plan.window, n_sink=self.n_sink, **READINGS[arm.name])

        def means(ids: np.ndarray, context: Context) -> np.ndarray:
            return Bench(lm, router, ids, self.n_sink, None, context, expected=1).measure(arm).means

        return self._found(lm, method, means, began, name)

    def _read_by(self, lm: Model, method: Method, began: float, name: str) -> dict:
        """What any method reads."""

        def means(ids: np.ndarray, context: Context) -> np.ndarray:
            losses = []
            for number, window in enumerate(ids):
                context.progress(number / len(ids), f"window {number + 1} of {len(ids)}")
                with apply(lm, method):
                    losses.append(token_losses(lm, torch.as_tensor(window)[None])[0].astype(np.float64).mean())
            return np.array(losses)

        return self._found(lm, method, means, began, name)

    def _found(self, lm: Model, method: Method, means: Callable, began: float, name: str) -> dict:
        """`means` domain -> nats per token of each window, `tasks` task -> scores of its items. `began`: the share of
        the unit of work that is done."""
        share, means_of = (1 - began) / (len(self.held) + 1), {}
        for number, (domain, ids) in enumerate(self.held.items()):
            context = self.within(f"{name}, {domain}", share, began + number * share)
            means_of[domain] = [round(float(value), 6) for value in means(ids, context)]
        report = self.told(name, 0.0, 0.99)
        return {"means": means_of, "tasks": answers(lm, method, self.asked, lambda stage: report(0.0, stage))}
