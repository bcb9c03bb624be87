"""The trainings of the baselines, one way each, and what is read of a model afterwards."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ... import places
from ...corpus import text_hash
from ...groups.router import FocusRouter
from ...methods import METHODS
from ...methods.base import Method
from ...metrics.quality import token_losses
from ...models import Model
from ...seam.attention import apply
from ...training.copies import keep_copy
from ...training.extend import Extension, extend
from ...training.focus import finetune, lora_copy, trainable
from ...training.settings import RouterTraining
from ..benchmarks.scores import Coded
from ..benchmarks.tasks import Asked
from ..stored.measured import READINGS
from ..stored.trained import TRAINED, PhaseTrainer, loss_curve, phase_2
from ..text.held_out import ids_hash, storing
from .finetune_tasks import answers, scored

RANKS = (4, 16)
# Additions of low rank in the place of all weights.
ADAPTERS = {"lora": "LoRA", "dora": "DoRA"}
READ = {"trained": "hard groups", "trained, soft": "soft gate"}
# Read in the place of attention.
READERS = {"longformer": "Longformer", "performer": "Performer", "routing_transformer": "Routing Transformer"}


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
        if self.kind in ADAPTERS:
            return f"{ADAPTERS[self.kind]} r={self.size}"
        return {"focus": f"Focus K={self.size}", "full": "full fine-tuning"}[self.kind]

    @property
    def name(self) -> str:
        """Its name."""
        return f"{self.line}, {self.rate:g}"


@dataclass(kw_only=True)
class Baselines(PhaseTrainer):
    """Trains in every way, and reads held-out windows of every domain, `held`, and the questions `asked`."""

    held: dict[str, np.ndarray]
    asked: dict[str, list]
    # Whether the copies stay, as models.
    keep: bool = False
    # Benchmarks that are asked besides.
    benchmarks: dict[str, tuple[Asked, list[Coded]]] = field(default_factory=dict)

    def base(self, plan: RouterTraining) -> dict:
        """What the base is: `means` and `tasks`."""
        decides = self._decides(self._measured(), plan.seed)
        return self.part("baselines-base", decides, lambda _: self._read(self.lm, METHODS["dense"](), 0.0, "base"))

    def untrained(self, kind: str, plan: RouterTraining) -> dict:
        """`means` and `tasks` of the model as it was pretrained, read by another method."""
        decides = self._decides(plan.plain(), kind, self._measured())
        name = f"{READERS[kind]}, as pretrained, seed {plan.seed}"
        return self.part("baselines-read", decides, lambda _: self._read(self.lm, self._reader(kind, plan), 0.0, name))

    def way(self, way: Way, plan: RouterTraining) -> tuple[RouterTraining | None, dict]:
        """(its plan as a router's or a control's training, `parameters` trained, `losses` of its steps and what every
        reading gives)."""
        name = self.named(way.name, plan.seed)
        start: FocusRouter | None = None
        decides: list = [way.kind, way.size]
        train: Callable[..., dict] = self._copy
        if way.kind in READERS:
            run_plan, decides = replace(plan, base_rate=way.rate), [way.kind]
            train = self._reading_otherwise
        elif way.kind == "focus":
            run_plan, train = replace(plan, groups=way.size or plan.groups, rate=way.rate), self._focus
        else:
            router = FocusRouter(self.lm.num_layers, self.lm.width, plan.router_settings(), seed=plan.seed)
            run_plan, start = phase_2(replace(plan, base_rate=way.rate), router, "alone", self.windows.shape[1])
        decides = self._decides(run_plan.plain(), *decides, self._measured())
        # One whose copy went has to be trained again.
        decides += ["its copy stays"] if self.keep and way.kind != "focus" else []
        made = self.part("baselines-way", decides, lambda doing: train(way, name, run_plan, start, doing))
        self.curves += loss_curve(made["losses"], training=way.name, seed=plan.seed)
        return None if way.kind in READERS else run_plan, made

    def _focus(self, way: Way, name: str, plan: RouterTraining, start: None, doing: Path) -> dict:
        """The router alone, read hard and through its soft gate."""
        router, reads = self.of_phase_1(way.name, plan), {}
        for read, reading_name in READ.items():
            about = {"window": plan.window, "n_sink": self.n_sink, **READINGS[read]}
            method = METHODS["focus"].build(router, **about)
            reads[read] = self._read(self.lm, method, TRAINED, f"{name}, {reading_name}", kernels=True)
        return {"parameters": router.size, "reads": reads, "losses": router.about["losses"]}

    def _copy(self, way: Way, name: str, plan: RouterTraining, start: FocusRouter, doing: Path) -> dict:
        """A copy of the model, with LoRA, DoRA or whole."""
        # The copy learns under full attention, so that LoRA and all weights are compared without groups.
        rank, dora = way.size if way.kind in ADAPTERS else None, way.kind == "dora"
        place, report = doing / "training.checkpoint", self.within(name, TRAINED).progress
        tuned, _, _, log = finetune(self.lm, start, self.ids, plan, place, report, rank=rank, dora=dora)
        parameters = sum(p.numel() for p in tuned.lm.parameters())
        if rank is not None:
            parameters = trainable(lora_copy(self.lm, rank, dora=dora).lm)
        self._keep(tuned, way, asdict(plan))
        reads = {"dense": self._read(tuned, METHODS["dense"](), TRAINED, name)}
        return {"parameters": parameters, "reads": reads, "losses": [row["loss"] for row in log]}

    def _reading_otherwise(self, way: Way, name: str, plan: RouterTraining, start: None, doing: Path) -> dict:
        """A copy of the model, all of it trained while it reads by another method."""
        names, method = "length steps tokens_per_step warm_up clip seed".split(), self._reader(way.kind, plan)
        extension = Extension(rate=plan.base_rate, **{name: getattr(plan, name) for name in names})
        report, place = self.within(name, TRAINED).progress, doing / "training.checkpoint"
        tuned, losses = extend(self.lm, self.ids, extension, place, report, self.texts, method)
        parameters = sum(p.numel() for p in tuned.lm.parameters())
        self._keep(tuned, way, asdict(extension))
        reads = {way.kind: self._read(tuned, method, TRAINED, name)}
        return {"parameters": parameters, "reads": reads, "losses": losses}

    def _keep(self, tuned: Model, way: Way, plan: dict) -> None:
        """Leave a copy as a model, where copies stay. Its name ends with what decides it."""
        if not self.keep:
            return
        made_of = text_hash(f"{self.lm.revision} {self.texts} {plan}")[:6]
        size = "" if way.size is None else f"-r{way.size}"
        name = f"{Path(self.lm.name).name}-{way.kind.replace('_', '-')}{size}-{way.rate:g}-{made_of}"
        reads = way.kind if way.kind in READERS else "dense"
        about = {"way": way.line, "read_by": reads, "training": plan, "training_text": self.texts}
        with storing("copy", places.CACHE / places.FINETUNED):
            keep_copy(tuned, self.lm, name, about)

    def _reader(self, kind: str, plan: RouterTraining) -> Method:
        """Longformer with Focus' window and sinks, which are its global tokens; Performer with random features of its
        own for each seed; Routing Transformer with as many clusters as Focus
        has groups, found in as many windows of the training texts."""
        if kind == "longformer":
            return METHODS[kind].build(window=plan.window, n_global=self.n_sink)
        if kind == "performer":
            return METHODS[kind].build(seed=plan.seed % 100)
        about: dict[str, Any] = {"window": plan.window, "n_sink": self.n_sink, "clusters": plan.groups}
        method = METHODS[kind](**about | {"seed": plan.seed})
        return method.fit(self.lm, torch.as_tensor(self.sample(plan.calibration_windows)))

    def _measured(self) -> list:
        items = {name: len(questions) for name, questions in self.asked.items()}
        items |= {name: len(coded) for name, (_, coded) in self.benchmarks.items()}
        return [{name: ids_hash(ids) for name, ids in self.held.items()}, items]

    def _read(self, lm: Model, method: Method, began: float, name: str, kernels: bool = False) -> dict:
        """What a model reads by a method: `means` domain -> nats per token of each window, `tasks` and, where they
        are asked, `benchmarks` task -> scores of its items. `began`: the share of the unit of work that is done."""
        share = (1 - began) / (len(self.held) + 1)
        means_of: dict[str, list[float]] = {}
        for number, (domain, ids) in enumerate(self.held.items()):
            report = self.within(f"{name}, {domain}", share, began + number * share).progress
            means_of[domain] = []
            # One window at a time, so that others may use the model between two.
            for place, window in enumerate(ids):
                report(place / len(ids), f"window {place + 1} of {len(ids)}")
                with apply(lm, method, kernels=kernels):
                    losses = token_losses(lm, torch.as_tensor(window)[None])[0]
                means_of[domain].append(round(float(losses.astype(np.float64).mean()), 6))
        report = partial(self.within(name, 0.0, 0.99).progress, 0.0)
        read = {"means": means_of, "tasks": answers(lm, method, self.asked, report)}
        return read | ({"benchmarks": scored(lm, method, self.benchmarks, report)} if self.benchmarks else {})
