"""From reading everything to reading next to nothing: where the mean hardly moves and the last positions break."""

import numpy as np
import pandas as pd

from analysis.errors import BadSetting
from analysis.metrics.budgets import FLOOR, allocate_budget, budget_for_reads
from analysis.runs import Result
from analysis.studies.budgets.cap_rows import BINS, measure_all
from analysis.studies.budgets.cap_sweep import unseen
from analysis.studies.budgets.policies import facts
from analysis.studies.budgets.recipes import resolve
from analysis.studies.budgets.sweep import KERNEL, TOKENS, few_tokens
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.text.calibration import text_keys, whole_windows
from analysis.studies.text.held_out import ids_hash

SHARES = (1.0, 0.5, 0.25, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02)  # of the causal pairs
MOST_SHARES = 32


def reads_sweep(
    model: str = "demo",
    texts: list[str] | None = None,
    policy: str | None = None,
    shares: list[float] | None = None,
    window: int | None = None,
    tokens: int = TOKENS,
    seed: int = 0,
    *,
    context: Context,
) -> Result:
    """Share out ever fewer keys by the ranks of a stored policy, without a cap, and measure on texts it never saw.

    `shares` of the causal pairs; a share is the least that is read. numbers: `rows`, from the largest share on: `share
    total` and what a row of `cap_sweep.sweep` has (perplexity, paired difference with interval, `bins`, the worst of
    them, reads with both denominators); `sentence`, `policy`, `window`, `windows`, `notes`; tables: `rows`, `bins`
    (with their `share`). Errors: BadSetting for a text that calibrated the policy, BadText.
    """
    check_seed(seed)
    shares = check_shares(list(SHARES if shares is None else shares))
    lm = context.model(model)
    made = resolve(context, lm, policy)
    given = unseen(context, made, texts or [])
    windows = whole_windows(lm, given, window, tokens, "text of the sweep")
    length = windows.shape[1]
    totals = [budget_for_reads(made.ranks, share, length, FLOOR) for share in shares]
    variants = {
        f"{share:.1%} of the reads": np.minimum(allocate_budget(made.ranks, total), length)
        for share, total in zip(shares, totals, strict=True)
    }
    measured = measure_all(context, lm, windows, variants).values()
    rows = [{"share": s, "total": t, **row} for s, t, row in zip(shares, totals, measured, strict=True)]
    about = protocol(
        "reads-sweep",
        lm,
        "+".join(text_keys(given)),
        windows.size,
        window=length,
        seed=seed,
        kernel=KERNEL,
        windows=ids_hash(windows),
        unit=rows[0]["unit"],
        bins=BINS,
    )
    numbers = {
        "rows": rows,
        "sentence": mean_beside_worst(rows),
        "policy": facts(made),
        "window": length,
        "windows": len(windows),
        "notes": few_tokens(rows),
    }
    bins = [{"share": row["share"], **one} for row in rows for one in row["bins"]]
    tables = {"rows": pd.DataFrame(rows).drop(columns="bins"), "bins": pd.DataFrame(bins)}
    return Result(numbers | {"protocol": about}, tables)


def check_shares(shares: list[float]) -> list[float]:
    """The shares, the largest first, each once. Errors: BadSetting."""
    good = all(isinstance(s, int | float) and not isinstance(s, bool) and 0 < s <= 1 for s in shares)
    if not good or not 1 <= len(shares) <= MOST_SHARES:
        raise BadSetting(f"The shares are {str(shares)[:40]} and must be 1 to {MOST_SHARES} numbers above 0 up to 1.")
    return sorted({float(share) for share in shares}, reverse=True)


def mean_beside_worst(rows: list[dict]) -> str:
    """A sentence: the mean beside the worst positions, where the least is read."""
    row = rows[-1]
    return (
        f"Reading {row['reads_causal']:.1%} of the causal pairs changes perplexity by {row['difference']:+.1%}, and by "
        f"{row['worst_bin_difference']:+.1%} at positions {row['worst_bin_first']} to {row['worst_bin_last'] - 1}."
    )
