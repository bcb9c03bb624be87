"""A cap after another: perplexity against dense by position, under budgets that stay below it."""

import numpy as np

from ...commands.budgets import CapSweep
from ...errors import BadSetting
from ...models import Model
from ...runs.caps import verdict
from ..context import Context
from .cap_rows import KERNEL, TOKENS, compare_losses, counted_reads, measure_losses, one_side

__all__ = ["CAPS", "KERNEL", "TOKENS", "TOLERANCE", "TOLERANCE_BIN", "check_caps", "sweep"]

# CSA, step 3.
CAPS = (32, 64, 128, 256, 512)
# Of perplexity; the paper names none.
TOLERANCE, TOLERANCE_BIN = CapSweep.tolerance, CapSweep.tolerance_bin
MOST_CAPS = 32


def sweep(
    context: Context,
    model: Model,
    windows: np.ndarray,
    budgets: np.ndarray,
    caps: list[int],
    tolerance: float = TOLERANCE,
    tolerance_bin: float = TOLERANCE_BIN,
    judged: str = CapSweep.judged,
    span: tuple[float, float] = (0.0, 1.0),
    documents: np.ndarray | None = None,
    report: np.ndarray | None = None,
) -> list[dict]:
    """One row per cap, in rising order, for budgets [L, H] on windows of token ids [n, T]; `span` of the progress.

    `documents` [n], which text each window is of: they are the units; without them blocks inside the text are. `report`
    bool [n], the windows on which a choice is reported and not made (default: none). A row is what `compare_losses`
    and `counted_reads` give, with the two sides and the verdict of `runs.caps`. A cap that changes no budget is not
    computed twice. Errors: BadSetting.
    """
    caps = check_caps(caps)
    capped = {f"cap {cap:,}": np.minimum(budgets, cap) for cap in caps}
    report = np.zeros(len(windows), dtype=bool) if report is None else report
    dense, measured = measure_losses(context, model, windows, capped, span)
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
