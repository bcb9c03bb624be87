"""Reading twice the context: positions as they are, dynamic NTK, and a base of 500,000, untrained and fine-tuned.

Focal Attention's section 3.4 scales the base of the rotary positions from 10,000 to 500,000 and trains at the greater
length (Xiong et al. 2023); beyond it, dynamic NTK extrapolates without training (Peng et al. 2023). It does so to
models with a softmax temperature: with one, every way is read and trained with it as well.
"""

import contextlib
from dataclasses import asdict

import numpy as np
import torch

from analysis.errors import BadSetting
from analysis.methods.focal import Focal
from analysis.metrics.quality import token_losses
from analysis.models import Model
from analysis.probes.rotary import base_for, reach, rotary_base
from analysis.seam.attention import apply
from analysis.studies.stored.comparisons import difference, interval_caveat
from analysis.studies.stored.panels import panel, presented, series
from analysis.studies.stored.runner import Seeds, Setting, Texts, option
from analysis.studies.stored.trained import Trainer
from analysis.studies.text.held_out import held_out_windows, ids_hash, sample_windows
from analysis.training.extend import Extension, extend
from lab.harness.telling import concluded

FACTOR, BASE = 2.0, 500_000.0
BINS = 8
# Between the name of a way and its temperature.
SHARP = ", t = "
WAYS = {  # name -> (way of the rotary base, whether a copy is fine-tuned with it)
    "own positions": ("longer", False),
    "dynamic NTK": ("dynamic_ntk", False),
    "base 500,000": ("base", False),
    "own positions, fine-tuned": ("longer", True),
    "base 500,000, fine-tuned": ("base", True),
}


class LengthExtension(Seeds, Texts):
    """Loss inside and beyond a model's context on held-out windows of twice its length, for every way of WAYS, and at a
    `temperature` other than 1 for all of them with it too. Fine-tuned copies of a seed see the same sequences; each
    goes on from its checkpoint in the folder of the work."""

    windows: int = option(64, "number of held-out windows of twice the context", low=2, high=4096)
    steps: int = option(200, "steps of both trainings")
    tokens_per_step: int = option(8192, "tokens in one step of both trainings")
    rate: float = option(1e-4, "learning rate of both trainings")
    temperature: float = option(
        1.0, "softmax temperature with which all is read and trained as well; 1: none", low=0.05, high=3
    )

    @property
    def ways(self) -> dict[str, tuple[str, bool, float]]:
        """Name -> (way of the rotary base, whether a copy is fine-tuned with it, temperature)."""
        dense = {name: (way, trained, 1.0) for name, (way, trained) in WAYS.items()}
        t = self.temperature
        sharp = {f"{name}{SHARP}{t:g}": (way, trained, t) for name, (way, trained) in WAYS.items()}
        return dense | (sharp if t != 1 else {})

    def measure(self, run: Setting) -> dict:
        lm = run.lm
        length = reach(lm, "longer", FACTOR)
        ids, units = held_out_windows(lm, run.texts[1], length, self.windows)
        seeds = {name: self.every_seed if trained else [self.seed] for name, (_, trained, _) in self.ways.items()}
        expected = 1 + sum(map(len, seeds.values()))
        trainer = Trainer.of(run, documents=run.texts[0], windows=ids, units=units, expected=expected, done=1)
        second = ids[:, lm.max_positions :]
        untrained = _losses(trainer, lm, second, None, "the second half alone", 0.0)
        losses_of, alone, curves = {}, {}, {}
        plans: dict[str, Extension] = {}
        for name, (way, trained, t) in self.ways.items():
            base, of_seed, near, logs = base_for(lm, way, FACTOR, BASE, length), [], [], []
            for seed in seeds[name]:
                used, part, label = lm, trainer.done / trainer.expected, name
                if trained:
                    label = name if self.seeds == 1 else f"{name}, seed {seed}"
                    plan = Extension(length, base, self.steps, self.tokens_per_step, self.rate, seed=seed)
                    checkpoint = f"length-{way}-{seed}" + f"-t{t:g}" * (t != 1)
                    place, report = run.folder / f"{checkpoint}.safetensors", trainer.within(label, 0.9).progress
                    used, log = extend(lm, trainer.ids, plan, place, report, trainer.texts, focal(t))
                    plans.setdefault(name, plan)
                    logs.append(log)
                if trained or t != 1:
                    near.append(_losses(trainer, used, second, base, f"{label}, the second half alone", part, t))
                of_seed.append(_losses(trainer, used, ids, base, label, part, t))
                trainer.done += 1
            losses_of[name], alone[name] = np.stack(of_seed), np.stack(near or [untrained])
            if trained:
                curves[name] = np.mean(logs, axis=0).tolist()
        # What is left over at the end is dropped.
        width = (length - 1) // BINS
        parts = {name: x[..., : BINS * width].reshape(-1, BINS, width) for name, x in losses_of.items()}
        return {
            "rows": _rows(losses_of, alone, lm.max_positions, units),
            "bins": {name: losses.mean((0, 2)).tolist() for name, losses in parts.items()},
            "curves": curves,
            "windows": len(ids),
            "protocol": run.about(ids, units, plans={name: asdict(plan) for name, plan in plans.items()}),
        }

    def sample(self, run: Setting, numbers: dict) -> dict:
        length = reach(run.lm, "longer", FACTOR)
        ids = sample_windows(run.lm, length, 1)
        untrained = {name: way for name, (way, trained) in WAYS.items() if not trained}
        bases = {name: base_for(run.lm, way, FACTOR, BASE, length) for name, way in untrained.items()}
        return {name: float(_read(run.lm, ids[0], base).mean()) for name, base in bases.items()}

    def part(self, run: Setting, numbers: dict) -> dict:
        ids, _ = held_out_windows(run.lm, run.texts[1], reach(run.lm, "longer", FACTOR), self.windows)
        losses = np.stack([_read(run.lm, window, None) for window in ids])
        within, beyond = losses[:, : run.lm.max_positions - 1], losses[:, run.lm.max_positions :]
        row = {"way": "own positions", "trained": False, "within": float(within.mean()), "beyond": float(beyond.mean())}
        return {"rows": [row], "protocol": {"text": ids_hash(ids)}}

    @staticmethod
    def shown(numbers: dict) -> dict:
        protocol, rows = numbers["protocol"], numbers["rows"]
        where = f"In the last quarter of {protocol['window']:,} tokens, loss of "
        controls = {"against_alone": "reading the second half alone"}
        sentence = concluded(where, rows, controls, "{way}", protocol["seeds"], "model")
        charts = _panels(numbers["bins"], numbers["curves"], protocol["window"])
        return presented("length-extension", sentence, charts, interval_caveat(protocol))


