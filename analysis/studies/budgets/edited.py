"""What a page of budgets asks for while they are edited: the map and what it reads; how two calibrations differ."""

import numpy as np
import pandas as pd

from ...answer import Answer, Worded, doc, record
from ...costs import kv_cache_bytes
from ...errors import BadSetting
from ...metrics.budgets import FLOOR, allocate_budget, budget_for_reads, cache_keys, reads
from ..context import Context, protocol
from ..text.held_out import check_range
from .policies import DEFAULT, Policy, facts, stored_policies
from .ranks import cells_table
from .recipes import policy_for, resolve

SHARES = (1.0, 0.75, 0.5, 0.35, 0.25, 0.18, 0.12, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02)  # of the causal pairs
CAN_NOT = "Every key is scored to find the largest, so no setting here can be much faster than dense attention."


@record
class Budgets(Worded):
    """The budgets of a policy with changes by hand, and what they read without ties. Lists are [layer][head]."""

    ranks: list[list[float]] = doc("what the keys are shared out by")
    budgets: list[list[int]] = doc("keys that a head may read")
    stored: list[list[int]] = doc("the same as calibrated")
    fixed: list[list[bool]] = doc("set by hand")
    total: int = doc("keys of all heads together")
    stored_total: int = doc("the same as calibrated")
    beta: float = doc("total by the sum of the ranks")
    cap: int = doc("keys that a head may read at most")
    integers: dict = doc("the policy to hand on: layers heads policy")
    attended: float = doc("keys that a query reads on average")
    reads_causal: float = doc("share of the causal pairs that is read")
    reads_full: float = doc("the same as a share of all pairs")
    kv_read: float = doc("share of the key and value vectors that is fetched")
    reads_kv_least: float = doc("share that a key-value head reads where the heads that share it choose alike")
    reads_kv_most: float = doc("the same where they never do")
    shares: list[dict] = doc("total and beta that read a share of the causal pairs")
    kv_bytes: int = doc("bytes of the KV cache with all keys")
    kv_bytes_evicted: int = doc("the same, at most, when keys leave for good")
    window: int = doc("tokens that these are of")
    policy: dict = doc("facts of the policy")
    policies: list[dict] = doc("facts of all policies of the model")
    cells: pd.DataFrame = doc("layer head rank budget stored fixed capped")


@record
class Agreement(Answer):
    """How the ranks of two policies of a model agree. Correlations are null where one has no spread."""

    pearson: float | None = doc("correlation over heads")
    pearson_log: float | None = doc("correlation of the logarithms")
    spearman: float | None = doc("rank correlation")
    mean_change: float = doc("mean of |other - rank| / rank")
    moved: float = doc("share of the keys that change heads when both share out the same total")
    total: int = doc("that total")
    policy: dict = doc("facts of the first policy")
    other: dict = doc("facts of the second")
    sentence: str = doc("the result in words")
    cells: pd.DataFrame = doc("layer head rank other change budget other_budget")


def budgets(
    model: str = "demo", policy: dict | str | None = None, window: int | None = None, *, context: Context
) -> Budgets:
    """The budgets that a policy and hand-made changes give, and what they read of `window` tokens; no pass is made.

    `policy`: see `recipes.resolve` (a name; a total by one of `total beta keys_per_head reads`; `edits`).
    Errors: BadSetting.
    """
    lm = context.model(model)
    check_range("A window of text", window, 1, lm.max_positions)
    resolved, length = resolve(context, lm, policy, window), window or lm.max_positions
    base = policy_for(context, lm, resolved.name)
    total, ranked = int(resolved.budgets.sum()), float(resolved.ranks.sum())
    read = reads(resolved.budgets, resolved.cap, length, lm.num_kv_heads)
    cached = cache_keys(resolved.budgets, resolved.cap, length, lm.num_kv_heads)
    dense, evicted = (kv_cache_bytes(keys, lm.head_dim, lm.dtype.itemsize) for keys in cached)
    cells = {"rank": resolved.ranks, "budget": resolved.budgets, "stored": base.budgets, "fixed": resolved.fixed}
    return Budgets(
        ranks=resolved.ranks.tolist(),
        budgets=resolved.budgets.tolist(),
        stored=base.budgets.tolist(),
        fixed=resolved.fixed.tolist(),
        total=total,
        stored_total=int(base.budgets.sum()),
        beta=total / ranked,
        cap=int(resolved.cap),
        integers=resolved.integers,
        **read,
        shares=_shares(resolved, length),
        kv_bytes=dense,
        kv_bytes_evicted=evicted,
        window=length,
        policy=facts(base),
        policies=stored_policies(context, lm),
        sentence=_sentence(resolved, total, read),
        notes=[CAN_NOT],
        cells=cells_table(**cells, capped=np.minimum(resolved.budgets, resolved.cap)),
        protocol=protocol("budgets", lm, None, 0, window=length, kernel="none: computed from the budgets"),
    )


