"""Reading twice the context: positions as they are, dynamic NTK, and a base of 500,000, untrained and fine-tuned.

Focal Attention's section 3.4 scales the base of the rotary positions from 10,000 to 500,000 and trains at the greater
length (Xiong et al. 2023); beyond it, dynamic NTK extrapolates without training (Peng et al. 2023).
"""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from analysis.corpus import token_stream
from analysis.errors import BadSetting
from analysis.metrics.quality import token_losses
from analysis.models import Model
from analysis.probes.rotary import base_for, reach, rotary_base
from analysis.runs import Result
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.stored.panels import column, decided, difference, how_sure, nats, panel, series
from analysis.studies.text.held_out import (
    check_range,
    corpus_hash,
    held_out_windows,
    ids_hash,
    places,
    sample_windows,
    texts_of,
    write,
)
from analysis.studies.text.sizes import command
from analysis.training.extend import Extension, extend

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


def length_extension(
    corpus: str = "",
    model: str = "demo",
    windows: int = 64,
    steps: int = 200,
    tokens_per_step: int = 8192,
    rate: float = 1e-4,
    seed: int = 0,
    output: str | None = None,
    work: str | None = None,
    *,
    context: Context,
) -> Result:
    """Loss inside and beyond a model's context on held-out windows of twice its length, for every way of WAYS.

    Both fine-tuned copies see the same sequences; each goes on from its checkpoint in `work`. numbers: `rows`
    (`way trained within beyond last`, nats per token, `last` in the last quarter; `against_alone` that minus the same
    tokens where the same weights read the second half alone, and `against_own` within minus the model as it is, with
    `_low` and `_high`, paired by window), `columns`, `panels`, `sentence`, `notes`, `curves` (loss by step), `path`.
    table: `rows`. Errors: BadSetting, BadModel, BadText.
    """
    check_seed(seed)
    lm = context.model(model)
    length = reach(lm, "longer", FACTOR)
    check_range("The number of windows of text", windows, 2, 4096)
    train, held_out = texts_of(corpus, context)
    path, folder = places(context, lm, "length-extension", output, work)
    ids = held_out_windows(lm, held_out, length, windows)
    tokens = token_stream(lm.tokenizer, train)
    plans = {
        name: Extension(length, _base(lm, way, length), steps, tokens_per_step, rate, seed=seed)
        for name, (way, trained) in WAYS.items()
        if trained
    }
    second = ids[:, lm.max_positions :]
    untrained = _losses(lm, second, None, context, "the second half alone", 0.0)
    found, alone, curves = {}, {}, {}
    for at, (name, (way, trained)) in enumerate(WAYS.items()):
        used, part, alone[name] = lm, (at + 1) / (len(WAYS) + 1), untrained
        if trained:
            place, told = folder / f"length-{way}.safetensors", corpus_hash(train)
            used, curves[name] = extend(lm, tokens, plans[name], place, _part(context, name, part), told)
            said = f"{name}, the second half alone"
            alone[name] = _losses(used, second, plans[name].base, context, said, part)
        found[name] = _losses(used, ids, _base(lm, way, length), context, name, part)
    rows = _rows(found, alone, lm.max_positions)
    numbers = {
        "sentence": sentence(rows, lm.max_positions),
        "rows": rows,
        "columns": columns(),
        "panels": _panels(found, curves),
        "curves": curves,
        "notes": [READ_AS, how_sure(len(ids))],
        "protocol": protocol(
            "study length-extension", lm, ids_hash(ids), ids.size, window=length, seed=seed, steps=steps,
            corpus=f"{Path(corpus).name}, {len(held_out)} held-out documents", rate=rate,
            plans={name: asdict(plan) for name, plan in plans.items()}, training_text=corpus_hash(train),
            command=command(
                "length-extension", lm, windows_count=windows, steps=steps, tokens_per_step=tokens_per_step, seed=seed
            ),
        ),
    }  # fmt: skip
    write(path, numbers | {"check": _check(lm)})
    return Result(numbers | {"path": str(path)}, {"rows": pd.DataFrame(rows)})


def recheck(stored: dict, *, context: Context) -> dict[str, tuple]:
    """The `check` of a stored study, way -> (what is stored, what comes out now): the ways that need no training."""
    again = _check(context.model(stored["protocol"]["model"]))
    return {name: (kept, again[name]) for name, kept in stored["check"].items()}


