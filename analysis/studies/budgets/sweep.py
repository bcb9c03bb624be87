"""A cap after another: perplexity against dense by position, under budgets that stay below it."""

import numpy as np
import pandas as pd

from ...errors import BadSetting
from ...models import Model
from ...runs.caps import verdict
from ..context import Context
from .cap_rows import measure_all

CAPS = (32, 64, 128, 256, 512)  # CSA, step 3
TOLERANCE, TOLERANCE_BIN = 0.01, 0.02  # of perplexity; the paper names none
MOST_CAPS, TOKENS = 32, 16_384
KERNEL = "top-k of all scores; dense: torch's own"


def sweep(
    context: Context,
    model: Model,
    windows: np.ndarray,
    budgets: np.ndarray,
    caps: list[int],
    tolerance: float = TOLERANCE,
    tolerance_bin: float = TOLERANCE_BIN,
    span: tuple[float, float] = (0.0, 1.0),
    documents: np.ndarray | None = None,
    report: np.ndarray | None = None,
) -> list[dict]:
    """One row per cap, in rising order, for budgets [L, H] on windows of token ids [n, T]; `span` of the progress.

    `documents` [n], which text each window is of: they are the units; without them blocks inside the text are. `report`
    bool [n], the windows on which a choice is reported and not made (default: none).

    A row: `cap perplexity perplexity_dense difference low high units unit bins reads_causal reads_full kv_read attended
    worst_bin worst_bin_first worst_bin_last worst_bin_difference worst_bin_low worst_bin_high worst_bin_n
    worst_bin_change select report passes fails holds`, the sides as `runs.caps` has them. Differences are paired and a
    share of dense perplexity; reads are counted. A cap that changes no budget is not computed twice. Errors:
    BadSetting.
    """
    caps = check_caps(caps, tolerance, tolerance_bin)
    capped = {f"cap {cap:,}": np.minimum(budgets, cap) for cap in caps}
    report = np.zeros(len(windows), dtype=bool) if report is None else report
    rows = measure_all(context, model, windows, capped, span, documents, report).values()
    return [{"cap": cap, **row, **verdict(row, tolerance, tolerance_bin)} for cap, row in zip(caps, rows, strict=True)]


def check_caps(caps: list[int], tolerance: float, tolerance_bin: float) -> list[int]:
    """The caps in rising order, each once. Errors: BadSetting for what is none, and for tolerances out of range."""
    good = all(isinstance(cap, int) and not isinstance(cap, bool) and 1 <= cap <= 1 << 20 for cap in caps)
    if not good or not 1 <= len(caps) <= MOST_CAPS:
        raise BadSetting(f"The caps are {str(caps)[:40]} and must be 1 to {MOST_CAPS} whole numbers from 1.")
    for name, value in (("tolerance", tolerance), ("tolerance of a bin", tolerance_bin)):
        if not 0 <= value <= 10:
            raise BadSetting(f"The {name} is {value} and must lie between 0 and 10 (0.01 is 1%).")
    return sorted(set(caps))


def few_tokens(rows: list[dict]) -> list[str]:
    """A note where a position bin holds so few tokens that its change is mostly noise."""
    count = rows[0]["worst_bin_n"]
    return [f"A position bin holds {count} tokens: read its change with its interval."] if count < 500 else []


def sweep_tables(rows: list[dict]) -> dict[str, pd.DataFrame]:
    """`rows` without their bins, and all `bins` with their cap."""
    bins = [{"cap": row["cap"], **position_bin} for row in rows for position_bin in row["bins"]]
    return {"rows": pd.DataFrame(rows).drop(columns=["bins", "select", "report"]), "bins": pd.DataFrame(bins)}
