"""One cap of a sweep: losses under it, held against dense by position, what was read, and whether it passes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...methods import METHODS
from ...methods.base import Method
from ...methods.csa import CSA
from ...metrics.intervals import DOCUMENTS
from ...metrics.paired import perplexity_change, perplexity_of
from ...metrics.quality import position_bins, token_losses
from ...metrics.sparsity import union
from ...models import Model
from ...seam.attention import Block, apply
from ...seam.calls import Call
from ..context import Context

BINS, STRETCH = 16, 16  # position bins; tokens in a row that form a unit inside one


@dataclass
class Counting(CSA):
    """CSA that counts the keys it reads, ties included: `read` by query heads, and between `least` and `most` by
    key-value heads, where a key counts once for the query heads that share it. A mask says which keys these are, so
    both are exact then. The kernel says only how many: least if the heads choose alike, most if they never do."""

    read: int = 0
    least: int = 0
    most: int = 0

    def restart(self) -> None:
        """Counts from nothing again."""
        self.read = self.least = self.most = 0

    def note(self, call: Call, read_mask: torch.Tensor) -> None:
        shared = read_mask.unflatten(1, (call.key.shape[1], -1))  # [B, G, H / G, Tq]
        visible = torch.arange(call.past + 1, call.past + read_mask.shape[-1] + 1, device=read_mask.device)
        self.read += int(read_mask.sum())
        self.least += int(shared.amax(2).sum())
        self.most += int(shared.sum(2).minimum(visible).sum())

    def mask(self, block: Block) -> torch.Tensor:
        mask = super().mask(block)
        read = mask & block.visible
        shared = int(torch.count_nonzero(union(read, block.sharing)))
        self.read += int(torch.count_nonzero(read))
        self.least += shared
        self.most += shared
        return mask


class Progress:
    """Tells of passes over windows, before each, while no method is on the model."""

    def __init__(self, context: Context, span: tuple[float, float], passes: int) -> None:
        self.context, self.span, self.passes, self.done = context, span, passes, 0

    def __call__(self, stage: str) -> None:
        """Report `stage`, a pass that begins now."""
        low, high = self.span
        self.context.progress(min(high, low + (high - low) * self.done / self.passes), stage)
        self.done += 1


def window_losses(model: Model, windows: np.ndarray, method: Method, progress: Progress, name: str) -> np.ndarray:
    """Nats per predicted token of windows of token ids [n, T], by the method's own kernel: float64 [n, T - 1]."""
    rows = []
    for index, ids in enumerate(windows):
        progress(f"{name}, window {index + 1} of {len(windows)}")
        with apply(model, method, kernels=True):
            rows.append(token_losses(model, torch.as_tensor(ids)[None])[0])
    return np.stack(rows).astype(np.float64)


def measure_losses(
    context: Context,
    model: Model,
    windows: np.ndarray,
    variants: dict[str, np.ndarray],
    span: tuple[float, float] = (0.0, 1.0),
) -> tuple[np.ndarray, dict[str, tuple[np.ndarray, Counting]]]:
    """Nats of dense attention on windows of token ids [n, T], [n, T - 1], and name -> (the same under budgets [L, H],
    what counted the keys read). Budgets that are equal are computed once; `span` of the progress."""
    progress = Progress(context, span, (1 + len({budgets_.tobytes() for budgets_ in variants.values()})) * len(windows))
    dense = window_losses(model, windows, METHODS["dense"](), progress, "dense")
    measured = {}
    for name, budgets in variants.items():
        key = budgets.tobytes()
        if key not in measured:
            method = Counting(budgets=tuple(budgets.ravel().tolist()), shape=budgets.shape)
            measured[key] = (window_losses(model, windows, method, progress, name), method)
    return dense, {name: measured[budgets.tobytes()] for name, budgets in variants.items()}


def measure_all(
    context: Context,
    model: Model,
    windows: np.ndarray,
    variants: dict[str, np.ndarray],
    span: tuple[float, float] = (0.0, 1.0),
    documents: np.ndarray | None = None,
    report: np.ndarray | None = None,
) -> dict[str, dict]:
    """Name -> what budgets [L, H] did to windows of token ids [n, T]: `compare_losses` against one dense pass,
    `counted_reads`, and with `report` (bool [n], which windows the choice of a cap does not see) the two sides of
    `runs.caps`. `documents` [n]: which text each window is of, where texts are the units."""
    dense, measured = measure_losses(context, model, windows, variants, span)
    rows = {}
    for name, (losses, method) in measured.items():
        rows[name] = compare_losses(losses, dense, documents)
        rows[name] |= counted_reads([method], model.num_kv_heads, *windows.shape)
        if report is not None:
            rows[name] |= {"select": _side(losses, dense, documents, ~report)}
            rows[name] |= {"report": _side(losses, dense, documents, report) if report.any() else None}
    return rows


