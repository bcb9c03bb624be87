"""Which head matters for a text: what its loss is without a head, for all heads by estimate and for some exactly."""

from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...claims import Comparison, signed
from ...commands.heads import EXACT
from ...errors import BadSetting
from ...kernels.parts import now
from ...metrics.intervals import BLOCKS, interval
from ...models import Model
from ...probes.ablation import Passes, check_way, estimated
from ...runs.price import spell
from ..context import Context, check_seed, protocol, read
from ..text.states import check_head, scope, windows_of
from ..text.text import token_table

DIVERGENCE_BYTES = 1 << 29  # logits of a text up to which the divergence is taken too
PARTS = 16  # blocks of the text that the interval rests on
ALL, TOP = "all", "top"
Cell = tuple[int, int]  # layer, head


@record
class Removal:
    """One exact pass."""

    without: str = doc("the heads that it leaves out, as layer.head")
    offset: int = doc("first token of the window in the text")
    loss_change: float = doc("rise of the mean loss, nats per token")
    low: float | None = doc("lower end of its 95% interval over blocks of this text")
    high: float | None = doc("upper end: how the change varies in this text, not in others")
    units: int = doc("blocks of that interval")
    kl: float | None = doc("divergence of the predictions, nats")
    worst: int = doc("token whose loss rises most")
    worst_word: str = doc("the word that it belongs to")
    worst_change: float = doc("rise of its loss, nats")
    layer: int | None = doc("layer of a single head", default=None)
    head: int | None = doc("a single head", default=None)
    estimate: float | None = doc("first-order estimate of a single head's rise, nats per token", default=None)


@record
class Ablation(Worded):
    """What a text loses without its heads."""

    rows: list[Removal] = doc("the exact passes")
    loss: float = doc("mean loss with all heads, nats per token")
    agreement: float | None = doc("rank correlation of estimate and exact passes; null for fewer than three heads")
    scope: str = doc("what of the text was read, in words")
    seconds: dict = doc("of the pass with all heads, the estimate, and exact of all passes without heads")
    heads: pd.DataFrame = doc("layer head estimate loss_change low high kl worst, the exact ones first in their order")
    tokens: pd.DataFrame = doc("tokens of the text")
    estimate: np.ndarray = doc("float32 [layers, heads]: first-order estimate of the rise of the loss")
    change: np.ndarray = doc("float32 [n, T - 1]: each token's rise in each exact pass, NaN for a window's first")


