"""Reading twice the context: positions as they are, dynamic NTK, and a base of 500,000, untrained and fine-tuned.

Focal Attention's section 3.4 scales the base of the rotary positions from 10,000 to 500,000 and trains at the greater
length (Xiong et al. 2023); beyond it, dynamic NTK extrapolates without training (Peng et al. 2023).
"""

from dataclasses import asdict, dataclass

import numpy as np
import torch

from analysis.errors import BadSetting
from analysis.metrics.quality import token_losses
from analysis.models import Model
from analysis.probes.rotary import base_for, reach, rotary_base
from analysis.studies.stored.comparisons import difference, interval_caveat
from analysis.studies.stored.panels import columns, panel, series
from analysis.studies.stored.runner import Seeds, Setting, Study, Texts, option
from analysis.studies.stored.trained import Trainer
from analysis.studies.text.held_out import check_range, held_out_windows, ids_hash, sample_windows
from analysis.training.extend import Extension, extend
from lab.harness.telling import concluded

FACTOR, BASE = 2.0, 500_000.0
BINS = 8
WAYS = {  # name -> (way of the rotary base, whether a copy is fine-tuned with it)
    "own positions": ("longer", False),
    "dynamic NTK": ("dynamic_ntk", False),
    "base 500,000": ("base", False),
    "own positions, fine-tuned": ("longer", True),
    "base 500,000, fine-tuned": ("base", True),
}
READ_AS = (
    "Windows are twice as long as the model's context. In their last quarter each way is held against the same weights "
    "that read the second half of the window by itself, and so, without any extension, have half the context or more "
    "before them: below 0 the far context helps."
)


@dataclass(frozen=True)
class Sizes(Seeds, Texts):
    """What the study can be asked for."""

    windows: int = option(64, "number of held-out windows of twice the context")
    steps: int = option(200, "steps of both trainings")
    tokens_per_step: int = option(8192, "tokens in one step of both trainings")
    rate: float = option(1e-4, "learning rate of both trainings")

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range("The number of windows of text", self.windows, 2, 4096)


def measure(run: Setting) -> dict:
    """Loss inside and beyond a model's context on held-out windows of twice its length, for every way of WAYS.

    Both fine-tuned copies of a seed see the same sequences; each goes on from its checkpoint in the folder of the work.
    Errors: BadSetting, BadModel, BadText.
    """
    lm, sizes = run.lm, run.sizes
    length = reach(lm, "longer", FACTOR)
    ids, units = held_out_windows(lm, run.texts[1], length, sizes.windows)
    seeds = {name: sizes.every_seed if trained else [sizes.seed] for name, (_, trained) in WAYS.items()}
    expected = 1 + sum(map(len, seeds.values()))
    about = {"documents": run.texts[0], "windows": ids, "units": units, "expected": expected, "done": 1}
    trainer = Trainer(lm=lm, work=run.work, context=run.context, **about)
    second = ids[:, lm.max_positions :]
    untrained = _losses(trainer, lm, second, None, "the second half alone", 0.0)
    found, alone, curves, plans = {}, {}, {}, {}
    for name, (way, trained) in WAYS.items():
        base, of_seed, near, logs = base_for(lm, way, FACTOR, BASE, length), [], [], []
        for seed in seeds[name]:
            used, part, label = lm, trainer.done / trainer.expected, name
            if trained:
                label = name if sizes.seeds == 1 else f"{name}, seed {seed}"
                plan = Extension(length, base, sizes.steps, sizes.tokens_per_step, sizes.rate, seed=seed)
                place, report = run.work / f"length-{way}-{seed}.safetensors", trainer.told(label, 0.9)
                used, log = extend(lm, trainer.ids, plan, place, report, trainer.texts)
                plans.setdefault(name, plan)
                logs.append(log)
                near.append(_losses(trainer, used, second, base, f"{label}, the second half alone", part))
            of_seed.append(_losses(trainer, used, ids, base, label, part))
            trainer.done += 1
        found[name], alone[name] = np.stack(of_seed), np.stack(near or [untrained])
        if trained:
            curves[name] = np.mean(logs, axis=0).tolist()
    width = (length - 1) // BINS  # what is left over at the end is dropped
    parts = {name: x[..., : BINS * width].reshape(-1, BINS, width) for name, x in found.items()}
    report = {"steps": sizes.steps, "rate": sizes.rate, "training_text": trainer.texts, "seeds": sizes.seeds}
    report["plans"] = {name: asdict(plan) for name, plan in plans.items()}
    return {
        "rows": _rows(found, alone, lm.max_positions, units),
        "bins": {name: losses.mean((0, 2)).tolist() for name, losses in parts.items()},
        "curves": curves,
        "windows": len(ids),
        "protocol": run.about(ids, units, **report),
    }


