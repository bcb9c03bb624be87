"""Training a Focus router for a model, and what it costs in perplexity: literal and causal membership side by side."""

from pathlib import Path

import numpy as np
import pandas as pd

from analysis.attention import apply
from analysis.corpus import read_folder, text_hash, token_stream
from analysis.errors import BadSetting, BadText
from analysis.groups.controls import random_centroids
from analysis.groups.dominance import largest_share
from analysis.groups.router import RouterSettings
from analysis.methods import METHODS
from analysis.metrics.quality import perplexity
from analysis.runs import Result
from analysis.statistics import attention_inputs
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.routers import memberships, router_path, save
from analysis.training.focus import RouterTraining, train_router

HELD_OUT_WINDOWS = 16


def train_focus_router(
    model: str = "demo",
    corpus: str = "",
    steps: int = 300,
    groups: int = 8,
    top: int = 1,
    window: int = 16,
    n_sink: int = 4,
    rate: float = 1e-3,
    tokens_per_step: int = 2048,
    seed: int = 0,
    output: str | None = None,
    *,
    context: Context,
) -> Result:
    """Train a router on a folder of texts, the model frozen, and measure it on documents it never saw.

    Resumes from its checkpoint when stopped. `output`: folder for the router (default: the model's own state).
    numbers: `dominance` (largest group's share per layer), `perplexity_dense`, `_literal` (balance over the whole
    text: it reads the future), `_causal` (frozen balance), `_random` (random centroids), all with hard groups and this
    window; `path`. table `log`: loss per step.
    """
    check_seed(seed)
    RouterSettings(groups=groups, top=top, window=window, n_sink=n_sink)  # refused before anything is read
    plan = RouterTraining(groups, top, window, n_sink, steps, tokens_per_step, rate=rate, seed=seed)
    if not 1 <= steps <= 1_000_000 or not 0 < rate < 1:
        raise BadSetting(f"Training takes 1 or more steps at a rate between 0 and 1, and got {steps} steps at {rate}.")
    if not corpus:
        raise BadSetting("Training needs a corpus: name a folder of .txt, .md or .py files.")
    lm = context.model(model)
    name = f"k{groups}-top{top}"
    path = Path(output) / f"{name}.safetensors" if output else router_path(context, lm, name)
    checkpoint = path.with_suffix(".checkpoint")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting(f"{path.parent} cannot be a folder ({error.strerror}): name another one.") from error
    train, held_out = read_folder(Path(corpus))
    context.progress(0.0, "reading the corpus")
    train_ids, test_ids = token_stream(lm.tokenizer, train), token_stream(lm.tokenizer, held_out)
    length = min(plan.length, lm.max_positions)
    if len(test_ids) < length:
        raise BadText(
            f"The {len(held_out)} held-out texts have {len(test_ids):,} tokens and one window needs {length:,}: give "
            "more text."
        )
    test_ids = test_ids[: HELD_OUT_WINDOWS * length]
    router, inputs, log = train_router(
        lm, train_ids, plan, checkpoint, lambda done, stage: context.progress(0.9 * done, stage)
    )
    control = random_centroids(router, inputs, seed)
    numbers = {}
    for arm, method in {
        "dense": METHODS["dense"](),
        "literal": METHODS["focus"].of(router, membership="literal"),
        "causal": METHODS["focus"].of(router),
        "random": METHODS["focus"].of(control),
    }.items():
        context.progress(0.95, f"perplexity, {arm}")
        with apply(lm, method):
            quality = perplexity(lm, test_ids, length)
        numbers[f"perplexity_{arm}"] = quality.perplexity
    windows = np.split(test_ids, range(length, len(test_ids), length))
    soft, _ = memberships(router, attention_inputs(lm, windows))  # [L, T, K]
    numbers["dominance"] = [largest_share(layer.argmax(-1).numpy(), groups) for layer in soft]
    about = {
        "model": lm.name,
        "revision": lm.revision,
        "corpus": f"{Path(corpus).name}, {len(train)} documents",
        "corpus_hash": text_hash("".join(text_hash(t) for t in train)),
        "kind": "trained",
        "steps": steps,
        "tokens": steps * max(1, tokens_per_step // length) * length,
        "rate": rate,
        "evaluated_on": f"{len(held_out)} held-out documents",
        "evaluated_tokens": len(test_ids) // length * length,
        "evaluated_window": length,
        **numbers,
    }
    save(context, router, control, path, **about)
    checkpoint.unlink(missing_ok=True)  # it would stand in the way of a run with other settings
    made = protocol(
        "train-router", lm, about["corpus_hash"], len(test_ids), window=length, seed=seed, steps=steps, router=name
    )
    return Result({**numbers, "path": str(path), "protocol": made}, {"log": pd.DataFrame(log)})