def ablate(
    model: str = "demo",
    text: str = "",
    heads: str = TOP,
    by: str = "zero",
    exact: int = EXACT,
    together: bool = False,
    others: bool = False,
    part: int | None = 0,
    long_text: str = "windows",
    seed: int = 0,
    *,
    context: Context,
) -> Ablation:
    """What window `part` of a text loses without a head, or all its windows (null): the rise of the mean loss, in nats
    per token.

    The first-order estimate ranks all heads (one backward pass); exact passes follow for the `exact` highest of them
    (`heads` = "top"), for "all", or for those that are listed, such as 3.6,2.1. `by`: the head's output becomes zero,
    its own mean, or that of another position (resample) of the window. `together`: one pass without all listed heads,
    and `others`: one without all heads but these. Errors: BadSetting.
    """
    check_seed(seed)
    lm = context.model(model)
    listed = _listed(lm, heads)
    check_way(by)
    if (together or others) and not listed:
        raise BadSetting("One pass without several heads needs them listed, such as --heads 3.6,2.1.")
    if not 1 <= exact <= lm.num_layers * lm.num_heads:
        raise BadSetting(f"Exact passes are for 1 to {lm.num_layers * lm.num_heads} heads, and {exact} were asked for.")
    reading = read(context, lm, text, long_text)
    windows = windows_of(reading, part, 2)
    if not windows:
        raise BadSetting("A text of one token predicts nothing: give a longer one.")
    texts, offset = [torch.from_numpy(np.asarray(window)).long()[None] for _, window in windows], windows[0][0]
    began, estimates = now(), []
    for index, ids in enumerate(texts):
        context.progress(0.2 * index / len(texts), "estimate for all heads")
        estimates.append(estimated(lm, ids, by, seed))
    seconds = {"pass": 0.0, "estimate": now() - began, "exact": 0.0}
    estimate = np.average(estimates, axis=0, weights=[ids.shape[1] - 1 for ids in texts]).astype(np.float32)
    if together or others:
        removals = _several(listed, estimate.shape, together, others)
    else:
        ranked = sorted(np.ndindex(estimate.shape), key=lambda cell: -estimate[cell])
        removals = {f"{cell[0]}.{cell[1]}": [cell] for cell in listed or (ranked if heads == ALL else ranked[:exact])}
    vocabulary = lm.lm.config.get_text_config().vocab_size
    diverging = 4 * max(ids.numel() for ids in texts) * vocabulary <= DIVERGENCE_BYTES
    dense_losses = []
    changes: dict[str, list[np.ndarray]] = {name: [] for name in removals}
    divergences: dict[str, list[np.ndarray]] = {name: [] for name in removals}
    for index, ids in enumerate(texts):
        context.progress(0.2 + 0.8 * index / len(texts), "all heads")
        began = now()
        passes = Passes(lm, ids, by, seed, diverging)
        seconds["pass"] += now() - began
        dense_losses.append(passes.losses[0])
        for done, (name, cells) in enumerate(removals.items()):
            context.progress(0.2 + 0.8 * (index + done / len(removals)) / len(texts), f"without {name}")
            began = now()
            losses, divergence = passes.without(cells)
            seconds["exact"] += now() - began
            if index:  # the first token of a further window is not predicted
                changes[name].append(np.full(1, np.nan, np.float32))
            changes[name].append((losses - passes.losses)[0])
            if divergence is not None:
                divergences[name].append(divergence[0])
    tokens = token_table(reading)
    words, rows = tokens["word"].tolist(), []
    for name, cells in removals.items():
        divergence = np.concatenate(divergences[name]) if divergences[name] else None
        row = _row(name, np.concatenate(changes[name]), divergence, words, offset)
        if len(cells) == 1:
            row = replace(row, layer=cells[0][0], head=cells[0][1], estimate=float(estimate[cells[0]]))
        rows.append(row)
    singles = [row for row in rows if row.layer is not None]
    seconds["passes"] = len(rows)
    count = sum(ids.numel() for ids in texts)
    return Ablation(
        rows=rows,
        loss=float(np.concatenate(dense_losses).mean()),
        agreement=_agreement(singles),
        scope=scope(reading, part),
        sentence=_sentence(rows, by, scope(reading, part)),
        seconds=seconds,
        notes=[*reading.notes, *_notes(singles, diverging), _took(seconds)],
        heads=_table(estimate, singles),
        tokens=tokens,
        estimate=estimate,
        change=np.stack([np.concatenate(parts) for parts in changes.values()]).astype(np.float32),
        protocol=protocol("ablate", lm, text, count, seed=seed, by=by, part=part, heads=heads),
    )


def _listed(lm: Model, heads: str) -> list[Cell]:
    """The heads that are listed, none for "top" and "all". Errors: BadSetting."""
    if heads in (ALL, TOP):
        return []
    cells = []
    for word in heads.split(","):
        layer, dot, head = word.strip().partition(".")
        if not (layer.isdecimal() and dot and head.isdecimal()):
            raise BadSetting(f"Heads are top, all, or a list of layer.head such as 3.6,2.1, and {heads!r} was given.")
        check_head(lm, int(layer), int(head))
        cells.append((int(layer), int(head)))
    return list(dict.fromkeys(cells))