def shown(numbers: dict) -> dict:
    """What each way gives where even the second half alone has much before it."""
    protocol, rows = numbers["protocol"], numbers["rows"]
    where = f"In the last quarter of {protocol['window']:,} tokens, loss of "
    controls, words = {"against_alone": "reading the second half alone"}, ("lower", "higher")
    return {
        "sentence": concluded(where, rows, controls, "{way}".format_map, protocol["seeds"], "model", words=words),
        "columns": columns("length-extension"),
        "panels": _panels(numbers["bins"], numbers["curves"], protocol["window"]),
        "notes": [READ_AS, interval_caveat(protocol)],
    }


def sample(run: Setting, numbers: dict) -> dict[str, float]:
    """Loss of one window of the bundled samples at twice the context, without training."""
    length = reach(run.lm, "longer", FACTOR)
    ids = sample_windows(run.lm, length, 1)
    untrained = {name: way for name, (way, trained) in WAYS.items() if not trained}
    bases = {name: base_for(run.lm, way, FACTOR, BASE, length) for name, way in untrained.items()}
    return {name: float(_read(run.lm, ids[0], base).mean()) for name, base in bases.items()}


def part(run: Setting, numbers: dict) -> dict:
    """The model with its own positions, inside and beyond its context, on all held-out windows."""
    ids, _ = held_out_windows(run.lm, run.texts[1], reach(run.lm, "longer", FACTOR), run.sizes.windows)
    losses = np.stack([_read(run.lm, window, None) for window in ids])
    within, beyond = losses[:, : run.lm.max_positions - 1], losses[:, run.lm.max_positions :]
    row = {"way": "own positions", "trained": False, "within": float(within.mean()), "beyond": float(beyond.mean())}
    return {"rows": [row], "protocol": {"text": ids_hash(ids)}}


def _losses(trainer: Trainer, lm: Model, ids: np.ndarray, base: float | None, name: str, part: float) -> np.ndarray:
    """Nats per target token [windows, length - 1]."""
    losses = []
    for at, window in enumerate(ids):
        trainer.context.progress(part, f"{name}, window {at + 1} of {len(ids)}")
        losses.append(_read(lm, window, base))
    return np.stack(losses)


@torch.no_grad()
def _read(lm: Model, window: np.ndarray, base: float | None) -> np.ndarray:
    with rotary_base(lm, base):
        losses = token_losses(lm, torch.as_tensor(window).long()[None])[0].astype(np.float64)
    if not np.isfinite(losses).all():
        raise BadSetting(f"{lm.name} gives no numbers with these positions: choose another model.")
    return losses


def _rows(found: dict[str, np.ndarray], alone: dict[str, np.ndarray], context: int, units: np.ndarray) -> list[dict]:
    """Losses `found` [seeds, windows, length - 1]; `alone` of the second half by itself [seeds, windows, context - 1],
    which are of the same tokens as the long window's from `context` on. Early there it has almost nothing before it, so
    only its own second half is compared."""
    base, half = found["own positions"][..., : context - 1].mean(-1), context // 2
    rows = []
    for name, losses in found.items():
        within, beyond = losses[..., : context - 1], losses[..., context:]
        last, near = beyond[..., half:].mean(-1), alone[name][..., half:].mean(-1)
        row = {"way": name, "trained": WAYS[name][1], "within": float(within.mean()), "beyond": float(beyond.mean())}
        row |= {"last": float(last.mean())} | difference("against_alone", last, near, units)
        rows.append(row | difference("against_own", within.mean(-1), base, units))
    return rows


def _panels(bins: dict[str, list[float]], curves: dict[str, list[float]], length: int) -> list[dict]:
    """Loss by position, and by step of the two trainings."""
    firsts = [1 + (length - 1) // BINS * at for at in range(BINS)]
    lines = [series(name, losses) for name, losses in bins.items()]
    steps = len(next(iter(curves.values())))
    steps_shown = [round(at) for at in np.linspace(0, steps - 1, min(steps, 60))]
    trained = [series(name, [losses[at] for at in steps_shown]) for name, losses in curves.items()]
    loss = "nats per token"
    return [
        panel("Loss by position", "first", "first token of the bin", firsts, loss, lines),
        panel("Loss while fine-tuning", "step", "step", [at + 1 for at in steps_shown], loss, trained),
    ]


length_extension = Study("length-extension", __doc__, Sizes, measure, shown, sample, part=part)
