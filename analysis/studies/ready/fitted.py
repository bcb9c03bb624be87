"""What methods need of a calibration: stored means and centroids, or some fitted on the bundled samples, and learned
temperatures."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...answer import Answer, doc, record
from ...corpus import FITTED_ON, fitting_samples, text_hash, token_stream
from ...errors import BadSetting, BadText, NotFitted
from ...fitted import FOLDER, Fitted
from ...methods import METHODS
from ...methods.focal import FocalWeights
from ...models import Model
from ...training.focal import SHARE, FocalTraining, train_temperatures
from ..context import Context, check_seed, protocol
from ..text.held_out import storing

LENGTH, TOKENS = 1024, 8192  # of a calibration window, and of all together at most


def fitted_for(context: Context, model: Model, method: str) -> Fitted:
    """The stored numbers of a method for these weights; the first time for a model they are fitted on the bundled
    samples except the story, and stored. Each file is read once while it stays the same. Errors: BadSetting."""
    for path in context.stored(model, f"{FOLDER}/{method}.safetensors"):
        stamp = (str(path), path.stat().st_mtime_ns)
        loaded = context.once(f"fitted {method}", stamp, lambda path=path: Fitted.load(path))
        if loaded.about.get("revision") == model.revision:
            return loaded
    samples = list(fitting_samples().values())
    return _calibrate(context, model, method, samples, _about_texts(samples, FITTED_ON), 0)[0]


@record
class FittedMethod(Answer):
    """Fitted numbers of a method, stored for a model."""

    path: str = doc("where they are stored")
    tensors: dict = doc("name -> shape")
    method: str = doc("name of the method")
    notes: list[str] = doc("stored runs that used earlier ones")
    held_out: list[float | None] | None = doc("of temperatures: nats per held-out token before and after", default=None)
    temperature: list[float] | None = doc(
        "of temperatures: each layer's on them, beside dense attention's 1", default=None
    )


def fit_method(
    model: str = "demo",
    method: str = "",
    texts: list[str] | None = None,
    clusters: int = 16,
    steps: int = 300,
    seed: int = 0,
    *,
    context: Context,
) -> FittedMethod:
    """Calibrate a method on texts (hashes; the bundled samples except the story unless given) and store its numbers.

    `clusters` are those of a method that clusters, `steps` the training steps of temperatures. Errors: BadSetting for a
    method that needs none, BadText for texts of less than one window.
    """
    check_seed(seed)
    fittable = [name for name, kind in METHODS.items() if kind.needs in ("calibration", "temperatures")]
    if method not in fittable:
        raise BadSetting(f"{str(method)[:40]!r} is not calibrated by this verb; it calibrates: {', '.join(fittable)}.")
    lm = context.model(model)
    named = [context.text(key) for key in texts or []]
    contents = [text for _, text in named] or list(fitting_samples().values())
    about_texts = _about_texts(contents, ", ".join(name for name, _ in named) or FITTED_ON)
    if METHODS[method].needs == "temperatures":
        numbers = fit_temperatures(context, lm, contents, about_texts, steps, seed)
    else:
        fitted, path = _calibrate(context, lm, method, contents, about_texts, seed, clusters=clusters)
        shapes = {name: list(tensor.shape) for name, tensor in fitted.tensors.items()}
        numbers = {"path": str(path), "tensors": shapes, "protocol": fitted.about["protocol"]}
    return FittedMethod(**numbers, method=method, notes=context.forget("method", method, lm))


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


def _about_texts(texts: list[str], corpus: str) -> dict:
    """What a protocol says of the texts; their `keys` tell a study that it reads what was calibrated on."""
    keys = list(map(text_hash, texts))
    return {"text": text_hash(" ".join(keys)), "texts": corpus, "keys": keys}


def _calibrate(
    context: Context, model: Model, method: str, texts: list[str], about_texts: dict, seed: int, **settings: Any
) -> tuple[Fitted, Path]:
    """What a method's `fit` makes of the texts, and where it was stored; it is given those settings that it has."""
    windows = calibration_windows(model, texts)
    context.progress(0.0, f"calibrating {method}")
    cls, settings = METHODS[method], settings | {"seed": seed}
    unfitted = cls.build(**{field.name: settings[field.name] for field in fields(cls) if field.name in settings})
    calibrated = unfitted.fit(model, torch.from_numpy(windows)).fitted
    about = protocol("fit-method", model, tokens=windows.size, window=windows.shape[1], seed=seed, **about_texts)
    calibrated.about |= {"model": model.name, "revision": model.revision, "protocol": about}
    folder = context.state_dirs(model)[0] / FOLDER
    with storing("numbers", folder):
        return calibrated, calibrated.save(folder)


def learned_temperatures(context: Context, model: Model) -> FocalWeights:
    """The learned temperatures of a model. Errors: NotFitted where it has none, BadSetting for a damaged file."""
    for path in context.stored(model, FocalWeights.place):
        return FocalWeights.load(path)
    raise NotFitted(
        f"{model.name} has no learned temperatures: train some with `fit-method focal_learned`, or choose focal, whose "
        "temperature is a number."
    )


def fit_temperatures(
    context: Context, model: Model, texts: list[str], about_texts: dict, steps: int, seed: int
) -> dict:
    """Train temperatures for a model that stays as it is, on windows of at most 1,024 tokens, and store them;
    `about_texts` says in the protocol which texts they are. Returns fields of `FittedMethod`, measured on windows that
    were not trained on. Errors: BadSetting."""
    ids = token_stream(model.tokenizer, texts)
    plan = FocalTraining(steps=steps, length=max(2, min(1024, len(ids) // (2 * SHARE))), seed=seed)
    weights, log = train_temperatures(model, ids, plan, context.progress)
    about = {"tokens": len(ids), "window": plan.length, "seed": seed, "steps": steps}
    recorded = protocol("fit-method", model, **about, **about_texts)
    path = context.state_dirs(model)[0] / FocalWeights.place
    with storing("temperatures", path.parent):
        weights.save(path, model=model.name, revision=model.revision, protocol=recorded)
    numbers = {"path": str(path), "tensors": {"w": list(weights.w.shape)}, "protocol": recorded}
    held_out = [log[end].get("held_out") for end in (0, -1)]
    return numbers | {"held_out": held_out, "temperature": log[-1]["temperature"]}