def _check(lm: Model) -> dict[str, float]:
    """Loss of one window of the bundled samples at twice the context, without training."""
    length = reach(lm, "longer", FACTOR)
    ids = sample_windows(lm, length, 1)
    untrained = {name: way for name, (way, trained) in WAYS.items() if not trained}
    return {name: float(_read(lm, ids[0], _base(lm, way, length)).mean()) for name, way in untrained.items()}


def _base(lm: Model, way: str, length: int) -> float | None:
    return base_for(lm, way, FACTOR, BASE, length)


def _part(context: Context, name: str, part: float):
    """Progress of one training as that of a part of the study."""
    return lambda done, stage: context.progress(min(1.0, part + done / (len(WAYS) + 1) * 0.9), f"{name}: {stage}")


def _losses(lm: Model, ids: np.ndarray, base: float | None, context: Context, name: str, part: float) -> np.ndarray:
    """Nats per target token [windows, length - 1]."""
    found = []
    for at, window in enumerate(ids):
        context.progress(part, f"{name}, window {at + 1} of {len(ids)}")
        found.append(_read(lm, window, base))
    return np.stack(found)


@torch.no_grad()
def _read(lm: Model, window: np.ndarray, base: float | None) -> np.ndarray:
    with rotary_base(lm, base):
        losses = token_losses(lm, torch.as_tensor(window).long()[None])[0].astype(np.float64)
    if not np.isfinite(losses).all():
        raise BadSetting(f"{lm.name} gives no numbers with these positions: choose another model.")
    return losses


def _rows(found: dict[str, np.ndarray], alone: dict[str, np.ndarray], context: int) -> list[dict]:
    """`alone`: losses of the second half by itself, [windows, context - 1], which are of the same tokens as the long
    window's from `context` on. Early there it has almost nothing before it, so only its own second half is compared."""
    own, half = found["own positions"][:, : context - 1].mean(1), context // 2
    rows = []
    for name, losses in found.items():
        within, beyond = losses[:, : context - 1], losses[:, context:]
        last, near = beyond[:, half:].mean(1), alone[name][:, half:].mean(1)
        means = {"within": float(within.mean()), "beyond": float(beyond.mean()), "last": float(last.mean())}
        row = {"way": name, "trained": WAYS[name][1], **means}
        apart = difference("against_alone", last, near) | difference("against_own", within.mean(1), own)
        rows.append(row | apart)
    return rows


def columns() -> list[dict]:
    """The columns of the rows, for a page."""
    return [
        *(column("way", "positions"), column("trained", "fine-tuned")),
        *(column("within", "loss within the context", "nats per token"), column("beyond", "beyond", "nats per token")),
        column("last", "in the last quarter", "nats per token"),
        column("against_alone", "last quarter, above its second half alone", "nats per token"),
        column("against_own", "within, above the model as it is", "nats per token"),
    ]


def _panels(found: dict[str, np.ndarray], curves: dict[str, list[float]]) -> list[dict]:
    """Loss by position, and by step of the two trainings."""
    width = next(iter(found.values())).shape[1] // BINS
    firsts = [1 + width * at for at in range(BINS)]
    lines = [
        series(name, losses[:, : BINS * width].reshape(len(losses), BINS, width).mean((0, 2)).tolist())
        for name, losses in found.items()
    ]
    steps = len(next(iter(curves.values())))
    shown = [round(at) for at in np.linspace(0, steps - 1, min(steps, 60))]
    trained = [series(name, [losses[at] for at in shown]) for name, losses in curves.items()]
    loss = "nats per token"
    return [
        panel("Loss by position", "first", "first token of the bin", firsts, loss, lines),
        panel("Loss while fine-tuning", "step", "step", [at + 1 for at in shown], loss, trained),
    ]


def sentence(rows: list[dict], context: int) -> str:
    """What each way gives where even the second half alone has much before it."""
    verdicts = {-1: "helps", 0: "is not shown to help", 1: "harms"}
    said = [f"{row['way']} {verdicts[decided(row, 'against_alone')]} ({nats(row, 'against_alone')})" for row in rows]
    return f"In the last quarter of {2 * context:,} tokens, against reading the second half alone: {'; '.join(said)}."
