"""One text read with ever fewer keys: every token's loss at every share of the reads, and what the worst token lost."""

import numpy as np
import pandas as pd

from ...answer import Answer, doc, record
from ...commands.budgets import ReadsText
from ...errors import BadSetting, BadText
from ...methods.csa import CSA
from ...metrics.budgets import FLOOR, allocate_budget, budget_for_reads
from ...metrics.quality import BINS
from ..context import Context, protocol
from ..text.calibration import halves
from ..text.scoring import whole_windows
from ..text.text import token_table
from .cap_rows import KERNEL, compare_losses, counted_reads, few_tokens, measure_losses, without_bins
from .lost_keys import lost_at
from .policies import facts
from .recipes import resolve

# Shares of the causal pairs; the first reads everything.
SHARES = (1.0, 0.5, 0.25, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02)
MAX_SHARES = 32
# Of the progress.
PASSES_SHARE = 0.95


@record
class ReadByShares(Answer):
    """One text read with ever fewer keys, token by token."""

    rows: list[dict] = doc("from the largest share on: share and total of the keys, and as a row of `sweep`")
    lost: list[dict | None] = doc("per share the token whose loss rose most, and the key it lost; null where none rose")
    policy: dict = doc("facts of the policy")
    window: int = doc("tokens of a window")
    windows: int = doc("windows that were scored")
    notes: list[str] = doc("what to bear in mind")
    tokens: pd.DataFrame = doc("tokens of the text")
    table: pd.DataFrame = doc("the rows without their bins", name="rows")
    bins: pd.DataFrame = doc("one row per share and bin")
    position: np.ndarray = doc("int32 [n]: predicted tokens")
    loss: np.ndarray = doc("float32 [n]: nats of dense attention")
    difference: np.ndarray = doc("float32 [shares, n]: rise of that loss, nats")


def reads_text(request: ReadsText, *, context: Context) -> ReadByShares:
    """Share out ever fewer keys by the ranks of a stored policy, without a cap, and read one text token by token; a
    share is the least that is read. Of a text whose first half calibrated the policy the windows of the second half are
    scored. Errors: BadSetting for a text that calibrated the policy, BadText."""
    shares = list(SHARES if request.shares is None else request.shares)
    if not 1 <= len(shares) <= MAX_SHARES or not all(0 < share <= 1 for share in shares):
        raise BadSetting(f"The shares are {str(shares)[:40]} and must be 1 to {MAX_SHARES} numbers above 0 up to 1.")
    shares = sorted({float(share) for share in shares}, reverse=True)
    lm = context.model(request.model)
    policy = resolve(context, lm, request.policy)
    reading = whole_windows(context, lm, request.text, request.window, request.long_text)
    policy.refuse_seen(request.text, reading.name)
    scored, notes = list(range(len(reading.tokens.spans))), []
    if policy.about.get("halves") == request.text:
        middle, starts = len(halves(reading.text)[0]), reading.tokens.starts
        scored = [n for n, (first, last) in enumerate(reading.tokens.spans) if min(starts[first + 1 : last]) >= middle]
        notes = ["The first half of this text calibrated the policy: only windows of its second half are scored."]
        if not scored:
            raise BadText(
                f"The first half of {reading.name} calibrated the policy {policy.name} and no whole window lies in the "
                "second: choose another text, or a shorter window."
            )
    windows = np.stack([reading.windows[number] for number in scored]).astype(np.int64)
    length = windows.shape[1]
    totals = [budget_for_reads(policy.ranks, share, length, FLOOR) for share in shares]
    variants = {
        f"{share:.1%} of the reads": np.minimum(allocate_budget(policy.ranks, total), length)
        for share, total in zip(shares, totals, strict=True)
    }
    dense, measured = measure_losses(context.within(0.0, PASSES_SHARE), lm, windows, variants)
    rows, lost, rises = [], [], []
    for index, (name, budgets) in enumerate(variants.items()):
        context.progress(PASSES_SHARE + (1 - PASSES_SHARE) * index / len(variants), f"the worst token at {name}")
        losses, method = measured[name]
        row = compare_losses(losses, dense) | counted_reads([method], lm.num_kv_heads, *windows.shape)
        rows.append({"share": shares[index], "total": totals[index], **row})
        rise = losses - dense
        rises.append(rise.ravel())
        at = window, inside = tuple(int(n) for n in np.unravel_index(rise.argmax(), rise.shape))
        worst = None
        # A smaller rise is rounding: the same keys were read.
        if rise[at] > 1e-6:
            csa = CSA(budgets=tuple(budgets.ravel().tolist()), shape=budgets.shape)
            worst = vars(lost_at(lm, reading, scored[window], inside, csa, losses[at], dense[at])[0])
        lost.append(worst)
    about = {"window": length, "seed": request.seed, "kernel": KERNEL, "unit": rows[0]["unit"], "bins": BINS}
    tables = without_bins(rows, "share")
    return ReadByShares(
        rows=rows,
        lost=lost,
        policy=facts(policy),
        window=length,
        windows=len(windows),
        notes=[*reading.notes, *notes, *few_tokens(rows)],
        tokens=token_table(reading),
        table=tables["rows"],
        bins=tables["bins"],
        position=np.add.outer(np.array(scored) * length, np.arange(1, length)).ravel().astype(np.int32),
        loss=dense.ravel().astype(np.float32),
        difference=np.stack(rises).astype(np.float32),
        protocol=protocol("reads-text", lm, request.text, len(reading.tokens), **about, policy=policy.integers),
    )
