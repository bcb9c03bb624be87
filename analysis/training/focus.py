"""Training Focus' router with the base model frozen (Focus, section 2; phase 1 of section 4)."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from analysis.attention import apply
from analysis.errors import AnalysisError, BadSetting
from analysis.groups.dominance import largest_share
from analysis.groups.router import FocusRouter
from analysis.methods.focus import Focus
from analysis.statistics import attention_inputs

KEEP_EVERY = 20  # steps between checkpoints
CENTROIDS_FASTER = 10  # their rate over the projection's


@dataclass(frozen=True)
class RouterTraining:
    """What a training run is; with the corpus and the model it decides every number of the result.

    `rate` is the projection's peak learning rate (cosine after `warm_up` steps); the centroids' is ten times that.
    `window` tokens are read by all while training, `n_sink` first ones too; `length` tokens make one sequence.
    """

    groups: int = 8
    top: int = 1
    window: int = 16
    n_sink: int = 4
    steps: int = 300
    tokens_per_step: int = 2048
    length: int = 1024
    rate: float = 1e-3
    warm_up: int = 20
    calibration_windows: int = 32
    seed: int = 0


def train_router(
    model,
    train_ids: np.ndarray,
    plan: RouterTraining,
    checkpoint: Path,
    progress: Callable[[float, str], None] = lambda fraction, stage: None,
) -> tuple[FocusRouter, list[torch.Tensor], list[dict]]:
    """Train a router on `train_ids` (one long run of tokens), the base model frozen; resumes from `checkpoint`.

    The gate is soft and the groups balanced by Sinkhorn over each window (literal); at the end the balance is frozen on
    pooled training windows, which makes membership causal. Returns the router, the attention inputs it was balanced on
    (L tensors [N, d]) and one row per step: `step loss`, and `largest_share` (the worst layer's, one window) at every
    checkpoint.
    Raises BadSetting for a corpus shorter than a window or a checkpoint of another plan, AnalysisError when the loss is
    no number; the last checkpoint stays.
    """
    length = min(plan.length, model.max_positions)
    if len(train_ids) <= length:
        raise BadSetting(
            f"The corpus has {len(train_ids):,} tokens and one window needs {length + 1:,}: give more text."
        )
    calibration = _windows(train_ids, length, plan.calibration_windows, plan.seed)
    router, optimiser, log = _start(model, plan, calibration, checkpoint)
    wanted_gradient = {p for p in model.lm.parameters() if p.requires_grad}
    model.lm.requires_grad_(False)
    method = Focus.of(router, reading="soft", membership="literal")
    try:
        for step in range(len(log), plan.steps):
            progress(step / plan.steps, f"training the router, step {step + 1} of {plan.steps}")
            windows = _windows(train_ids, length, max(1, plan.tokens_per_step // length), plan.seed + 1 + step)
            with apply(model, method):  # per step, so that others may use the model while progress is reported
                log.append({"step": step, "loss": _step(model, router, optimiser, windows, _rate(step, plan))})
                if (step + 1) % KEEP_EVERY == 0 or step + 1 == plan.steps:
                    log[-1]["largest_share"] = _worst_share(model, router, windows[0])
                    _keep(checkpoint, router, optimiser, log, plan, model.revision)
    finally:
        for parameter in wanted_gradient:
            parameter.requires_grad_(True)
    progress(1.0, "freezing the balance on pooled windows")
    pooled = attention_inputs(model, calibration)
    router.cpu().requires_grad_(False).fit_potential(pooled)
    return router, pooled, log


def _step(model, router: FocusRouter, optimiser, windows: list[np.ndarray], rate: float) -> float:
    """One optimiser step, window by window so that memory is that of one; returns the mean loss in nats per token."""
    for group, times in zip(optimiser.param_groups, (1, CENTROIDS_FASTER), strict=True):
        group["lr"] = rate * times
    optimiser.zero_grad()
    total = 0.0
    for window in windows:
        batch = torch.as_tensor(window, device=model.device)[None]  # [1, T]
        logits = model.lm(batch, use_cache=False).logits[0, :-1].float()
        loss = F.cross_entropy(logits, batch[0, 1:]) / len(windows)
        if not math.isfinite(loss.item()):
            raise AnalysisError(
                "The training loss is no number: the last checkpoint is kept, so lower the rate and resume."
            )
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(router.parameters(), 1.0)
    optimiser.step()
    return total


def _rate(step: int, plan: RouterTraining) -> float:
    """Linear warm-up, then cosine to 5 %."""
    if step < plan.warm_up:
        return plan.rate * (step + 1) / plan.warm_up
    done = (step - plan.warm_up) / max(1, plan.steps - plan.warm_up)
    return plan.rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))


@torch.no_grad()
def _worst_share(model, router: FocusRouter, window: np.ndarray) -> float:
    inputs = attention_inputs(model, [window])
    shares = [largest_share(router.soft(layer, h).argmax(-1).cpu().numpy(), router.K) for layer, h in enumerate(inputs)]
    return max(shares)


def _windows(ids: np.ndarray, length: int, count: int, seed: int) -> list[np.ndarray]:
    starts = np.random.default_rng(seed).integers(0, len(ids) - length, count)
    return [ids[s : s + length] for s in starts]


def _start(model, plan: RouterTraining, calibration: list[np.ndarray], checkpoint: Path):
    """A router and its optimiser, new or as the checkpoint left them, and the log so far."""
    sizes = {"groups": plan.groups, "top": plan.top, "window": plan.window, "n_sink": plan.n_sink}
    router = FocusRouter(model.num_layers, model.width, seed=plan.seed, **sizes)
    router.scale_to(attention_inputs(model, calibration[:4])).to(model.device)
    parameters = [{"params": [router.projection]}, {"params": [router.centroids]}]
    optimiser = torch.optim.AdamW(parameters, lr=plan.rate, betas=(0.9, 0.95), eps=1e-12, weight_decay=0.0)
    if not checkpoint.is_file():
        return router, optimiser, []
    try:
        with safe_open(checkpoint, framework="pt") as file:
            about = json.loads(file.metadata()["about"])
            stored = {name: file.get_tensor(name).to(model.device) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        raise BadSetting(f"The checkpoint {checkpoint.name} is damaged: delete it to train from the start.") from None
    made_with = about["plan"] | {"revision": about["revision"]}
    if made_with != asdict(plan) | {"revision": model.revision}:
        raise BadSetting(
            f"The checkpoint {checkpoint.name} is of other settings or another model: delete it, or give another "
            "output folder."
        )
    with torch.no_grad():
        for name, parameter in router.named_parameters():
            parameter.copy_(stored[name])
            moments = {key: stored[f"{name}.{key}"] for key in ("exp_avg", "exp_avg_sq")}
            optimiser.state[parameter] = {"step": torch.tensor(float(len(about["log"]))), **moments}
    return router, optimiser, about["log"]


def _keep(
    checkpoint: Path, router: FocusRouter, optimiser, log: list[dict], plan: RouterTraining, revision: str
) -> None:
    """Write the checkpoint whole or not at all: one file, tensors and log together."""
    tensors = {name: p.detach() for name, p in router.named_parameters()}
    for name, parameter in router.named_parameters():
        tensors |= {f"{name}.{key}": optimiser.state[parameter][key] for key in ("exp_avg", "exp_avg_sq")}
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    partial = checkpoint.with_name(f".{checkpoint.name}.{os.getpid()}.part")
    save_file(
        tensors, partial, metadata={"about": json.dumps({"plan": asdict(plan), "revision": revision, "log": log})}
    )
    os.replace(partial, checkpoint)