def two_sides(documents: np.ndarray, fewest: int = 0) -> np.ndarray:
    """Which windows report, bool [n]: those of the later half of the texts, or of `fewest` where half is less and one
    is left to choose by; of one text its later half."""
    texts = np.unique(documents)
    if len(texts) > 1:
        return np.isin(documents, texts[-max(len(texts) // 2, min(fewest, len(texts) - 1)) :])
    return np.arange(len(documents)) >= (len(documents) + 1) // 2


def units_of(documents: np.ndarray) -> np.ndarray | None:
    """The texts as units where each side has enough of them; else None: blocks inside them."""
    report = two_sides(documents)
    enough = min(len(set(documents[side].tolist())) for side in (report, ~report)) >= DOCUMENTS
    return documents if enough else None


def _side(losses: np.ndarray, dense: np.ndarray, documents: np.ndarray | None, rows: np.ndarray) -> dict:
    """What `runs.caps` judges, of the windows `rows` [n]."""
    losses, dense = losses[rows], dense[rows]
    change_of_all = perplexity_change(losses, dense, texts := None if documents is None else documents[rows])
    table = position_bins(losses, min(BINS, losses.shape[1]))
    bins = []
    for first, last in zip(table["first"], table["last"], strict=True):
        part = perplexity_change(losses[:, first:last], dense[:, first:last], texts, STRETCH)
        bins.append((part.upper, part.change, int(first), int(last)))
    all_judged = all(upper is not None for upper, *_ in bins)
    upper, change, first, last = max(bins, key=lambda entry: entry[0] if all_judged else entry[1])
    return {
        "perplexity": math.exp(losses.mean()),
        "perplexity_dense": math.exp(dense.mean()),
        "difference": change_of_all.change,
        "upper": change_of_all.upper,
        "worst_bin_first": first,
        "worst_bin_last": last,
        "worst_bin_difference": change,
        "worst_bin_upper": upper if all_judged else None,
        "worst_bin_change": math.exp(losses[:, first:last].mean()) - math.exp(dense[:, first:last].mean()),
        "units": change_of_all.units,
        "unit": change_of_all.unit,
    }


def counted_reads(methods: Sequence[Counting], kv_heads: int, windows: int, length: int) -> dict[str, float]:
    """What methods counted, each in as many windows of a model with `kv_heads` in a layer, under the names of
    `metrics.budgets.reads`: there predicted, here with ties."""
    passes = len(methods) * windows
    layers, heads = methods[0].shape
    read, least, most = (sum(getattr(method, name) for method in methods) for name in ("read", "least", "most"))
    queries, causal = passes * layers * length, passes * layers * (length * (length + 1) // 2)  # of one head a layer
    return {
        "attended": read / (queries * heads),
        "reads_causal": read / (causal * heads),
        "reads_full": read / (queries * heads * length),
        "kv_read": (1 + least / (causal * kv_heads)) / 2,
        "reads_kv_least": least / (causal * kv_heads),
        "reads_kv_most": most / (causal * kv_heads),
    }


def compare_losses(losses: np.ndarray, dense: np.ndarray, documents: np.ndarray | None = None) -> dict:
    """Losses [n, T - 1] against those of dense attention: perplexities, paired difference with interval, by position.

    `worst_bin` is the one whose perplexity changed most, up or down; `worst_bin_change` in perplexity.
    """
    change = perplexity_change(losses, dense, documents)
    table = position_bins(losses, min(BINS, losses.shape[1]))
    table["perplexity_dense"] = position_bins(dense, len(table))["perplexity"]
    spans = list(zip(table["first"], table["last"], strict=True))
    changes = [perplexity_change(losses[:, a:b], dense[:, a:b], documents, STRETCH) for a, b in spans]
    for name, value in {"difference": "change", "low": "low", "high": "high"}.items():
        table[name] = np.array([getattr(estimate, value) for estimate in changes], dtype=float)
    perplexities = [perplexity_of(losses[:, a:b], documents, STRETCH) for a, b in spans]
    for name in ("low", "high"):  # of the perplexity itself, beside that of its change
        table[f"perplexity_{name}"] = np.array([getattr(estimate, name) for estimate in perplexities], dtype=float)
    bins = table.astype(object).where(table.notna(), None).to_dict("records")
    worst = max(range(len(bins)), key=lambda number: abs(bins[number]["difference"]))
    return {
        "perplexity": math.exp(losses.mean()),
        "perplexity_dense": math.exp(dense.mean()),
        "difference": change.change,
        "low": change.low,
        "high": change.high,
        "units": change.units,
        "unit": change.unit,
        "state": change.state,
        "worst_bin": worst,
        **{f"worst_bin_{name}": bins[worst][name] for name in ("first", "last", "difference", "low", "high", "n")},
        "worst_bin_change": bins[worst]["perplexity"] - bins[worst]["perplexity_dense"],
        "bins": bins,
    }
