"""Which budgets CSA reads with: a stored policy, or what a page makes of one by hand."""

import numpy as np

from ...corpus import FITTED_ON, fitting_samples
from ...errors import BadSetting
from ...metrics.budgets import FLOOR, allocate_budget, budget_for_reads, edited
from ...models import Model
from ..context import Context
from ..text.calibration import whole_windows
from .calibrate import MASS, about_ranks
from .cap_rows import TOKENS
from .policies import DEFAULT, FOLDER, Policy, policy_path, read_stored, store_policy, stored_policies
from .ranks import measure_ranks

# Ways to say how many keys there are in all.
TOTALS = ("total", "beta", "keys_per_head", "reads")
PARTS = ("name", *TOTALS, "floor", "edits", "keep_total", "cap")


def policy_for(context: Context, model: Model, name: str = DEFAULT) -> Policy:
    """The stored policy of this name; the first time the default one is asked for, it is calibrated on the bundled
    samples except the story, which can then be measured, and stored. Errors: BadSetting."""
    path = policy_path(context, model, name)
    for stored in context.stored(model, f"{FOLDER}/{path.name}"):
        policy = read_stored(stored, model)
        if policy.about.get("revision", model.revision) == model.revision:
            return policy
        if stored == path:
            raise BadSetting(
                f"The policy {name} in {path.parent.name} was made for other weights than those of {model.name} now: "
                "calibrate it again."
            )
    if name != DEFAULT:
        names = ", ".join(listed["name"] for listed in stored_policies(context, model)) or "none"
        raise BadSetting(f"{model.name} has no policy {name} here; there are: {names}.")
    # Without a sweep: budgets of all the ranks, no cap below the largest.
    texts = [(FITTED_ON, text) for text in fitting_samples().values()]
    windows = whole_windows(model, texts, None, TOKENS)
    measured = measure_ranks(model, windows, MASS, context.progress)
    ranks = measured.mean()
    budgets = allocate_budget(ranks, max(round(float(ranks.sum())), FLOOR * ranks.size))
    about = about_ranks(measured, windows, texts, 0) | {"window": windows.shape[1], "mass": MASS, "min_pos": 0}
    about |= {"beta": 1.0, "floor": FLOOR, "corpus": FITTED_ON, "passes": False}
    policy = Policy(DEFAULT, ranks, budgets, int(budgets.max()), about)
    store_policy(context, model, policy)
    return policy


def resolve(context: Context, model: Model, recipe: dict | str | None, length: int | None = None) -> Policy:
    """The policy that a recipe makes of a stored one.

    `recipe`: a name, or a dict with "name" (default "policy"); one of "total" keys of all heads, "beta" times the sum
    of the ranks, "keys_per_head", or "reads", the share of causal pairs of `length` tokens; "floor"; "edits" and
    "keep_total" as `metrics.budgets.edited` takes them; "cap". Without a total the stored budgets are the start.
    Errors: BadSetting.
    """
    recipe = {"name": recipe} if isinstance(recipe, str) else recipe or {}
    if not isinstance(recipe, dict) or set(recipe) - set(PARTS):
        raise BadSetting(f"{str(recipe)[:60]!r} is no policy: give a name, or an object with {', '.join(PARTS)}.")
    base = policy_for(context, model, recipe.get("name") or DEFAULT)
    floor, edits, cap = recipe.get("floor", FLOOR), recipe.get("edits") or [], recipe.get("cap")
    if not isinstance(edits, list):
        raise BadSetting(f"The edits are {str(edits)[:40]!r} and must be a list.")
    if cap is not None and (type(cap) is not int or cap < 1):
        raise BadSetting(f"The cap is {str(cap)[:20]} and must be a whole number from 1.")
    totals = {name: recipe[name] for name in TOTALS if recipe.get(name) is not None}
    if len(totals) > 1:
        raise BadSetting(f"{' and '.join(totals)} both say how many keys there are: give one of them.")
    start = base.budgets
    for name, value in totals.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 30:
            raise BadSetting(f"The {name} of the policy is {str(value)[:20]} and must be a number above 0.")
        if name == "reads":
            total = budget_for_reads(base.ranks, value, length or model.max_positions, floor)
        else:
            sizes = {"total": 1, "beta": float(base.ranks.sum()), "keys_per_head": base.budgets.size}
            total = round(value * sizes[name])
        if name == "beta":
            total = max(total, floor * base.budgets.size)
        start = allocate_budget(base.ranks, total, floor)
    budgets, fixed = edited(start, base.ranks, edits, bool(recipe.get("keep_total", True)), floor)
    cap = cap or base.cap
    by_hand = cap != base.cap or not np.array_equal(budgets, base.budgets)
    return Policy(base.name, base.ranks, budgets, cap, base.about, fixed, by_hand)
