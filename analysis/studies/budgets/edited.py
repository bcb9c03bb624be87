"""What a page of budgets asks for while they are edited: the map and what it reads; how two calibrations differ."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ...answer import Answer, doc, record
from ...commands.budgets import Budgets, Calibrations
from ...costs import Shape, cache_bytes
from ...errors import BadModel, BadSetting
from ...metrics.budgets import allocate_budget, keys_left, reads
from ...models import Model
from ...models.counted import counted
from ...seam.layers import attention_modules
from ..context import Context, protocol
from ..text.held_out import check_range
from ..text.text import cells_table
from .policies import DEFAULT, facts, stored_policies
from .recipes import policy_for, resolve

CAN_NOT = "Every key is scored to find the largest, so no setting here can be much faster than dense attention."


@record
class BudgetMap(Answer):
    """The budgets of a policy with changes by hand, and what they read without ties. Lists are [layer][head]."""

    ranks: list[list[float]] = doc("what the keys are shared out by")
    budgets: list[list[int]] = doc("keys that a head may read")
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
    kv_bytes: int | None = doc("bytes of the KV cache with all keys; null for a family that is not counted")
    kv_bytes_evicted: int | None = doc("the same, at most, when keys leave for good")
    kv_notes: list[str] = doc("what to bear in mind of these bytes")
    window: int = doc("tokens that these are of")
    policy: dict = doc("facts of the policy")
    policies: list[dict] = doc("facts of all policies of the model")
    notes: list[str] = doc("what to bear in mind")
    cells: pd.DataFrame = doc("layer head rank budget stored fixed capped")


@record
class Agreement(Answer):
    """How the ranks of two policies of a model agree."""

    pearson_log: float | None = doc("correlation of the logarithms of the ranks; null where one has no spread")
    mean_change: float = doc("mean of |other - rank| / rank")
    moved: float = doc("share of the keys that change heads when both share out the same total")
    total: int = doc("that total")
    policy: dict = doc("facts of the first policy")
    other: dict = doc("facts of the second")
    sentence: str = doc("the result in words")
    cells: pd.DataFrame = doc("layer head rank other change budget other_budget")


def budgets(request: Budgets, *, context: Context) -> BudgetMap:
    """The budgets that a policy and hand-made changes give (see `recipes.resolve`), and what they read of `window`
    tokens; no pass is made. Errors: BadSetting."""
    lm = context.model(request.model)
    check_range("A window of text", request.window, 1, lm.max_positions)
    policy, length = resolve(context, lm, request.policy, request.window), request.window or lm.max_positions
    base = policy_for(context, lm, policy.name)
    total = int(policy.budgets.sum())
    try:
        shape = counted(lm)
    except BadModel:
        whole = left = None
        kv_notes = ["What this family caches is not counted here, so no bytes of it are shown."]
    else:
        whole, left = held_bytes(lm, shape, policy.budgets, policy.cap, length)
        of_cache = {
            f"This model caches one latent of {shape.latent:,} numbers for all heads of a layer, which budgets of "
            "single heads do not shrink.": shape.latent,
            "The keys of the model's own indexer are counted, and stay.": shape.chooses,
            "The states of its other layers are counted, and stay.": shape.state,
        }
        kv_notes = [note for note, holds in of_cache.items() if holds]
    capped = np.minimum(policy.budgets, policy.cap)
    fixed = np.zeros(capped.shape, dtype=bool) if policy.fixed is None else policy.fixed
    return BudgetMap(
        **reads(policy.budgets, policy.cap, length, lm.num_kv_heads),
        ranks=policy.ranks.tolist(),
        budgets=policy.budgets.tolist(),
        total=total,
        stored_total=int(base.budgets.sum()),
        beta=total / float(policy.ranks.sum()),
        cap=int(policy.cap),
        integers=policy.integers,
        kv_bytes=whole,
        kv_bytes_evicted=left,
        kv_notes=kv_notes,
        window=length,
        policy=facts(base),
        policies=stored_policies(context, lm),
        notes=[CAN_NOT],
        cells=cells_table(
            lm, rank=policy.ranks, budget=policy.budgets, stored=base.budgets, fixed=fixed, capped=capped
        ),
        protocol=protocol("budgets", lm, None, 0, window=length, kernel="none: computed from the budgets"),
    )


def calibrations(request: Calibrations, *, context: Context) -> Agreement:
    """How the ranks of two stored policies of a model agree, such as of two corpora, and what moves between heads that
    share out as many keys (default: those of the first). Errors: BadSetting."""
    lm = context.model(request.model)
    first, second = (policy_for(context, lm, name or DEFAULT) for name in (request.policy, request.other))
    if first.name == second.name:
        raise BadSetting(f"Two policies are compared, and {first.name} was named twice: name another one.")
    total = int(first.budgets.sum()) if request.total is None else request.total
    shared, other_shared = (allocate_budget(policy.ranks, total) for policy in (first, second))
    change = second.ranks / np.maximum(first.ranks, 1e-9) - 1
    logs = [np.log(np.maximum(policy.ranks.ravel(), 1e-9)) for policy in (first, second)]
    # Ranks that are all alike, of one head or of a policy made by hand, have no correlation.
    correlation = float(np.corrcoef(*logs)[0, 1]) if all(np.ptp(log) > 0 for log in logs) else None
    mean_change = float(np.abs(change).mean())
    moved = float(np.abs(shared - other_shared).sum() / 2 / total)
    alike = "have no spread" if correlation is None else f"agree to {correlation:.2f}"
    return Agreement(
        pearson_log=correlation,
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
            lm, rank=first.ranks, other=second.ranks, change=change, budget=shared, other_budget=other_shared
        ),
        protocol=protocol("calibrations", lm, None, 0, kernel="none: computed from stored ranks"),
    )


def held_bytes(lm: Model, shape: Shape, budgets: ArrayLike, cap: int, length: int) -> tuple[int, int]:
    """Bytes of the KV cache of a model of this shape after `length` tokens: (with all keys, the most that are left when
    each head keeps min(budget, cap) for good); `budgets` int [L, H].

    A state, an indexer's keys and the latent of MLA stay: budgets of single heads shrink none of them.
    """
    total = cache_bytes(shape, length)
    if shape.latent:
        return round(total), round(total)
    gone, kept = 0.0, np.asarray(budgets)
    readers = [layer for layer in shape.stack if layer.entries]
    for place, (layer, module) in enumerate(zip(readers, attention_modules(lm.lm), strict=True)):
        whole = layer.entries[0]
        held = whole.cached(length)
        groups = lm.num_heads // getattr(module, "num_key_value_groups", lm.num_heads // lm.num_kv_heads)
        left = keys_left(kept[[place]], cap, held, groups)  # [1, G]
        gone += whole.numbers * (held - left.mean())
    return round(total), round(total - shape.cache_bytes * gone)
