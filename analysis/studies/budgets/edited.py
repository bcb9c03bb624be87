"""What a page of budgets asks for while they are edited: the map and what it reads; how two calibrations differ."""

import numpy as np
import pandas as pd

from analysis.costs import kv_cache_bytes
from analysis.errors import BadSetting
from analysis.metrics.budgets import FLOOR, allocate_budget, budget_for_reads, cache_keys, reads
from analysis.runs import Result
from analysis.studies.budgets.policies import DEFAULT, Policy, facts, stored_policies
from analysis.studies.budgets.ranks import cells_table
from analysis.studies.budgets.recipes import policy_for, resolve
from analysis.studies.context import Context, protocol
from analysis.studies.text.held_out import check_range

SHARES = (1.0, 0.75, 0.5, 0.35, 0.25, 0.18, 0.12, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02)  # of the causal pairs
CAN_NOT = "Every key is scored to find the largest, so no setting here can be much faster than dense attention."


def budgets(
    model: str = "demo", policy: dict | str | None = None, window: int | None = None, *, context: Context
) -> Result:
    """The budgets that a policy and hand-made changes give, and what they read of `window` tokens; no pass is made.

    `policy`: see `policies.resolve` (a name; a total by one of `total beta keys_per_head reads`; `edits`). numbers:
    `ranks budgets stored` [L][H] (`stored`: as calibrated), `fixed` [L][H] set by hand, `total stored_total beta cap`,
    `integers` (the policy to hand on: `layers heads policy`), `reads_causal reads_full kv_read attended
    reads_kv_least reads_kv_most` (without ties, see `metrics.budgets`), `shares` (`share total beta`: what total reads
    which share of the causal pairs), `kv_bytes` and
    `kv_bytes_evicted` (at most, when keys leave for good), `policy` and `policies` (facts), `sentence`, `notes`.
    table: `cells` (`layer head rank budget stored fixed capped`). Errors: BadSetting.
    """
    lm = context.model(model)
    check_range("A window of text", window, 1, lm.max_positions)
    made, length = resolve(context, lm, policy, window), window or lm.max_positions
    base = policy_for(context, lm, made.name)
    total, ranked = int(made.budgets.sum()), float(made.ranks.sum())
    read = reads(made.budgets, made.cap, length, lm.num_kv_heads)
    kept = cache_keys(made.budgets, made.cap, length, lm.num_kv_heads)
    dense, evicted = (kv_cache_bytes(keys, lm.head_dim, lm.dtype.itemsize) for keys in kept)
    numbers = {
        "ranks": made.ranks.tolist(),
        "budgets": made.budgets.tolist(),
        "stored": base.budgets.tolist(),
        "fixed": made.fixed.tolist(),
        "total": total,
        "stored_total": int(base.budgets.sum()),
        "beta": total / ranked,
        "cap": int(made.cap),
        "integers": made.integers,
        **read,
        "shares": _shares(made, length),
        "kv_bytes": dense,
        "kv_bytes_evicted": evicted,
        "window": length,
        "policy": facts(base),
        "policies": stored_policies(context, lm),
        "sentence": _sentence(made, total, read),
        "notes": [CAN_NOT],
        "protocol": protocol("budgets", lm, None, 0, window=length, kernel="none: computed from the budgets"),
    }
    cells = {"rank": made.ranks, "budget": made.budgets, "stored": base.budgets, "fixed": made.fixed}
    return Result(numbers, {"cells": cells_table(**cells, capped=np.minimum(made.budgets, made.cap))})


def calibrations(
    model: str = "demo", policy: str = DEFAULT, other: str = "", total: int | None = None, *, context: Context
) -> Result:
    """How the ranks of two stored policies of a model agree, such as of two corpora, and what moves between heads.

    numbers: `pearson`, `pearson_log`, `spearman` over heads (None where one has no spread), `mean_change` (mean of
    |other - rank| / rank), `moved` (share of the keys that change heads when both share out the same `total`, by
    default the first one's), `policy other` (facts), `sentence`; table: `cells` (`layer head rank other change budget
    other_budget`). Errors: BadSetting.
    """
    lm = context.model(model)
    first, second = policy_for(context, lm, policy), policy_for(context, lm, other or DEFAULT)
    if first.name == second.name:
        raise BadSetting(f"Two policies are compared, and {first.name} was named twice: name another one.")
    total = int(first.budgets.sum()) if total is None else total
    mine, theirs = (allocate_budget(one.ranks, total) for one in (first, second))
    change = second.ranks / np.maximum(first.ranks, 1e-9) - 1
    found = {
        "pearson": _pearson(first.ranks, second.ranks),
        "pearson_log": _pearson(np.log(np.maximum(first.ranks, 1e-9)), np.log(np.maximum(second.ranks, 1e-9))),
        "spearman": _pearson(*(pd.Series(one.ranks.ravel()).rank().to_numpy() for one in (first, second))),
        "mean_change": float(np.abs(change).mean()),
        "moved": float(np.abs(mine - theirs).sum() / 2 / total),
    }
    alike = "have no spread" if found["pearson_log"] is None else f"agree to {found['pearson_log']:.2f}"
    numbers = {
        **found,
        "total": total,
        "policy": facts(first),
        "other": facts(second),
        "sentence": (
            f"The ranks of {first.name} and {second.name} {alike} (correlation of their logarithms); a head's rank "
            f"changes by {found['mean_change']:.0%} on average, and {found['moved']:.1%} of {total:,} keys change "
            "heads."
        ),
        "protocol": protocol("calibrations", lm, None, 0, kernel="none: computed from stored ranks"),
    }
    cells = {"rank": first.ranks, "other": second.ranks, "change": change, "budget": mine, "other_budget": theirs}
    return Result(numbers, {"cells": cells_table(**cells)})


def _shares(made: Policy, length: int) -> list[dict]:
    """Totals for a slider over the share of reads, without edits and cap."""
    totals = {share: budget_for_reads(made.ranks, share, length, FLOOR) for share in SHARES}
    return [
        {"share": share, "total": total, "beta": total / float(made.ranks.sum())} for share, total in totals.items()
    ]


def _sentence(made: Policy, total: int, read: dict) -> str:
    heads = made.budgets.size
    return (
        f"{total:,} keys for {heads:,} heads, {total / heads:.0f} each on average and at most "
        f"{min(made.cap, made.budgets.max()):,}: {read['reads_causal']:.1%} of the causal pairs "
        f"({read['reads_full']:.1%} of all pairs){_shared(read)}."
    )


def _shared(read: dict) -> str:
    """What the heads that share keys read together, where any do."""
    least, most = read["reads_kv_least"], read["reads_kv_most"]
    if most == read["reads_causal"]:
        return ""
    return f"; heads that share keys read {least:.1%} to {most:.1%} together, by how far they choose alike"


def _pearson(a: np.ndarray, b: np.ndarray) -> float | None:
    a, b = a.ravel() - a.mean(), b.ravel() - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale > 0 else None