def focal(t: float) -> Focal | None:
    """What reads at a temperature; None for dense attention."""
    return None if t == 1 else Focal(t=t)


def _losses(
    trainer: Trainer, lm: Model, ids: np.ndarray, base: float | None, name: str, part: float, t: float = 1.0
) -> np.ndarray:
    """Nats per target token [windows, length - 1]."""
    losses = []
    for number, window in enumerate(ids):
        trainer.context.progress(part, f"{name}, window {number + 1} of {len(ids)}")
        losses.append(_read(lm, window, base, t))
    return np.stack(losses)


@torch.no_grad()
def _read(lm: Model, window: np.ndarray, base: float | None, t: float = 1.0) -> np.ndarray:
    method = focal(t)
    read = apply(lm, method, kernels=True) if method else contextlib.nullcontext()
    with rotary_base(lm, base), read:
        losses = token_losses(lm, torch.as_tensor(window).long()[None])[0].astype(np.float64)
    if not np.isfinite(losses).all():
        raise BadSetting(f"{lm.name} gives no numbers with these positions: choose another model.")
    return losses


def _rows(
    losses_of: dict[str, np.ndarray], alone: dict[str, np.ndarray], context: int, units: np.ndarray
) -> list[dict]:
    """`losses_of` a way [seeds, windows, length - 1]; `alone`, the second half by itself [seeds, windows, context - 1],
    which are of the same tokens as the long window's from `context` on. Early there it has almost nothing before it, so
    only its own second half is compared."""
    base, half = losses_of["own positions"][..., : context - 1].mean(-1), context // 2
    rows = []
    for name, losses in losses_of.items():
        within, beyond = losses[..., : context - 1], losses[..., context:]
        last, near = beyond[..., half:].mean(-1), alone[name][..., half:].mean(-1)
        _, trained = WAYS[name.partition(SHARP)[0]]
        row = {"way": name, "trained": trained, "within": float(within.mean()), "beyond": float(beyond.mean())}
        row |= {"last": float(last.mean())} | difference("against_alone", last, near, units)
        rows.append(row | difference("against_own", within.mean(-1), base, units))
    return rows


def _panels(bins: dict[str, list[float]], curves: dict[str, list[float]], length: int) -> list[dict]:
    """Loss by position, and by step of the two trainings."""
    firsts = [1 + (length - 1) // BINS * place for place in range(BINS)]
    lines = [series(name, losses) for name, losses in bins.items()]
    steps = len(next(iter(curves.values())))
    steps_shown = [round(place) for place in np.linspace(0, steps - 1, min(steps, 60))]
    trained = [series(name, [losses[place] for place in steps_shown]) for name, losses in curves.items()]
    loss = "nats per token"
    return [
        panel("Loss by position", "first", "first token of the bin", firsts, loss, lines),
        panel("Loss while fine-tuning", "step", "step", [place + 1 for place in steps_shown], loss, trained),
    ]
