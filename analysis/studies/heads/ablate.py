"""Which head matters for a text: what its loss is without a head, for all heads by estimate and for some exactly."""

from itertools import product

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...claims import Comparison, signed
from ...commands.heads import EXACT, Ablate
from ...errors import BadSetting
from ...metrics.intervals import BLOCKS, interval
from ...probes.ablation import Passes, estimated
from ..context import Context, protocol, read
from ..text.states import heads_named, scope, windows_of
from ..text.text import cells_table, token_table

# Logits of a text up to which the divergence is taken too.
DIVERGENCE_BYTES = 1 << 29
# Blocks of the text that the interval rests on.
PARTS = 16
REPLACED = {"zero": "set to zero", "mean": "replaced by its mean", "resample": "taken from another position"}
Cell = tuple[int, int]  # layer, head


@record
class Removal:
    """One exact pass."""

    without: str = doc("the head that it leaves out, as layer.head")
    layer: int = doc("its layer")
    head: int = doc("its number in the layer")
    estimate: float = doc("first-order estimate of the rise, nats per token")
    offset: int = doc("first token of the window in the text")
    loss_change: float = doc("rise of the mean loss, nats per token")
    low: float | None = doc("lower end of its 95% interval over blocks of this text")
    high: float | None = doc("upper end: how the change varies in this text, not in others")
    units: int = doc("blocks of that interval")
    kl: float | None = doc("divergence of the predictions, nats")
    worst: int = doc("token whose loss rises most")
    worst_word: str = doc("the word that it belongs to")
    worst_change: float = doc("rise of its loss, nats")


@record
class Ablation(Worded):
    """What a text loses without its heads."""

    rows: list[Removal] = doc("the exact passes")
    loss: float = doc("mean loss with all heads, nats per token")
    agreement: float | None = doc("rank correlation of estimate and exact passes; null for fewer than three heads")
    scope: str = doc("what of the text was read, in words")
    heads: pd.DataFrame = doc("layer head estimate loss_change low high kl worst, the exact ones first in their order")
    tokens: pd.DataFrame = doc("tokens of the text")
    estimate: np.ndarray = doc("float32 [layers, heads]: first-order estimate of the rise of the loss")
    change: np.ndarray = doc("float32 [n, T - 1]: each token's rise in each exact pass, NaN for a window's first")


