"""The smallest cap that changes no position of a text: perplexity against dense by position, cap after cap."""

import numpy as np
import pandas as pd

from analysis.errors import BadSetting
from analysis.models import Model
from analysis.runs import Result
from analysis.runs.caps import summary, verdict
from analysis.studies.budgets.cap_rows import BINS, measure_all
from analysis.studies.budgets.policies import Policy, facts, resolve
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.text.calibration import halves, text_keys, whole_windows
from analysis.studies.text.held_out import ids_hash

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
    seed: int = 0,
    span: tuple[float, float] = (0.0, 1.0),
) -> list[dict]:
    """One row per cap, in rising order, for budgets [L, H] on windows of token ids [n, T]; `span` of the progress.

    A row: `cap perplexity perplexity_dense difference low high units unit bins reads_causal reads_full kv_read
    attended worst_bin worst_bin_first worst_bin_last worst_bin_difference worst_bin_low worst_bin_high worst_bin_n
    worst_bin_change passes fails`. Differences are paired and a share of dense perplexity; reads are counted. A cap
    that changes no budget is not computed twice. Errors: BadSetting.
    """
    caps = check_caps(caps, tolerance, tolerance_bin)
    capped = {f"cap {cap:,}": np.minimum(budgets, cap) for cap in caps}
    rows = measure_all(context, model, windows, capped, seed, span).values()
    return [{"cap": cap, **row, **verdict(row, tolerance, tolerance_bin)} for cap, row in zip(caps, rows, strict=True)]


def check_caps(caps: list[int], tolerance: float, tolerance_bin: float) -> list[int]:
    """The caps in rising order, each once. Errors: BadSetting for what is none, and for tolerances out of range."""
    good = all(isinstance(cap, int) and not isinstance(cap, bool) and 1 <= cap <= 1 << 20 for cap in caps)
    if not good or not 1 <= len(caps) <= MOST_CAPS:
        raise BadSetting(f"The caps are {str(caps)[:40]} and must be 1 to {MOST_CAPS} whole numbers from 1.")
    for name, value in (("tolerance", tolerance), ("tolerance of a bin", tolerance_bin)):
        if not 0 <= value <= 10:
            raise BadSetting(f"The {name} is {value} and must lie between 0 and 10 (0.01 is 1 %).")
    return sorted(set(caps))


def cap_sweep(
    model: str = "demo",
    texts: list[str] | None = None,
    policy: dict | str | None = None,
    caps: list[int] | None = None,
    tolerance: float = TOLERANCE,
    tolerance_bin: float = TOLERANCE_BIN,
    window: int | None = None,
    tokens: int = TOKENS,
    seed: int = 0,
    *,
    context: Context,
) -> Result:
    """Sweep the cap of a policy, stored or made by hand (see `policies.resolve`), on other texts than its own.

    Of a text whose first half calibrated the policy the second half is read. numbers: `sweep` (see `sweep`), `cap`
    (the smallest that passes, None if none does), `sentence`, `tolerance`, `tolerance_bin`, `policy`, `budgets`,
    `window`, `windows`, `notes`; tables: `rows` (one per cap), `bins` (one per cap and bin). Errors: BadSetting for a
    text that calibrated the policy, BadText.
    """
    check_seed(seed)
    caps = check_caps(list(CAPS if caps is None else caps), tolerance, tolerance_bin)
    lm = context.model(model)
    made = resolve(context, lm, policy, window)
    given = unseen(context, made, texts or [])
    windows = whole_windows(lm, given, window, tokens, "text of the sweep")
    rows = sweep(context, lm, windows, made.budgets, caps, tolerance, tolerance_bin, seed)
    about = protocol(
        "cap-sweep", lm, "+".join(text_keys(given)), windows.size, window=windows.shape[1], seed=seed, kernel=KERNEL,
        windows=ids_hash(windows), unit=rows[0]["unit"], bins=BINS,
    )  # fmt: skip
    numbers = {
        **summary(rows),
        "tolerance": tolerance,
        "tolerance_bin": tolerance_bin,
        "policy": facts(made),
        "budgets": made.budgets.tolist(),
        "window": windows.shape[1],
        "windows": len(windows),
        "notes": few_tokens(rows),
    }
    return Result(numbers | {"protocol": about}, sweep_tables(rows))


def unseen(context: Context, policy: Policy, keys: list[str]) -> list[tuple[str, str]]:
    """Texts (name, text) by their hashes, the second half of one whose first half calibrated the policy.

    Errors: BadSetting for a text that calibrated it whole, and for none.
    """
    if not keys:
        raise BadSetting("No text was named: a policy is measured on at least one.")
    found = []
    for key in keys:
        name, text = context.text(key)
        if policy.about.get("halves") == key:
            text = halves(text)[1]
        elif key in policy.about.get("texts", ()):
            raise BadSetting(
                f"{name} calibrated the policy {policy.name}, which must not be measured on it: choose another text."
            )
        found.append((name, text))
    return found


def few_tokens(rows: list[dict]) -> list[str]:
    """A note where a position bin holds so few tokens that its change is mostly noise."""
    count = rows[0]["worst_bin_n"]
    return [f"A position bin holds {count} tokens: read its change with its interval."] if count < 500 else []


def sweep_tables(rows: list[dict]) -> dict[str, pd.DataFrame]:
    """`rows` without their bins, and all `bins` with their cap."""
    bins = [{"cap": row["cap"], **one} for row in rows for one in row["bins"]]
    return {"rows": pd.DataFrame(rows).drop(columns="bins"), "bins": pd.DataFrame(bins)}
