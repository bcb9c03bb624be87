"""What methods need of a calibration: stored means and centroids, or some fitted on the bundled samples, and learned
temperatures."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from analysis.corpus import FITTED_ON, fitting_samples, text_hash, token_stream
from analysis.errors import BadSetting, BadText, NotFitted
from analysis.fitted import FOLDER, Fitted
from analysis.methods import METHODS
from analysis.methods.focal_learned import FocalWeights
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.text.held_out import storing
from analysis.training.focal import SHARE, FocalTraining, train_temperatures

LENGTH, TOKENS = 1024, 8192  # of a calibration window, and of all together at most


def fitted_for(context: Context, model: Model, method: str) -> Fitted:
    """The stored numbers of a method for these weights; the first time for a model they are fitted on the bundled
    samples except the story, and stored. Each file is read once while it stays the same. Errors: BadSetting."""
    for path in context.stored(model, f"{FOLDER}/{method}.safetensors"):
        stamp = (str(path), path.stat().st_mtime_ns)
        found = context.once(f"fitted {method}", stamp, lambda path=path: Fitted.load(path))
        if found.about.get("revision") == model.revision:
            return found
    samples = list(fitting_samples().values())
    return _calibrate(context, model, method, samples, _told(samples, FITTED_ON), 0)[0]


def fit_method(
    model: str = "demo",
    method: str = "",
    texts: list[str] | None = None,
    clusters: int = 16,
    steps: int = 300,
    seed: int = 0,
    *,
    context: Context,
) -> Result:
    """Calibrate a method on texts (hashes; the bundled samples except the story unless given) and store its numbers.

    `clusters` are those of a method that clusters, `steps` the training steps of temperatures. numbers: `path`,
    `method`, `tensors` (name -> shape); of temperatures also what `fit_temperatures` says.
    Errors: BadSetting for a method that needs none, BadText for texts of less than one window.
    """
    check_seed(seed)
    known = [name for name, made in METHODS.items() if made.needs in ("calibration", "temperatures")]
    if method not in known:
        raise BadSetting(f"{str(method)[:40]!r} is not calibrated by this verb; it calibrates: {', '.join(known)}.")
    lm = context.model(model)
    named = [context.text(key) for key in texts or []]
    whole = [text for _, text in named] or list(fitting_samples().values())
    told = _told(whole, ", ".join(name for name, _ in named) or FITTED_ON)
    if METHODS[method].needs == "temperatures":
        numbers = fit_temperatures(context, lm, whole, told, steps, seed)
    else:
        fitted, path = _calibrate(context, lm, method, whole, told, seed, clusters=clusters)
        shapes = {name: list(tensor.shape) for name, tensor in fitted.tensors.items()}
        numbers = {"path": str(path), "tensors": shapes, "protocol": fitted.about["protocol"]}
    return Result(numbers | {"method": method, "notes": context.forget("method", method, lm)})


def calibration_windows(model: Model, texts: list[str]) -> np.ndarray:
    """Evenly spaced whole windows of the texts' tokens, int64 [n, T]. Errors: BadText for less than one."""
    ids, length = token_stream(model.tokenizer, texts), min(LENGTH, model.max_positions)
    if len(ids) < length:
        raise BadText(
            f"The texts have {len(ids):,} tokens and a calibration window needs {length:,}: give more of them."
        )
    windows = ids[: len(ids) // length * length].reshape(-1, length)
    count = min(len(windows), TOKENS // length)
    return windows[np.linspace(0, len(windows) - 1, count).round().astype(int)].astype(np.int64)


def _told(texts: list[str], corpus: str) -> dict:
    """What a protocol says of the texts; their `keys` tell a study that it reads what was calibrated on."""
    keys = list(map(text_hash, texts))
    return {"text": text_hash(" ".join(keys)), "texts": corpus, "keys": keys}


def _calibrate(
    context: Context, model: Model, method: str, texts: list[str], told: dict, seed: int, **settings: Any
) -> tuple[Fitted, Path]:
    """What a method's `fit` makes of the texts, and where it was stored; it is given those settings that it has."""
    windows = calibration_windows(model, texts)
    context.progress(0.0, f"calibrating {method}")
    cls, settings = METHODS[method], settings | {"seed": seed}
    unfitted = cls.build(**{one.name: settings[one.name] for one in fields(cls) if one.name in settings})
    made = unfitted.fit(model, torch.from_numpy(windows)).fitted
    about = protocol("fit-method", model, tokens=windows.size, window=windows.shape[1], seed=seed, **told)
    made.about |= {"model": model.name, "revision": model.revision, "protocol": about}
    folder = context.state_dirs(model)[0] / FOLDER
    with storing("numbers", folder):
        return made, made.save(folder)


def learned_temperatures(context: Context, model: Model) -> FocalWeights:
    """The learned temperatures of a model. Errors: NotFitted where it has none, BadSetting for a damaged file."""
    for path in context.stored(model, FocalWeights.place):
        return FocalWeights.load(path)
    raise NotFitted(
        f"{model.name} has no learned temperatures: train some with `fit-method focal_learned`, or choose focal, whose "
        "temperature is a number."
    )


def fit_temperatures(context: Context, model: Model, texts: list[str], told: dict, steps: int, seed: int) -> dict:
    """Train temperatures for a model that stays as it is, on windows of at most 1,024 tokens, and store them; `told`
    says of the protocol which texts they are. Returns `path`, `tensors`, `held_out` (nats per token before and after,
    of windows that were not trained on), `temperature` (of each layer on them, beside dense attention, 1).
    Errors: BadSetting."""
    ids = token_stream(model.tokenizer, texts)
    plan = FocalTraining(steps=steps, length=max(2, min(1024, len(ids) // (2 * SHARE))), seed=seed)
    weights, log = train_temperatures(model, ids, plan, context.progress)
    told = protocol("fit-method", model, tokens=len(ids), window=plan.length, seed=seed, steps=steps, **told)
    path = context.state_dirs(model)[0] / FocalWeights.place
    with storing("temperatures", path.parent):
        weights.save(path, model=model.name, revision=model.revision, protocol=told)
    numbers = {"path": str(path), "tensors": {"w": list(weights.w.shape)}, "protocol": told}
    held_out = [log[at].get("held_out") for at in (0, -1)]
    return numbers | {"held_out": held_out, "temperature": log[-1]["temperature"]}