def ablate(request: Ablate, *, context: Context) -> Ablation:
    """What window `part` of a text loses without a head, or all its windows (null): the rise of the mean loss, in nats
    per token. The first-order estimate ranks all heads (one backward pass); exact passes follow for the `exact` highest
    of them, for all, or for those that are listed. Errors: BadSetting."""
    lm, by, seed = context.model(request.model), request.by, request.seed
    listed = [] if request.heads in ("all", "top") else heads_named(lm, request.heads)
    # the usual number is for models that have so many
    if request.exact > max(EXACT, lm.num_layers * lm.num_heads):
        raise BadSetting(f"The model has {lm.num_layers * lm.num_heads} heads: ask for no more exact passes.")
    reading = read(context, lm, request.text, request.long_text)
    windows = windows_of(reading, request.part, 2)
    if not windows:
        raise BadSetting("A text of one token predicts nothing: give a longer one.")
    texts, offset = [torch.from_numpy(np.asarray(ids)).long()[None] for _, ids in windows], windows[0][0]
    estimates = []
    for index, ids in enumerate(texts):
        context.progress(0.2 * index / len(texts), "estimate for all heads")
        estimates.append(estimated(lm, ids, by, seed))
    predicted = [ids.shape[1] - 1 for ids in texts]
    estimate = np.average(estimates, axis=0, weights=predicted).astype(np.float32)
    of_cell = dict(zip(product(lm.layer_numbers, range(lm.num_heads)), estimate.ravel().tolist(), strict=True))
    ranked = sorted(of_cell, key=lambda cell: -of_cell[cell])
    cells = listed or (ranked if request.heads == "all" else ranked[: request.exact])
    vocabulary = lm.lm.config.get_text_config().vocab_size
    diverging = 4 * max(ids.numel() for ids in texts) * vocabulary <= DIVERGENCE_BYTES
    dense_losses = []
    changes: dict[Cell, list[np.ndarray]] = {cell: [] for cell in cells}
    divergences: dict[Cell, list[np.ndarray]] = {cell: [] for cell in cells}
    for index, ids in enumerate(texts):
        context.progress(0.2 + 0.8 * index / len(texts), "all heads")
        passes = Passes(lm, ids, by, seed, diverging)
        dense_losses.append(passes.losses[0])
        for done, (layer, head) in enumerate(cells):
            context.progress(0.2 + 0.8 * (index + done / len(cells)) / len(texts), f"without {layer}.{head}")
            losses, divergence = passes.without([(layer, head)])
            # The first token of a further window is not predicted.
            changes[layer, head] += [np.full(min(index, 1), np.nan, np.float32), (losses - passes.losses)[0]]
            if divergence is not None:
                divergences[layer, head].append(divergence[0])
    tokens = token_table(reading)
    change = {cell: np.concatenate(parts) for cell, parts in changes.items()}
    rows = [_row(cell, of_cell[cell], change[cell], divergences[cell], tokens["word"], offset) for cell in cells]
    exact = pd.DataFrame([vars(row) for row in rows])
    exact["kl"] = exact["kl"].astype(float)
    agreement = float(exact["estimate"].corr(exact["loss_change"], method="spearman")) if len(rows) > 2 else None
    measured = exact[["layer", "head", "loss_change", "low", "high", "kl", "worst"]]
    table = cells_table(lm, estimate=estimate.astype(float)).merge(measured, "left", ["layer", "head"])
    order = {"ascending": False, "na_position": "last", "ignore_index": True}
    where = scope(reading, request.part)
    about = {"seed": seed, "by": by, "part": request.part, "heads": request.heads}
    return Ablation(
        rows=rows,
        loss=float(np.concatenate(dense_losses).mean()),
        agreement=agreement,
        scope=where,
        sentence=_sentence(rows, by, where),
        notes=[*reading.notes, *_notes(agreement, len(rows), diverging)],
        heads=table.sort_values(["loss_change", "estimate"], **order),
        tokens=tokens,
        estimate=estimate,
        change=np.stack(list(change.values())).astype(np.float32),
        protocol=protocol("ablate", lm, request.text, sum(ids.numel() for ids in texts), **about),
    )


def _row(
    cell: Cell, estimate: float, change: np.ndarray, divergences: list[np.ndarray], words: pd.Series, offset: int
) -> Removal:
    """One pass: the mean change with its interval over blocks of the text, and the token that gets worst."""
    predicted = change[~np.isnan(change)].astype(np.float64)
    blocks = [block.mean() for block in np.array_split(predicted, min(PARTS, len(predicted)))]
    spread, worst = interval(blocks, fewest=BLOCKS), offset + int(np.nanargmax(change)) + 1
    return Removal(
        without=f"{cell[0]}.{cell[1]}",
        layer=cell[0],
        head=cell[1],
        estimate=estimate,
        offset=offset,
        loss_change=float(predicted.mean()),
        low=spread.low,
        high=spread.high,
        units=spread.units,
        kl=float(np.concatenate(divergences).mean()) if divergences else None,
        worst=worst,
        worst_word=words[worst],
        worst_change=float(predicted.max()),
    )


def _sentence(rows: list[Removal], by: str, where: str) -> str:
    """The pass that loses most, in words."""
    row = max(rows, key=lambda removal: removal.loss_change)
    change = Comparison.of(vars(row), "loss_change", "")
    ends = "" if change.low is None else f" ({change.interval} over blocks of it)"
    rank = "" if len(rows) == 1 else f", the most of {len(rows)} exact passes"
    return (
        f"With the output of {row.without} {REPLACED[by]}, {where} is predicted {signed(row.loss_change, '.4f')} nats "
        f"per token worse{ends}{rank}; “{row.worst_word.strip()}” suffers most ({signed(row.worst_change, '.2f')})."
    )


def _notes(agreement: float | None, heads: int, diverging: bool) -> list[str]:
    notes = [
        "The estimate is of first order: it is right for small changes and can miss heads that stand in for each other."
    ]
    if agreement is not None:
        notes.append(f"Rank correlation of estimate and exact passes: {agreement:.2f} over {heads} heads.")
    if not diverging:
        notes.append(
            "The divergence of predictions is not taken: this vocabulary times this text is too large to keep."
        )
    return notes
