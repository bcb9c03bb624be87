"""One text read with ever fewer keys: every token's loss at every share of the reads, and what the worst token lost."""

import numpy as np
import pandas as pd

from analysis.errors import BadSetting, BadText
from analysis.methods import METHODS
from analysis.metrics.budgets import FLOOR, allocate_budget, budget_for_reads
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.budgets.cap_rows import BINS, compare_losses, counted_reads, measure_losses
from analysis.studies.budgets.lost_keys import lost_at
from analysis.studies.budgets.policies import Policy, facts
from analysis.studies.budgets.reads_sweep import SHARES, check_shares, mean_beside_worst
from analysis.studies.budgets.recipes import resolve
from analysis.studies.budgets.sweep import KERNEL, few_tokens
from analysis.studies.context import Context, Reading, check_seed, protocol
from analysis.studies.text.calibration import halves
from analysis.studies.text.scoring import whole_windows
from analysis.studies.text.text import token_table

PASSES = 0.95  # of the progress


def reads_text(
    model: str = "demo",
    text: str = "",
    policy: str | None = None,
    shares: list[float] | None = None,
    window: int | None = None,
    long_text: str = "windows",
    seed: int = 0,
    *,
    context: Context,
) -> Result:
    """As `reads_sweep`, without a cap, on one text, token by token.

    `shares` of the causal pairs, the least that is read. Of a text whose first half calibrated the policy the windows
    of the second half are scored. numbers: `rows`, from the largest share on: `share total` and what a row of
    `cap_sweep.sweep` has; `lost`, one per share: the token whose loss rose most, with the key it lost (see `lost_keys`;
    None where no token became less likely); `sentence policy window windows notes`; tables: `tokens` of the text,
    `rows`, `bins` (with their `share`); arrays: `position` int32 [n] of the predicted tokens, `loss` float32 [n] of
    dense attention and `difference` float32 [shares, n] in nats. Errors: BadSetting for a text that calibrated the
    policy, BadText.
    """
    check_seed(seed)
    shares = check_shares(list(SHARES if shares is None else shares))
    lm = context.model(model)
    made = resolve(context, lm, policy)
    reading = whole_windows(context, lm, text, window, long_text)
    scored, notes = _scored(reading, made, text)
    windows = np.stack([reading.windows[at] for at in scored]).astype(np.int64)
    length = windows.shape[1]
    totals = [budget_for_reads(made.ranks, share, length, FLOOR) for share in shares]
    variants = {
        f"{share:.1%} of the reads": np.minimum(allocate_budget(made.ranks, total), length)
        for share, total in zip(shares, totals, strict=True)
    }
    dense, found = measure_losses(context, lm, windows, variants, (0.0, PASSES))
    rows, lost = [], []
    for at, (name, budgets) in enumerate(variants.items()):
        context.progress(PASSES + (1 - PASSES) * at / len(variants), f"the worst token at {name}")
        losses, method = found[name]
        row = compare_losses(losses, dense) | counted_reads([method], lm.num_kv_heads, *windows.shape)
        rows.append({"share": shares[at], "total": totals[at], **row})
        lost.append(_lost(lm, reading, scored, budgets, losses, dense))
    numbers = {
        "rows": rows,
        "lost": lost,
        "sentence": mean_beside_worst(rows),
        "policy": facts(made),
        "window": length,
        "windows": len(windows),
        "notes": [*reading.notes, *notes, *few_tokens(rows)],
        "protocol": protocol(
            "reads-text",
            lm,
            text,
            len(reading.tokens),
            window=length,
            seed=seed,
            kernel=KERNEL,
            unit=rows[0]["unit"],
            bins=BINS,
            policy=made.integers,
        ),
    }
    tables = {
        "tokens": token_table(reading),
        "rows": pd.DataFrame(rows).drop(columns="bins"),
        "bins": pd.DataFrame([{"share": row["share"], **one} for row in rows for one in row["bins"]]),
    }
    places = np.add.outer(np.array(scored) * length, np.arange(1, length)).ravel().astype(np.int32)
    apart = np.stack([(losses - dense).ravel() for losses, _ in found.values()]).astype(np.float32)
    arrays = {"position": places, "loss": dense.ravel().astype(np.float32), "difference": apart}
    return Result(numbers, tables, arrays)


def _scored(reading: Reading, policy: Policy, text: str) -> tuple[list[int], list[str]]:
    """Which windows are scored, and a note where the policy has seen the others. Errors: BadSetting, BadText."""
    spans = reading.tokens.spans
    if policy.about.get("halves") == text:
        middle, tokens = len(halves(reading.text)[0]), reading.tokens
        kept = [at for at, (first, last) in enumerate(spans) if min(tokens.starts[first + 1 : last]) >= middle]
        if not kept:
            raise BadText(
                f"The first half of {reading.name} calibrated the policy {policy.name} and no whole window lies in the "
                "second: choose another text, or a shorter window."
            )
        return kept, ["The first half of this text calibrated the policy: only windows of its second half are scored."]
    if text in policy.about.get("texts", ()):
        raise BadSetting(
            f"{reading.name} calibrated the policy {policy.name}, which must not be measured on it: choose another "
            "text, or calibrate on others."
        )
    return list(range(len(spans))), []


def _lost(
    lm: Model, reading: Reading, scored: list[int], budgets: np.ndarray, losses: np.ndarray, dense: np.ndarray
) -> dict | None:
    """The token whose loss rose most, and its key; None where none rose."""
    rise = losses - dense
    at, inside = (int(n) for n in np.unravel_index(rise.argmax(), rise.shape))
    if rise[at, inside] <= 1e-6:
        return None
    method = METHODS["csa"](budgets=tuple(budgets.ravel().tolist()), shape=budgets.shape)
    return lost_at(lm, reading, scored[at], inside, method, losses[at, inside], dense[at, inside])[0]
