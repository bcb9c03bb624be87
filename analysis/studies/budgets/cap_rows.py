"""Budgets held against dense attention, one cap after another: losses under them by position, what was read, and the
two sides of a choice."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from ...commands.budgets import CapSweep
from ...errors import BadSetting
from ...methods import METHODS
from ...methods.csa import CSA
from ...metrics.intervals import DOCUMENTS
from ...metrics.paired import perplexity_change, perplexity_of
from ...metrics.quality import STRETCH, position_changes, records
from ...metrics.sparsity import union
from ...models import Model
from ...runs.caps import verdict
from ...seam.attention import Block
from ...seam.calls import Call
from ..context import Context
from ..text.scoring import Progress, window_losses

TOKENS = 16_384
KERNEL = "top-k of all scores; dense: torch's own"
# CSA, step 3.
CAPS = (32, 64, 128, 256, 512)
# Of perplexity; the paper names none.
TOLERANCE, TOLERANCE_BIN = CapSweep.tolerance, CapSweep.tolerance_bin
MOST_CAPS = 32


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


def measure_losses(
    context: Context, model: Model, windows: np.ndarray, variants: dict[str, np.ndarray]
) -> tuple[np.ndarray, dict[str, tuple[np.ndarray, Counting]]]:
    """Nats of dense attention on windows of token ids [n, T], [n, T - 1], and name -> (the same under budgets [L, H],
    what counted the keys read). Budgets that are equal are computed once."""
    distinct = {budgets.tobytes() for budgets in variants.values()}
    progress = Progress(context, (1 + len(distinct)) * len(windows))
    dense = window_losses(model, windows, METHODS["dense"](), progress, "dense")
    measured: dict[bytes, tuple[np.ndarray, Counting]] = {}
    for name, budgets in variants.items():
        if budgets.tobytes() not in measured:
            method = Counting(budgets=tuple(budgets.ravel().tolist()), shape=budgets.shape)
            losses = window_losses(model, windows, method, progress, name)
            measured[budgets.tobytes()] = losses, method
    return dense, {name: measured[budgets.tobytes()] for name, budgets in variants.items()}


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


def counted_reads(methods: Sequence[Counting], kv_heads: int, windows: int, length: int) -> dict[str, float]:
    """What methods counted, each in as many windows of a model with `kv_heads` in a layer, under the names of
    `metrics.budgets.reads`: there predicted, here with ties."""
    passes = len(methods) * windows
    layers, heads = methods[0].shape or (0, 0)
    read, least, most = (sum(getattr(method, name) for method in methods) for name in ("read", "least", "most"))
    # Of one head a layer.
    queries, causal = passes * layers * length, passes * layers * (length * (length + 1) // 2)
    return {
        "attended": read / (queries * heads),
        "reads_causal": read / (causal * heads),
        "reads_full": read / (queries * heads * length),
        "kv_read": (1 + least / (causal * kv_heads)) / 2,
        "reads_kv_least": least / (causal * kv_heads),
        "reads_kv_most": most / (causal * kv_heads),
    }


def one_side(losses: np.ndarray, dense: np.ndarray, documents: np.ndarray | None, rows: np.ndarray) -> dict:
    """What `runs.caps` judges, of the windows `rows` [n]: limits of the change, on average and at every bin."""
    losses, dense = losses[rows], dense[rows]
    texts = None if documents is None else documents[rows]
    change, table = perplexity_change(losses, dense, texts), position_changes(losses, dense, texts)
    judged = bool(table["upper"].notna().all())
    worst = table.loc[table["upper" if judged else "difference"].idxmax()]
    return {
        "perplexity": math.exp(losses.mean()),
        "perplexity_dense": math.exp(dense.mean()),
        "difference": change.change,
        "lower": change.lower,
        "upper": change.upper,
        "worst_bin_first": int(worst["first"]),
        "worst_bin_last": int(worst["last"]),
        "worst_bin_difference": float(worst["difference"]),
        "worst_bin_upper": float(worst["upper"]) if judged else None,
        "worst_bin_change": float(worst["perplexity"] - worst["perplexity_dense"]),
        "stretches": records(table[["first", "last", "lower", "upper", "perplexity_dense"]]),
        "units": change.units,
        "unit": change.unit,
    }


def compare_losses(losses: np.ndarray, dense: np.ndarray, documents: np.ndarray | None = None) -> dict:
    """Losses [n, T - 1] against those of dense attention: perplexities, paired difference with interval, by position.

    `worst_bin` is the one whose perplexity changed most, up or down; `worst_bin_change` in perplexity.
    """
    change, table = perplexity_change(losses, dense, documents), position_changes(losses, dense, documents)
    spans = zip(table["first"], table["last"], strict=True)
    perplexities = [perplexity_of(losses[:, a:b], documents, STRETCH) for a, b in spans]
    # Of the perplexity itself, beside that of its change.
    for name in ("low", "high"):
        table[f"perplexity_{name}"] = np.array([getattr(estimate, name) for estimate in perplexities], dtype=float)
    bins = records(table.drop(columns=["lower", "upper"]))
    worst = int(table["difference"].abs().idxmax())
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


def few_tokens(rows: list[dict]) -> list[str]:
    """A note where a position bin holds so few tokens that its change is mostly noise."""
    count = rows[0]["worst_bin_n"]
    return [f"A position bin holds {count} tokens: read its change with its interval."] if count < 500 else []


def without_bins(rows: list[dict], key: str, *left_out: str) -> dict[str, pd.DataFrame]:
    """`rows` without their bins, and all `bins` with the `key` of their row."""
    bins = [{key: row[key], **position_bin} for row in rows for position_bin in row["bins"]]
    return {"rows": pd.DataFrame(rows).drop(columns=["bins", *left_out]), "bins": pd.DataFrame(bins)}


def sweep(
    context: Context,
    model: Model,
    windows: np.ndarray,
    budgets: np.ndarray,
    caps: list[int],
    tolerance: float = TOLERANCE,
    tolerance_bin: float = TOLERANCE_BIN,
    judged: str = CapSweep.judged,
    documents: np.ndarray | None = None,
    report: np.ndarray | None = None,
) -> list[dict]:
    """One row per cap, in rising order, for budgets [L, H] on windows of token ids [n, T].

    `documents` [n], which text each window is of: they are the units; without them blocks inside the text are. `report`
    bool [n], the windows on which a choice is reported and not made (default: none). A row is what `compare_losses`
    and `counted_reads` give, with the two sides and the verdict of `runs.caps`. A cap that changes no budget is not
    computed twice. Errors: BadSetting.
    """
    caps = check_caps(caps)
    capped = {f"cap {cap:,}": np.minimum(budgets, cap) for cap in caps}
    report = np.zeros(len(windows), dtype=bool) if report is None else report
    dense, measured = measure_losses(context, model, windows, capped)
    rows = []
    for cap, (losses, method) in zip(caps, measured.values(), strict=True):
        row = {"cap": cap, **compare_losses(losses, dense, documents)}
        row |= counted_reads([method], model.num_kv_heads, *windows.shape)
        row["select"] = one_side(losses, dense, documents, ~report)
        row["report"] = one_side(losses, dense, documents, report) if report.any() else None
        rows.append(row | verdict(row, tolerance, tolerance_bin, judged))
    return rows


def check_caps(caps: list[int]) -> list[int]:
    """The caps in rising order, each once. Errors: BadSetting for what is none."""
    good = all(isinstance(cap, int) and not isinstance(cap, bool) and 1 <= cap <= 1 << 20 for cap in caps)
    if not good or not 1 <= len(caps) <= MOST_CAPS:
        raise BadSetting(f"The caps are {str(caps)[:40]} and must be 1 to {MOST_CAPS} whole numbers from 1.")
    return sorted(set(caps))