def _several(listed: list[Cell], shape: tuple[int, ...], together: bool, others: bool) -> dict[str, list[Cell]]:
    """Name -> the heads that a pass without several of them leaves out."""
    named = ", ".join(f"{layer}.{head}" for layer, head in listed)
    removals = {named: listed} if together else {}
    if others:
        removals[f"all but {named}"] = [cell for cell in np.ndindex(shape) if cell not in listed]
    return removals


def _row(name: str, change: np.ndarray, divergence: np.ndarray | None, words: list[str], offset: int) -> Removal:
    """One pass: the mean change with its interval over blocks of the text, and the token that gets worst."""
    predicted = change[~np.isnan(change)].astype(np.float64)
    blocks = [block.mean() for block in np.array_split(predicted, min(PARTS, len(predicted)))]
    spread, worst = interval(blocks, fewest=BLOCKS), offset + int(np.nanargmax(change)) + 1
    return Removal(
        without=name,
        offset=offset,
        loss_change=float(predicted.mean()),
        low=spread.low,
        high=spread.high,
        units=spread.units,
        kl=None if divergence is None else float(divergence.mean()),
        worst=worst,
        worst_word=words[worst],
        worst_change=float(predicted.max()),
    )


def _agreement(rows: list[Removal]) -> float | None:
    """Rank correlation of estimate and exact change; None for fewer than three heads."""
    if len(rows) < 3:
        return None
    table = pd.DataFrame({"estimate": [row.estimate for row in rows], "exact": [row.loss_change for row in rows]})
    return float(table.rank().corr().iloc[0, 1])


def _table(estimate: np.ndarray, rows: list[Removal]) -> pd.DataFrame:
    """All heads, those with an exact pass first, each part by what it loses."""
    names = ["loss_change", "low", "high", "kl", "worst"]
    exact = {(row.layer, row.head): row for row in rows}
    table = pd.DataFrame([{"layer": layer, "head": head} for layer, head in np.ndindex(estimate.shape)])
    table["estimate"] = estimate.ravel().astype(float)
    for name in names:
        values = [getattr(exact.get(cell), name, None) for cell in np.ndindex(estimate.shape)]
        table[name] = pd.Series(values, dtype="float64")
    return table.sort_values(["loss_change", "estimate"], ascending=False, na_position="last", ignore_index=True)


def _sentence(rows: list[Removal], by: str, where: str) -> str:
    """The pass that loses most, in words."""
    row = max(rows, key=lambda removal: removal.loss_change)
    replaced = {"zero": "set to zero", "mean": "replaced by its mean", "resample": "taken from another position"}[by]
    change = Comparison.of(vars(row), "loss_change", "")
    ends = "" if change.low is None else f" ({change.interval} over blocks of it)"
    rank = "" if len(rows) == 1 else f", the most of {len(rows)} exact passes"
    return (
        f"With the output of {row.without} {replaced}, {where} is predicted {signed(row.loss_change, '.4f')} nats "
        f"per token worse{ends}{rank}; “{row.worst_word.strip()}” suffers most ({signed(row.worst_change, '.2f')})."
    )


def _took(seconds: dict) -> str:
    """What the estimate and the exact passes took, by a pass with all heads."""
    estimate, exact = (seconds[name] / seconds["pass"] for name in ("estimate", "exact"))
    several = "es" if seconds["passes"] > 1 else ""
    return (
        f"A pass with all heads took {spell(seconds['pass'])}, the estimate {estimate:.1f} times as long, and "
        f"{seconds['passes']} exact pass{several} {exact:.1f} times."
    )


def _notes(rows: list[Removal], diverging: bool) -> list[str]:
    notes = [
        "The estimate is of first order: it is right for small changes and can miss heads that stand in for each other."
    ]
    if (agreement := _agreement(rows)) is not None:
        notes.append(f"Rank correlation of estimate and exact passes: {agreement:.2f} over {len(rows)} heads.")
    if not diverging:
        notes.append(
            "The divergence of predictions is not taken: this vocabulary times this text is too large to keep."
        )
    return notes
