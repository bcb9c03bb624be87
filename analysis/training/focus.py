"""Training Focus' router with the base model frozen (Focus, section 2; phase 1 of section 4)."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
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
from analysis.metrics.quality import perplexity
from analysis.statistics import attention_inputs

KEEP_EVERY = 20  # steps between checkpoints
CHECK_EVERY = 100  # steps between measurements of the hard loss; the router of the best one is returned
CENTROIDS_FASTER = 10  # their rate over the projection's
SHARPEN_FROM, SHARPEST = 0.7, 3.0  # from this share of the steps on the gate's sharpness rises to this multiple


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
    check_windows: int = 8
    seed: int = 0


def train_router(
    model,
    train_ids: np.ndarray,
    plan: RouterTraining,
    checkpoint: Path,
    progress: Callable[[float, str], None] = lambda fraction, stage: None,
) -> tuple[FocusRouter, list[torch.Tensor], list[dict]]:
    """Train a router on `train_ids` (one long run of tokens), the base model frozen; resumes from `checkpoint`.

    The gate is soft and the groups balanced by Sinkhorn over each window (literal). Inference is hard and causal, so
    the *hard* loss, with the balance frozen on pooled training windows, is measured every 100 steps on the last
    `check_windows` windows of the text, which are not trained on; the router of the lowest one is returned. Returns
    it, the attention inputs it was balanced on (L tensors [N, d]) and one row per step: `step loss`, `largest_share`
    (the worst layer's, one window) at every checkpoint and `hard` where it was measured.
    Raises BadSetting for a corpus that is too short or a checkpoint of another plan, AnalysisError when the loss is
    no number; the last checkpoint stays.
    """
    length = min(plan.length, model.max_positions)
    if len(train_ids) <= length:
        raise BadSetting(
            f"The corpus has {len(train_ids):,} tokens and one window needs {length + 1:,}: give more text."
        )
    apart = length * min(plan.check_windows, len(train_ids) // (8 * length))
    train_ids, checked = np.split(train_ids, [len(train_ids) - apart])
    calibration = _windows(train_ids, length, plan.calibration_windows, plan.seed)
    pooled = attention_inputs(model, calibration)
    router, optimiser, log, best = _start(model, plan, pooled, checkpoint)
    wanted_gradient = {p for p in model.lm.parameters() if p.requires_grad}
    model.lm.requires_grad_(False)
    method = Focus.of(router, reading="soft", membership="literal")
    gentle = router.settings
    try:
        for step in range(len(log), plan.steps):
            progress(step / plan.steps, f"training the router, step {step + 1} of {plan.steps}")
            windows = _windows(train_ids, length, max(1, plan.tokens_per_step // length), plan.seed + 1 + step)
            router.settings = replace(gentle, gate_sharpness=gentle.gate_sharpness * _sharpening(step, plan))
            with apply(model, method, kernels=True):  # per step: others may use the model while progress is reported
                log.append({"step": step, "loss": _step(model, router, optimiser, windows, _rate(step, plan))})
            last = step + 1 == plan.steps
            if len(checked) and ((step + 1) % CHECK_EVERY == 0 or last):
                log[-1]["hard"] = _hard_loss(model, router, pooled, checked, length)
                if log[-1]["hard"] < best.get("hard", math.inf):
                    best = {"hard": log[-1]["hard"], "step": step} | _weights(router)
            if (step + 1) % KEEP_EVERY == 0 or last:
                log[-1]["largest_share"] = _worst_share(model, router, windows[0])
                _keep(checkpoint, router, optimiser, log, best, plan, model.revision)
    finally:
        router.settings = gentle
        for parameter in wanted_gradient:
            parameter.requires_grad_(True)
    progress(1.0, "freezing the balance on pooled windows")
    if best:
        router.load_state_dict(_weights(best), strict=False)
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


def _sharpening(step: int, plan: RouterTraining) -> float:
    """Multiple of the gate's sharpness: 1, then rising to 3, so that the soft gate ends near the hard mask."""
    return 1 + (SHARPEST - 1) * max(0.0, ((step + 1) / plan.steps - SHARPEN_FROM) / (1 - SHARPEN_FROM))


def _hard_loss(model, router: FocusRouter, pooled: list[torch.Tensor], ids: np.ndarray, length: int) -> float:
    """Nats per token as at inference: hard groups, the balance frozen on `pooled`. Leaves the router as it was."""
    router.fit_potential(pooled)
    with apply(model, Focus.of(router), kernels=True):
        return float(perplexity(model, ids, length).losses.mean())


def _weights(source) -> dict[str, torch.Tensor]:
    """Copies of the trained tensors of a router, or of what a checkpoint kept of the best one."""
    held = dict(source.named_parameters()) if isinstance(source, FocusRouter) else source
    return {name: held[name].detach().clone() for name in ("projection", "centroids")}


@torch.no_grad()
def _worst_share(model, router: FocusRouter, window: np.ndarray) -> float:
    inputs = attention_inputs(model, [window])
    shares = [largest_share(router.soft(layer, h).argmax(-1).cpu().numpy(), router.K) for layer, h in enumerate(inputs)]
    return max(shares)


def _windows(ids: np.ndarray, length: int, count: int, seed: int) -> list[np.ndarray]:
    starts = np.random.default_rng(seed).integers(0, len(ids) - length, count)
    return [ids[s : s + length] for s in starts]


def _start(model, plan: RouterTraining, pooled: list[torch.Tensor], checkpoint: Path):
    """A router and its optimiser, new or as the checkpoint left them, the log so far, and the best router so far."""
    sizes = {"groups": plan.groups, "top": plan.top, "window": plan.window, "n_sink": plan.n_sink}
    router = FocusRouter(model.num_layers, model.width, seed=plan.seed, **sizes)
    router.scale_to(pooled).to(model.device)
    parameters = [{"params": [router.projection]}, {"params": [router.centroids]}]
    optimiser = torch.optim.AdamW(parameters, lr=plan.rate, betas=(0.9, 0.95), eps=1e-12, weight_decay=0.0)
    if not checkpoint.is_file():
        return router, optimiser, [], {}
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
    best = {name.removeprefix("best."): tensor for name, tensor in stored.items() if name.startswith("best.")}
    return router, optimiser, about["log"], best | about["best"]


def _keep(checkpoint: Path, router: FocusRouter, optimiser, log: list[dict], best: dict, plan, revision: str) -> None:
    """Write the checkpoint whole or not at all: one file, tensors and log together."""
    tensors = _weights(router)
    for name, parameter in router.named_parameters():
        tensors |= {f"{name}.{key}": optimiser.state[parameter][key] for key in ("exp_avg", "exp_avg_sq")}
    if best:
        tensors |= {f"best.{name}": tensor for name, tensor in _weights(best).items()}
    measured = {key: best[key] for key in ("hard", "step") if key in best}
    about = {"plan": asdict(plan), "revision": revision, "log": log, "best": measured}
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    partial = checkpoint.with_name(f".{checkpoint.name}.{os.getpid()}.part")
    save_file(tensors, partial, metadata={"about": json.dumps(about)})
    os.replace(partial, checkpoint)
