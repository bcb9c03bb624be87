"""Training a Focus router for a model, and what it costs in perplexity: literal and causal membership side by side."""

from pathlib import Path

import numpy as np
import pandas as pd

from analysis.attention import apply
from analysis.corpus import read_folder, text_hash, token_stream
from analysis.errors import BadSetting, BadText
from analysis.groups.controls import random_centroids
from analysis.groups.dominance import largest_share
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.metrics.intervals import bootstrap_mean
from analysis.metrics.quality import perplexity
from analysis.models import Model
from analysis.runs import Result
from analysis.statistics import attention_inputs
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.routers import check_settings, memberships, router_path, save
from analysis.training.focus import RouterTraining, train_router

HELD_OUT_WINDOWS = 64


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
    window; `gain_over_random`, with its interval; `path`. table `log`: loss per step.
    """
    check_seed(seed)
    check_settings(groups=groups, top=top, window=window, n_sink=n_sink)
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
    test_ids = spread_windows(test_ids, length)
    router, inputs, log = train_router(
        lm, train_ids, plan, checkpoint, lambda done, stage: context.progress(0.9 * done, stage)
    )
    control = random_centroids(router, inputs, seed)
    numbers = measure(lm, router, control, test_ids, length, context)
    about = {
        "model": lm.name,
        "revision": lm.revision,
        "corpus": f"{Path(corpus).name}, {len(train)} documents",
        "corpus_hash": text_hash("".join(text_hash(t) for t in train)),
        "kind": "trained",
        "steps": steps,
        "tokens": steps * max(1, tokens_per_step // length) * length,
        "rate": rate,
        "hard_losses": [[row["step"] + 1, row["hard"]] for row in log if "hard" in row],
        "evaluated_on": f"{len(held_out)} held-out documents",
        "evaluated_tokens": len(test_ids) // length * length,
        "evaluated_window": length,
        **numbers,
    }
    command = (
        f"python -m analysis train-router --model {lm.name} --corpus DIR --groups {groups} --top {top} --window "
        f"{window} --sinks {n_sink} --steps {steps} --rate {rate} --tokens-per-step {tokens_per_step} --seed {seed}"
    )
    made = protocol(
        "train-router", lm, about["corpus_hash"], len(test_ids), window=length, seed=seed, steps=steps, command=command
    )
    save(context, router, control, path, **about, protocol=made)
    checkpoint.unlink(missing_ok=True)  # it would stand in the way of a run with other settings
    return Result({**numbers, "path": str(path), "protocol": made}, {"log": pd.DataFrame(log)})


def spread_windows(ids: np.ndarray, length: int, count: int = HELD_OUT_WINDOWS) -> np.ndarray:
    """At most `count` whole windows of `length` tokens, evenly spaced over the text, joined again."""
    windows = ids[: len(ids) // length * length].reshape(-1, length)
    chosen = np.linspace(0, len(windows) - 1, min(count, len(windows))).round().astype(int)
    return windows[chosen].reshape(-1)


def measure(
    model: Model, router: FocusRouter, control: FocusRouter, ids: np.ndarray, length: int, context: Context
) -> dict:
    """Perplexity of held-out tokens in windows of `length`: dense, and hard groups of the router and of its control.

    `gain_over_random`: nats per token by which the router's causal groups predict better than random centroids, paired
    window by window: `mean low high units` (95 % bootstrap). `dominance`: largest group's share per layer.
    """
    arms = {
        "dense": METHODS["dense"](),
        "literal": METHODS["focus"].of(router, membership="literal"),
        "causal": METHODS["focus"].of(router),
        "random": METHODS["focus"].of(control),
    }
    found = {}
    for arm, method in arms.items():
        context.progress(0.95, f"perplexity, {arm}")
        with apply(model, method, kernels=True):
            found[arm] = perplexity(model, ids, length)
    gain = bootstrap_mean(found["random"].losses.mean(1) - found["causal"].losses.mean(1))
    windows = np.split(ids, range(length, len(ids), length))
    soft, _ = memberships(router, attention_inputs(model, windows))  # [L, T, K]
    return {f"perplexity_{arm}": quality.perplexity for arm, quality in found.items()} | {
        "gain_over_random": gain._asdict(),
        "dominance": [largest_share(layer.argmax(-1).numpy(), router.K) for layer in soft],
    }
