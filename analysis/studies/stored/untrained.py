"""The controls that are routers which nobody trained: random centroids by seed, and k-means (definitions 2.15)."""

from dataclasses import asdict
from pathlib import Path

import torch

from analysis.corpus import text_hash, token_stream
from analysis.groups.controls import random_centroids
from analysis.groups.fit import fit_without_training
from analysis.groups.router import FocusRouter
from analysis.models import Model
from analysis.statistics import attention_inputs
from analysis.studies.context import Context
from analysis.studies.stored.measured import router_hash
from analysis.studies.text.held_out import spread_windows
from analysis.training.settings import RouterTraining

DOCUMENTS = 16  # training documents, evenly chosen, that are tokenised for it
WINDOWS = RouterTraining.calibration_windows  # from them: as many as a trained router's balance is frozen on


def untrained_routers(
    context: Context, lm: Model, router: FocusRouter, train: list[str], length: int, seeds: list[int], work: Path
) -> dict[str, FocusRouter]:
    """`random centroids SEED` for every seed, and `k-means` with the first, of the sizes, gate and window of `router`.

    Fitted and balanced on windows of `length` tokens of the training texts; kept in `work` and read from there.
    """
    documents = train[:: -(-len(train) // DOCUMENTS)]
    decides = f"{router_hash(router)} {lm.revision} {length} {WINDOWS} {list(map(text_hash, documents))}"
    named = {f"random centroids {seed}": seed for seed in seeds} | {"k-means": seeds[0]}
    places = {
        name: work / f"{name.replace(' ', '-')}-{text_hash(f'{decides} {name} {seed}')}.safetensors"
        for name, seed in named.items()
    }
    if not all(path.is_file() and path.with_suffix(".json").is_file() for path in places.values()):
        inputs = _inputs(context, lm, documents, length)
        for name, seed in named.items():
            context.progress(0.5, f"fitting {name}")
            if name == "k-means":
                fitted = fit_without_training(inputs, seed=seed, **asdict(router.settings))
            else:
                fitted = random_centroids(router, inputs, seed)
            fitted.save(places[name])
    return {name: FocusRouter.load(path, lm.num_layers, lm.width) for name, path in places.items()}


def _inputs(context: Context, lm: Model, documents: list[str], length: int) -> list[torch.Tensor]:
    """Attention inputs L x [N, width] of evenly spaced windows of the documents."""
    context.progress(0.5, "reading the calibration texts")
    ids = token_stream(lm.tokenizer, documents)
    length = min(length, len(ids))
    windows = spread_windows(ids, length, WINDOWS).reshape(-1, length)
    return attention_inputs(lm, list(windows), lambda done: context.progress(0.5, f"calibration texts, {done:.0%}"))
