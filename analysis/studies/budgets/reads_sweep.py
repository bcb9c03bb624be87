"""From reading everything to reading next to nothing: where the mean hardly moves and the last positions break."""

import numpy as np
import pandas as pd

from ...answer import Worded, doc, record
from ...errors import BadSetting
from ...metrics.budgets import FLOOR, allocate_budget, budget_for_reads
from ..context import Context, check_seed, protocol
from ..text.calibration import text_keys, whole_windows
from ..text.held_out import ids_hash
from .cap_rows import BINS, measure_all
from .cap_sweep import unseen
from .policies import Policy, facts
from .recipes import resolve
from .sweep import KERNEL, TOKENS, few_tokens

SHARES = (1.0, 0.5, 0.25, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02)  # of the causal pairs
MAX_SHARES = 32


@record
class ReadsSweep(Worded):
    """Ever fewer keys by the ranks of a policy."""

    rows: list[dict] = doc("from the largest share on: share and total of the keys, and as a row of `sweep`")
    policy: dict = doc("facts of the policy")
    window: int = doc("tokens of a window")
    windows: int = doc("windows that were read")
    table: pd.DataFrame = doc("the rows without their bins", name="rows")
    bins: pd.DataFrame = doc("one row per share and bin")


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
) -> ReadsSweep:
    """Share out ever fewer keys by the ranks of a stored policy, without a cap, and measure on texts it never saw.

    `shares` of the causal pairs; a share is the least that is read. Errors: BadSetting for a text that calibrated the
    policy, BadText.
    """
    check_seed(seed)
    shares = check_shares(list(SHARES if shares is None else shares))
    lm = context.model(model)
    resolved = resolve(context, lm, policy)
    unseen_texts = unseen(context, resolved, texts or [])
    windows = whole_windows(lm, unseen_texts, window, tokens, "text of the sweep")
    length = windows.shape[1]
    totals, variants = share_variants(resolved, shares, length)
    measured = measure_all(context, lm, windows, variants).values()
    rows = [{"share": s, "total": t, **row} for s, t, row in zip(shares, totals, measured, strict=True)]
    return ReadsSweep(
        rows=rows,
        sentence=mean_beside_worst(rows),
        policy=facts(resolved),
        window=length,
        windows=len(windows),
        notes=few_tokens(rows),
        **share_tables(rows),
        protocol=protocol(
            "reads-sweep",
            lm,
            "+".join(text_keys(unseen_texts)),
            windows.size,
            window=length,
            seed=seed,
            kernel=KERNEL,
            windows=ids_hash(windows),
            unit=rows[0]["unit"],
            bins=BINS,
        ),
    )


def share_variants(policy: Policy, shares: list[float], length: int) -> tuple[list[int], dict[str, np.ndarray]]:
    """(keys in all, name -> budgets [L, H]) that read each share of the causal pairs of windows of `length` tokens."""
    totals = [budget_for_reads(policy.ranks, share, length, FLOOR) for share in shares]
    variants = {}
    for share, total in zip(shares, totals, strict=True):
        variants[f"{share:.1%} of the reads"] = np.minimum(allocate_budget(policy.ranks, total), length)
    return totals, variants


def share_tables(rows: list[dict]) -> dict[str, pd.DataFrame]:
    """The rows without their bins, and all bins with their share."""
    bins = [{"share": row["share"], **position_bin} for row in rows for position_bin in row["bins"]]
    return {"table": pd.DataFrame(rows).drop(columns="bins"), "bins": pd.DataFrame(bins)}


def check_shares(shares: list[float]) -> list[float]:
    """The shares, the largest first, each once. Errors: BadSetting."""
    good = all(isinstance(s, int | float) and not isinstance(s, bool) and 0 < s <= 1 for s in shares)
    if not good or not 1 <= len(shares) <= MAX_SHARES:
        raise BadSetting(f"The shares are {str(shares)[:40]} and must be 1 to {MAX_SHARES} numbers above 0 up to 1.")
    return sorted({float(share) for share in shares}, reverse=True)


def mean_beside_worst(rows: list[dict]) -> str:
    """A sentence: the mean beside the worst positions, where the fewest keys are read."""
    row = rows[-1]
    return (
        f"Reading {row['reads_causal']:.1%} of the causal pairs changes perplexity by {row['difference']:+.1%}, and by "
        f"{row['worst_bin_difference']:+.1%} at positions {row['worst_bin_first']} to {row['worst_bin_last'] - 1}."
    )
