"""One training run of a Focus router: its steps, its looks at the groups, and what it keeps to be continued."""

import contextlib
import math
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from ..errors import AnalysisError, BadSetting, Cancelled
from ..groups.router import FocusRouter
from ..methods.focus import Focus
from ..metrics.quality import perplexity
from ..seam.attention import apply
from ..statistics import attention_inputs
from .checkpoints import load_checkpoint, save_checkpoint
from .mitigations import method_of, recluster
from .room import recomputed, recomputes
from .settings import CONTROLS, RouterTraining
from .steps import window_loss

if TYPE_CHECKING:
    from ..models import Model

# Steps between looks at the groups, and at most between checkpoints.
KEEP_EVERY = 20
# Seconds of training that are lost at most when the process dies, where writing is quick.
PATIENCE = 10.0
# Times as long as writing a checkpoint takes, the training goes on before it writes the next.
WRITING = 20
# Steps between measurements of the hard loss; what was trained at the best one is returned.
CHECK_EVERY = 100
# Calibration windows on which the groups are looked at.
PROBED = 4

Progress = Callable[[float, str], None]
Also = Callable[..., dict]
Watch = Callable[[list[dict]], None]


class Run:
    """One run: what is trained, on what, and what it remembers. What it gives: `training.focus.train_router`."""

    def __init__(
        self,
        model: "Model",
        router: FocusRouter | None,
        train_ids: np.ndarray,
        plan: RouterTraining,
        checkpoint: Path,
        also: Also | None,
    ) -> None:
        self.model, self.plan, self.checkpoint, self.also = model, plan, checkpoint, also
        self.length = min(plan.length, model.max_positions)
        if len(train_ids) <= self.length:
            raise BadSetting(
                f"The corpus has {len(train_ids):,} tokens and one window needs {self.length + 1:,}: give more text."
            )
        if plan.groups > self.length:
            raise BadSetting(
                f"{plan.groups} groups cannot share the {self.length:,} tokens of a sequence: choose at most as many."
            )
        self.recompute = recomputes(model, self.length, plan.phase)
        apart = self.length * min(plan.check_windows, len(train_ids) // (8 * self.length))
        self.ids, self.checked = np.split(train_ids, [len(train_ids) - apart])
        self.calibration = self._windows(plan.calibration_windows, [0, plan.seed])
        pooled = attention_inputs(model, self.calibration)
        if router is None:
            router = FocusRouter(model.num_layers, model.width, plan.router_settings(), seed=plan.seed)
            router.scale_to(pooled)
        self.router = router.to(model.device)
        # The router's own gate; it is sharpened for the last steps.
        self.gentle = router.settings
        self.method = method_of(plan, router)
        self._choose_parameters()
        self.log: list[dict] = []
        self.best: dict = {}
        self.start, self.first = router.variant(), self._inputs(self.calibration[:PROBED])
        for layer, hidden in enumerate(self.first):
            self.start.balance(layer, hidden)
        labels = None
        if checkpoint.is_file():
            about, tensors = load_checkpoint(checkpoint, self.parameters, (self.optimiser,), self._recipe())
            labels = tensors.pop("labels", None)  # of the last look
            self.log, self.best = about["log"], tensors | about["best"]
        self.labels = self._labels(self.first) if labels is None else labels
        self.pooled = pooled if plan.phase == 1 else self._inputs(self.calibration)
        self.kept, self.kept_at, self.writing = len(self.log), time.monotonic(), 0.0

    def _choose_parameters(self) -> None:
        """What is trained, by name, and its optimiser: projection, centroids and base with rates of their own."""
        plan, router = self.plan, self.router
        learns = plan.reading not in ("hard", *CONTROLS)
        router.projection.requires_grad_(learns)
        router.centroids.requires_grad_(learns and not plan.ema)
        base = {f"base.{name}": p for name, p in self.model.lm.named_parameters()} if plan.phase == 2 else {}
        self.parameters = {"projection": router.projection, "centroids": router.centroids, **base}
        rated = (
            (plan.rate, [router.projection]),
            (plan.rate * plan.centroids_faster, [router.centroids]),
            (plan.base_rate, list(base.values())),
        )
        self.rated = [(rate, wanted) for rate, ps in rated if (wanted := [p for p in ps if p.requires_grad])]
        groups = [{"params": wanted} for _, wanted in self.rated]
        # Gradients of a router are tiny: the usual eps of 1e-8 would slow it down.
        self.optimiser = torch.optim.AdamW(groups, lr=plan.rate, betas=(0.9, 0.95), eps=1e-12, weight_decay=0.0)

    def train(
        self, progress: Progress, watch: Watch = lambda log: None
    ) -> tuple[FocusRouter, list[torch.Tensor], list[dict]]:
        """From the last checkpoint to the end. `watch` sees the rows so far before every step. Raises Cancelled with
        the steps that are kept when `progress` does."""
        plan, router = self.plan, self.router
        start = {} if self.log else {"start": self._look()}
        trained_part = "router" if plan.phase == 1 else "model"

        def border(step: int, done: float = 0.0) -> None:
            stage = f"{trained_part}, step {step + 1} of {plan.steps}{self._state()}"
            progress((step + done) / plan.steps, stage)

        try:
            for step in range(len(self.log), plan.steps):
                watch(self.log)
                border(step)
                try:
                    loss = self.step(step, partial(border, step))
                    self.log.append({"step": step, "loss": loss} | (start if step == 0 else {}))
                    self._after(step)
                except BadSetting as error:  # scores that are no numbers, because the weights are none
                    raise self._broken(step) from error
        except Cancelled as stopped:
            raise self._stopped(stopped) from stopped
        finally:
            router.settings = self.gentle
        progress(1.0, "freezing the balance on pooled windows")
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                if name in self.best:
                    parameter.copy_(self.best[name])
        if plan.phase == 2:
            self.pooled = self._inputs(self.calibration)
            self.model.lm.requires_grad_(False)
        router.cpu().requires_grad_(False).fit_potential(self.pooled)
        router.about |= {"kind": "trained", "steps": plan.steps}
        return router, self.pooled, self.log

    def step(self, step: int, border: Callable[[float], None] = lambda done: None) -> float:
        """One optimiser step, window by window so that memory is that of one; returns the mean loss in nats. `border`
        is called between windows with the share that is done; when it raises, the step has changed nothing."""
        plan = self.plan
        windows = self._windows(max(1, plan.tokens_per_step // self.length), [1 + step, plan.seed])
        assert self.gentle.gate_sharpness is not None, "settings fill it in"
        sharper = self.gentle.gate_sharpness * plan.sharpening(step)
        self.router.settings = replace(self.gentle, gate_sharpness=sharper)
        for group, (rate, _) in zip(self.optimiser.param_groups, self.rated, strict=True):
            group["lr"] = rate * plan.rate_at(step)
        self.optimiser.zero_grad()
        total = torch.zeros((), device=self.model.device)
        for number, window in enumerate(windows):
            if number:
                border(number / len(windows))
            # Per window: others may use the model at a border.
            with apply(self.model, self.method, kernels=True), recomputed(self.model, self.recompute):
                self.method.begin(step + 1, number)
                loss = window_loss(self.model, window) / len(windows)
                (loss + self.method.penalty() / len(windows)).backward()
                total += loss.detach()
        # Clipped apart from the model, whose gradients are so much larger that the router would not move.
        of_router = {id(p) for p in self.router.parameters()}
        trained = [p for _, wanted in self.rated for p in wanted]
        sound = bool(total.isfinite())
        for part in ([p for p in trained if id(p) in of_router], [p for p in trained if id(p) not in of_router]):
            sound = sound and bool(torch.nn.utils.clip_grad_norm_(part, plan.clip).isfinite())
        if not sound:
            raise self._broken(step)
        self.optimiser.step()
        if plan.ema:
            self.method.move_centroids()
        # Not after the last step: what is left would be fresh clusters, which no training has moved.
        if plan.recluster_every and (step + 1) % plan.recluster_every == 0 and step + 1 < plan.steps:
            recluster(self.router, self._inputs(self.calibration[:PROBED]), plan.seed)
        self.method.seen.clear()
        return float(total)

    def _after(self, step: int) -> None:
        """What is measured, looked at and kept after a step."""
        last = step + 1 == self.plan.steps
        look = last or (step + 1) % KEEP_EVERY == 0
        if len(self.checked) and (last or (step + 1) % CHECK_EVERY == 0):
            self._check()
        if look:
            self.log[-1] |= self._look()
        if look or time.monotonic() - self.kept_at > max(PATIENCE, WRITING * self.writing):
            if not self._sound():
                raise self._broken(step)
            self._keep()

    def _broken(self, step: int) -> AnalysisError:
        plan = self.plan
        return AnalysisError(
            f"The training loss is no number at step {step + 1} of {plan.steps}: the last checkpoint is kept, of step "
            f"{self.kept}; train anew with rates below {plan.rate:g} and {plan.base_rate:g}."
        )

    def _stopped(self, stopped: Cancelled) -> Cancelled:
        """Keep the steps that were done; the sentence that says where the training goes on."""
        if len(self.log) > self.kept and self._sound():
            self._keep()
        if not self.kept:
            return stopped
        return Cancelled(
            f"The training was stopped and {self.kept:,} of {self.plan.steps:,} steps are kept: with the same settings "
            f"it goes on at step {self.kept + 1:,}."
        )

    @torch.no_grad()
    def _sound(self) -> bool:
        """Whether what was trained so far still gives a number, so that no broken state is kept."""
        with apply(self.model, self.method, kernels=True):
            loss = window_loss(self.model, self.calibration[0])
        self.method.seen.clear()
        return math.isfinite(float(loss))

    def _check(self) -> None:
        """Nats per token as at inference: hard groups, the balance frozen on pooled windows; keeps the best."""
        if self.plan.phase == 2:
            self.pooled = self._inputs(self.calibration)
        self.router.fit_potential(self.pooled)
        self.method.begin()
        as_read = self.method if self.plan.reading in CONTROLS else Focus.build(self.router)
        with apply(self.model, as_read, kernels=True):
            hard = float(perplexity(self.model, self.checked, self.length).losses.mean())
        self.log[-1]["hard"] = hard
        if hard < self.best.get("hard", math.inf):
            best_tensors = {name: p.detach().clone() for name, p in self.parameters.items()}
            self.best = {"hard": hard, "step": self.log[-1]["step"]} | best_tensors

    def _look(self) -> dict:
        """The groups of the probed windows: how large the largest are, and how many tokens stayed in theirs."""
        inputs = self._inputs(self.calibration[:PROBED])
        before, self.labels = self.labels, self._labels(inputs)
        sizes = F.one_hot(self.labels, self.router.K).sum(1)  # [L, K], or of each head [L, heads, K]
        grouped = self.router.grouped
        largest = (sizes.amax(-1) / sizes.sum(-1)).view(len(sizes), -1).amax(1).tolist()
        # A layer without groups has none that could grow.
        shares = [share if layer in grouped else None for layer, share in enumerate(largest)]
        stay = float((before == self.labels)[grouped].float().mean())
        looked = {"largest_share": max(largest[layer] for layer in grouped), "shares": shares, "stability": stay}
        return looked | (self.also(self.router, inputs, self.start, self.first) if self.also else {})

    def _state(self) -> str:
        """The state of the run in words, for whoever waits."""
        last_look = next((row for row in reversed(self.log) if "shares" in row), None)
        groups = f", largest {last_look['largest_share']:.0%}, {last_look['stability']:.0%} stay" if last_look else ""
        return f": loss {self.log[-1]['loss']:.2f}{groups}" if self.log else ""

    def _inputs(self, windows: list[np.ndarray]) -> list[torch.Tensor]:
        """What enters the attention: of the dense model in phase 1, of the model as it is trained in phase 2."""
        self.method.begin()
        with apply(self.model, self.method, kernels=True) if self.plan.phase == 2 else contextlib.nullcontext():
            inputs = attention_inputs(self.model, windows)
        self.method.seen.clear()
        return inputs

    @torch.no_grad()
    def _labels(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        """Best group of every probed token, balanced window by window as in training: int64 [L, N], or
        of each head [L, N, heads]."""
        best = []
        for layer, hidden in enumerate(inputs):
            windows = hidden.to(self.model.device).split(self.length)
            best.append(torch.cat([self.router.soft(layer, window).argmax(-1) for window in windows]))
        return torch.stack(best).cpu()

    def _windows(self, count: int, seed: list[int]) -> list[np.ndarray]:
        # Both numbers, not their sum: with that a seed read all windows but one of the seed before.
        starts = np.random.default_rng(seed).integers(0, len(self.ids) - self.length, count)
        return [self.ids[s : s + self.length] for s in starts]

    def _recipe(self) -> dict:
        # A checkpoint belongs to the tokens that were read, wherever they lay.
        read = zlib.crc32(np.ascontiguousarray(self.ids, dtype="<i8").tobytes())
        return self.plan.plain() | {"model": self.model.revision, "corpus": read}

    def _keep(self) -> None:
        began = time.monotonic()
        tensors = {name: tensor for name, tensor in self.best.items() if name in self.parameters}
        about = {"log": self.log, "best": {name: self.best[name] for name in ("hard", "step") if name in self.best}}
        extra = tensors | {"labels": self.labels}
        save_checkpoint(self.checkpoint, self.parameters, (self.optimiser,), self._recipe(), extra, **about)
        self.kept, self.kept_at = len(self.log), time.monotonic()
        self.writing = self.kept_at - began
