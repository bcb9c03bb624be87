"""What methods need of a calibration: stored means and centroids, or some fitted on the bundled samples, and learned
temperatures."""

from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...answer import Answer, doc, record
from ...commands.quality import FitMethod
from ...corpus import FITTED_ON, fitting_samples, text_hash, token_stream
from ...errors import BadSetting, BadText, NotFitted
from ...fitted import FOLDER, Fitted
from ...methods import METHODS
from ...methods.focal import FocalWeights
from ...models import Model
from ...training.focal import SHARE, FocalTraining, train_temperatures
from ..context import Context, protocol
from ..text.held_out import storing

# Of a calibration window, and of all together at most.
LENGTH, TOKENS = 1024, 8192


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


def fitted_for(context: Context, model: Model, method: str) -> Fitted:
    """The stored numbers of a method for these weights; the first time for a model they are fitted on the bundled
    samples except the story, and stored. Errors: BadSetting."""
    with suppress(NotFitted):
        return stored_for(context, model, method)
    samples = list(fitting_samples().values())
    # without clusters: a method that is not asked for says itself how many it makes
    return _calibrate(context, model, method, samples, _about_texts(samples, FITTED_ON), seed=0)[0]


def stored_for(context: Context, model: Model, method: str) -> Fitted:
    """The stored numbers of a method for these weights, which take too long to fit unasked. Each file is read once
    while it stays the same. Errors: NotFitted, BadSetting."""
    for path in context.stored(model, f"{FOLDER}/{method}.safetensors"):
        stamp = (str(path), path.stat().st_mtime_ns)
        loaded = context.once(f"fitted {method}", stamp, partial(Fitted.load, path))
        if loaded.about.get("revision") == model.revision:
            return loaded
    raise NotFitted(f"Nothing was fitted for {method} on {model.name}: run `fit-method {method}` on some texts first.")


def learned_temperatures(context: Context, model: Model) -> FocalWeights:
    """The learned temperatures of a model. Errors: NotFitted where it has none, BadSetting for a damaged file."""
    for path in context.stored(model, FocalWeights.place):
        return FocalWeights.load(path)
    raise NotFitted(
        f"{model.name} has no learned temperatures: train some with `fit-method focal_learned`, or choose focal, whose "
        "temperature is a number."
    )


def fit_method(request: FitMethod, *, context: Context) -> FittedMethod:
    """Calibrate a method on texts (the bundled samples except the story unless given) and store its numbers; what
    learned temperatures are told is of `FocalTraining`. Errors: BadSetting for a method that needs none, BadText for
    texts of less than one window."""
    name = request.method
    fittable = [name for name, kind in METHODS.items() if kind.needs in ("calibration", "indexers", "temperatures")]
    if name not in fittable:
        raise BadSetting(f"{name[:40]!r} is not calibrated by this verb; it calibrates: {', '.join(fittable)}.")
    lm = context.model(request.model)
    titled = [context.text(key) for key in request.texts or []]
    texts = [text for _, text in titled] or list(fitting_samples().values())
    about_texts = _about_texts(texts, ", ".join(title for title, _ in titled) or FITTED_ON)
    if METHODS[name].needs == "temperatures":
        numbers = _train(context, lm, texts, about_texts, request)
    else:
        settings = {"clusters": request.clusters, "seed": request.seed}
        fitted, path = _calibrate(context, lm, name, texts, about_texts, **settings)
        shapes = {name: list(tensor.shape) for name, tensor in fitted.tensors.items()}
        numbers = {"path": str(path), "tensors": shapes, "protocol": fitted.about["protocol"]}
    return FittedMethod(**numbers, method=name, notes=context.forget("method", name, lm))


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
    context: Context, model: Model, method: str, texts: list[str], about_texts: dict, **settings: int
) -> tuple[Fitted, Path]:
    """What a method's `fit` makes of the texts, and where it was stored; it is given those settings that it has."""
    windows = calibration_windows(model, texts)
    context.progress(0.0, f"calibrating {method}")
    cls = METHODS[method]
    unfitted = cls.build(**{field.name: settings[field.name] for field in fields(cls) if field.name in settings})
    calibrated: Fitted = vars(unfitted.fit(model, torch.from_numpy(windows)))["fitted"]
    sizes: dict[str, Any] = {"tokens": windows.size, "window": windows.shape[1], "seed": settings["seed"]}
    recorded = protocol("fit-method", model, **sizes, **about_texts)
    calibrated.about |= {"model": model.name, "revision": model.revision, "protocol": recorded}
    folder = context.state_dirs(model)[0] / FOLDER
    with storing("numbers", folder):
        return calibrated, calibrated.save(folder)


def _train(context: Context, model: Model, texts: list[str], about_texts: dict, request: FitMethod) -> dict:
    """Train temperatures for a model that stays as it is, on windows of at most 1,024 tokens, and store them. Returns
    fields of `FittedMethod`, measured on windows that were not trained on. Errors: BadSetting."""
    ids = token_stream(model.tokenizer, texts)
    length = max(2, min(1024, len(ids) // (2 * SHARE)))
    chosen = {name: getattr(request, name) for name in ("rate", "mean", "tau_min", "tau_max", "offset")}
    told = {name: value for name, value in chosen.items() if value is not None}
    plan = FocalTraining(steps=request.steps, length=length, seed=request.seed, **told)
    weights, log = train_temperatures(model, ids, plan, context.progress)
    sizes: dict[str, Any] = {"tokens": len(ids), "window": length, "seed": request.seed, "steps": request.steps}
    sizes |= {name: value for name, value in told.items() if value != FitMethod.defaults[name]}
    recorded = protocol("fit-method", model, **sizes, **about_texts)
    path = context.state_dirs(model)[0] / FocalWeights.place
    with storing("temperatures", path.parent):
        weights.save(path, model=model.name, revision=model.revision, protocol=recorded)
    numbers = {"path": str(path), "tensors": {"w": list(weights.w.shape)}, "protocol": recorded}
    held_out = [log[end].get("held_out") for end in (0, -1)]
    return numbers | {"held_out": held_out, "temperature": log[-1]["temperature"]}