def calibrations(
    model: str = "demo", policy: str = DEFAULT, other: str = "", total: int | None = None, *, context: Context
) -> Agreement:
    """How the ranks of two stored policies of a model agree, such as of two corpora, and what moves between heads.

    `total`: keys that both share out, by default those of the first. Errors: BadSetting.
    """
    lm = context.model(model)
    first, second = policy_for(context, lm, policy), policy_for(context, lm, other or DEFAULT)
    if first.name == second.name:
        raise BadSetting(f"Two policies are compared, and {first.name} was named twice: name another one.")
    total = int(first.budgets.sum()) if total is None else total
    shared_first, shared_second = (allocate_budget(compared.ranks, total) for compared in (first, second))
    change = second.ranks / np.maximum(first.ranks, 1e-9) - 1
    logs = [np.log(np.maximum(compared.ranks, 1e-9)) for compared in (first, second)]
    places = [pd.Series(compared.ranks.ravel()).rank().to_numpy() for compared in (first, second)]
    pearson_log, mean_change = _pearson(*logs), float(np.abs(change).mean())
    moved = float(np.abs(shared_first - shared_second).sum() / 2 / total)
    alike = "have no spread" if pearson_log is None else f"agree to {pearson_log:.2f}"
    return Agreement(
        pearson=_pearson(first.ranks, second.ranks),
        pearson_log=pearson_log,
        spearman=_pearson(*places),
        mean_change=mean_change,
        moved=moved,
        total=total,
        policy=facts(first),
        other=facts(second),
        sentence=(
            f"The ranks of {first.name} and {second.name} {alike} (correlation of their logarithms); a head's rank "
            f"changes by {mean_change:.0%} on average, and {moved:.1%} of {total:,} keys change heads."
        ),
        cells=cells_table(
            rank=first.ranks, other=second.ranks, change=change, budget=shared_first, other_budget=shared_second
        ),
        protocol=protocol("calibrations", lm, None, 0, kernel="none: computed from stored ranks"),
    )


def _shares(policy: Policy, length: int) -> list[dict]:
    """Totals for a slider over the share of reads, without edits and cap."""
    totals = {share: budget_for_reads(policy.ranks, share, length, FLOOR) for share in SHARES}
    return [
        {"share": share, "total": total, "beta": total / float(policy.ranks.sum())} for share, total in totals.items()
    ]


def _sentence(policy: Policy, total: int, read: dict) -> str:
    heads, low, high = policy.budgets.size, read["reads_kv_least"], read["reads_kv_most"]
    shared = ""
    if high != read["reads_causal"]:
        shared = f"; heads that share keys read {low:.1%} to {high:.1%} together, by how far they choose alike"
    return (
        f"{total:,} keys for {heads:,} heads, {total / heads:.0f} each on average and at most "
        f"{min(policy.cap, policy.budgets.max()):,}: {read['reads_causal']:.1%} of the causal pairs "
        f"({read['reads_full']:.1%} of all pairs){shared}."
    )


def _pearson(a: np.ndarray, b: np.ndarray) -> float | None:
    a, b = a.ravel() - a.mean(), b.ravel() - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale > 0 else None
