"""One text read with ever fewer keys: every token's loss at every share of the reads, and what the worst token lost."""

import numpy as np
import pandas as pd

from ...answer import Worded, doc, record
from ...errors import BadSetting, BadText
from ...methods import METHODS
from ...models import Model
from ..context import Context, Reading, check_seed, protocol
from ..text.calibration import halves
from ..text.scoring import whole_windows
from ..text.text import token_table
from .cap_rows import BINS, compare_losses, counted_reads, measure_losses
from .lost_keys import lost_at
from .policies import Policy, facts
from .reads_sweep import SHARES, check_shares, mean_beside_worst, share_tables, share_variants
from .recipes import resolve
from .sweep import KERNEL, few_tokens

PASSES_SHARE = 0.95  # of the progress


@record
class ReadsText(Worded):
    """One text read with ever fewer keys, token by token."""

    rows: list[dict] = doc("from the largest share on: share and total of the keys, and as a row of `sweep`")
    lost: list[dict | None] = doc("per share the token whose loss rose most, and the key it lost; null where none rose")
    policy: dict = doc("facts of the policy")
    window: int = doc("tokens of a window")
    windows: int = doc("windows that were scored")
    tokens: pd.DataFrame = doc("tokens of the text")
    table: pd.DataFrame = doc("the rows without their bins", name="rows")
    bins: pd.DataFrame = doc("one row per share and bin")
    position: np.ndarray = doc("int32 [n]: predicted tokens")
    loss: np.ndarray = doc("float32 [n]: nats of dense attention")
    difference: np.ndarray = doc("float32 [shares, n]: rise of that loss, nats")


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
) -> ReadsText:
    """As `reads_sweep`, without a cap, on one text, token by token.

    `shares` of the causal pairs, the least that is read. Of a text whose first half calibrated the policy the windows
    of the second half are scored. Errors: BadSetting for a text that calibrated the policy, BadText.
    """
    check_seed(seed)
    shares = check_shares(list(SHARES if shares is None else shares))
    lm = context.model(model)
    resolved = resolve(context, lm, policy)
    reading = whole_windows(context, lm, text, window, long_text)
    scored, notes = _scored(reading, resolved, text)
    windows = np.stack([reading.windows[number] for number in scored]).astype(np.int64)
    length = windows.shape[1]
    totals, variants = share_variants(resolved, shares, length)
    dense, measured = measure_losses(context, lm, windows, variants, (0.0, PASSES_SHARE))
    rows, lost = [], []
    for index, (name, budgets) in enumerate(variants.items()):
        done = PASSES_SHARE + (1 - PASSES_SHARE) * index / len(variants)
        context.progress(done, f"the worst token at {name}")
        losses, method = measured[name]
        row = compare_losses(losses, dense) | counted_reads([method], lm.num_kv_heads, *windows.shape)
        rows.append({"share": shares[index], "total": totals[index], **row})
        lost.append(_lost(lm, reading, scored, budgets, losses, dense))
    rises = [(losses - dense).ravel() for losses, _ in measured.values()]
    return ReadsText(
        rows=rows,
        lost=lost,
        sentence=mean_beside_worst(rows),
        policy=facts(resolved),
        window=length,
        windows=len(windows),
        notes=[*reading.notes, *notes, *few_tokens(rows)],
        tokens=token_table(reading),
        **share_tables(rows),
        position=np.add.outer(np.array(scored) * length, np.arange(1, length)).ravel().astype(np.int32),
        loss=dense.ravel().astype(np.float32),
        difference=np.stack(rises).astype(np.float32),
        protocol=protocol(
            "reads-text",
            lm,
            text,
            len(reading.tokens),
            window=length,
            seed=seed,
            kernel=KERNEL,
            unit=rows[0]["unit"],
            bins=BINS,
            policy=resolved.integers,
        ),
    )


def _scored(reading: Reading, policy: Policy, text: str) -> tuple[list[int], list[str]]:
    """Which windows are scored, and a note where the policy has seen the others. Errors: BadSetting, BadText."""
    spans = reading.tokens.spans
    if policy.about.get("halves") == text:
        middle, starts = len(halves(reading.text)[0]), reading.tokens.starts
        scored = [number for number, (first, last) in enumerate(spans) if min(starts[first + 1 : last]) >= middle]
        if not scored:
            raise BadText(
                f"The first half of {reading.name} calibrated the policy {policy.name} and no whole window lies in the "
                "second: choose another text, or a shorter window."
            )
        note = "The first half of this text calibrated the policy: only windows of its second half are scored."
        return scored, [note]
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
    window, inside = (int(n) for n in np.unravel_index(rise.argmax(), rise.shape))
    if rise[window, inside] <= 1e-6:  # rounding
        return None
    method = METHODS["csa"](budgets=tuple(budgets.ravel().tolist()), shape=budgets.shape)
    lost, _, _ = lost_at(lm, reading, scored[window], inside, method, losses[window, inside], dense[window, inside])
    return vars(lost)
