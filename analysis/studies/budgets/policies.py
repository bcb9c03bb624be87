"""Which budgets CSA reads with: the policies stored for a model, and what a page makes of one by hand."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from analysis.corpus import sample_texts, text_hash
from analysis.errors import AnalysisError, BadSetting
from analysis.files import write_json
from analysis.methods import METHODS
from analysis.metrics.budgets import FLOOR, allocate_budget, budget_for_reads, edited
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import Context, protocol
from analysis.studies.text.held_out import make_folder

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
FOLDER, DEFAULT = "csa", "policy"
TOTALS = ("total", "beta", "keys_per_head", "reads")  # ways to say how many keys there are in all
KEPT = ("tokens", "window", "mass", "min_pos", "beta", "texts", "halves")  # of how a policy was made
PARTS = ("name", *TOTALS, "floor", "edits", "keep_total", "cap")


@dataclass(frozen=True)
class Policy:
    """Budgets int [L, H] with a cap, and the ranks float [L, H] they were shared out by; `fixed` bool [L, H] says which
    were set by hand, `by_hand` whether anything is not as it was stored. `about`: how it was made, as plain data."""

    name: str
    ranks: np.ndarray
    budgets: np.ndarray
    cap: int
    about: dict = field(default_factory=dict)
    fixed: np.ndarray | None = None
    by_hand: bool = False

    @property
    def integers(self) -> dict:
        """The policy as it is stored and handed on: `layers heads policy`, L * H budgets and the cap."""
        layers, heads = self.budgets.shape
        return {"layers": layers, "heads": heads, "policy": [*self.budgets.ravel().tolist(), int(self.cap)]}

    def method(self, **settings):
        """CSA with these budgets."""
        return METHODS["csa"].build(self.integers, **settings)


def policy_path(context: Context, model: Model, name: str) -> Path:
    """Where the policy of this name is stored when it is made now. Errors: BadSetting for what is no name."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadSetting(f"{str(name)[:40]!r} names no policy: use up to 32 lower-case letters, digits and hyphens.")
    return context.state_dirs(model)[0] / FOLDER / f"{name}.json"


def read_policy(stored: dict | str | list, model: Model, name: str) -> Policy:
    """A policy from its JSON, checked against the model. Errors: BadSetting."""
    method = METHODS["csa"].build(stored)
    method.check(model.lm)
    stored = json.loads(stored) if isinstance(stored, str) else stored
    about = {} if isinstance(stored, list) else {k: v for k, v in stored.items() if k not in ("policy", "ranks")}
    budgets = np.array(method.budgets, dtype=np.int64).reshape(method.shape)
    given = stored.get("ranks") if isinstance(stored, dict) else None
    try:
        ranks = budgets.astype(np.float64) if given is None else np.array(given, dtype=np.float64)
        good = ranks.shape == budgets.shape and np.isfinite(ranks).all() and (ranks >= 0).all()
    except (TypeError, ValueError):
        good = False
    if not good:
        raise BadSetting(f"The ranks of the policy {name} are no table of {budgets.shape} numbers from 0 up.")
    return Policy(name, ranks, budgets, method.cap, about)


def stored_policies(context: Context, model: Model) -> list[dict]:
    """The policies stored for a model as plain data: `name total cap tokens texts`, or why one is unusable."""
    found = {}
    for path in context.stored(model, f"{FOLDER}/*.json"):
        if NAME.fullmatch(path.stem) and path.stem not in found:
            try:
                found[path.stem] = facts(_read(path, model))
            except AnalysisError as error:
                found[path.stem] = {"name": path.stem, "error": str(error)}
    return list(found.values())


def facts(policy: Policy) -> dict:
    """What every page says of a policy."""
    about = {name: policy.about[name] for name in (*KEPT, "corpus", "passes") if name in policy.about}
    return {"name": policy.name, "total": int(policy.budgets.sum()), "cap": int(policy.cap), **about}


def policy_for(context: Context, model: Model, name: str = DEFAULT) -> Policy:
    """The stored policy of this name; the first time the default one is asked for, it is calibrated on the bundled
    samples and stored. Errors: BadSetting."""
    path = policy_path(context, model, name)
    for stored in context.stored(model, f"{FOLDER}/{path.name}"):
        found = _read(stored, model)
        if found.about.get("revision", model.revision) == model.revision:
            return found
        if stored == path:
            raise BadSetting(
                f"The policy {name} in {path.parent.name} was made for other weights than those of {model.name} now: "
                "calibrate it again."
            )
    if name != DEFAULT:
        names = ", ".join(one["name"] for one in stored_policies(context, model)) or "none"
        raise BadSetting(f"{model.name} has no policy {name} here; there are: {names}.")
    from analysis.studies.budgets.calibrate import calibrate_on

    return calibrate_on(context, model, [text for _, text in sample_texts().values()], "bundled samples")


def store_policy(context: Context, model: Model, policy: Policy) -> tuple[Path, list[str]]:
    """Store a policy with its ranks and how it was made; runs that used an earlier one of this name go to the trash.
    Returns its place, and sentences that say so."""
    path = policy_path(context, model, policy.name)
    make_folder(path.parent)
    stored = {**policy.about, **policy.integers, "ranks": policy.ranks.tolist()}
    write_json(path, stored | {"model": model.name, "revision": model.revision})
    return path, context.forget("policy", policy.name, model)


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
    floor, edits = recipe.get("floor", FLOOR), recipe.get("edits") or []
    if not isinstance(edits, list):
        raise BadSetting(f"The edits are {str(edits)[:40]!r} and must be a list.")
    total = _total(recipe, base, length or model.max_positions, floor)
    start = base.budgets if total is None else allocate_budget(base.ranks, total, floor)
    budgets, fixed = edited(start, base.ranks, edits, bool(recipe.get("keep_total", True)), floor)
    cap = base.cap if recipe.get("cap") is None else recipe["cap"]
    if isinstance(cap, bool) or not isinstance(cap, int) or cap < 1:
        raise BadSetting(f"The cap is {str(cap)[:20]} and must be a whole number from 1.")
    by_hand = cap != base.cap or not np.array_equal(budgets, base.budgets)
    return Policy(base.name, base.ranks, budgets, cap, base.about, fixed, by_hand)


def named(policy: Policy) -> list[str]:
    """Words that tell a policy from others in a label: its name unless it is the default one, and by hand its keys."""
    words = [] if policy.name == DEFAULT else [policy.name]
    if policy.by_hand:
        mark = text_hash(str(policy.integers["policy"]))[:4]
        words.append(f"with {int(policy.budgets.sum()):,} keys ({mark})")
    return words


def import_policy(
    model: str = "demo",
    text: str = "",
    name: str = "uploaded",
    policy: dict | list | None = None,
    *,
    context: Context,
) -> Result:
    """Store an uploaded policy, the text of a JSON file or `policy` read from one, under a name, once it was checked
    against the model.

    numbers: `policy` (its facts), `budgets` [L][H], `cap`, `path`, `notes`. Errors: BadSetting, with both shapes
    where the policy is another model's, and for fewer keys than the floor of all heads.
    """
    lm = context.model(model)
    given = read_policy(context.text(text)[1] if policy is None else policy, lm, name)
    total, least = int(given.budgets.sum()), FLOOR * given.budgets.size
    if total < least:
        raise BadSetting(
            f"The policy holds {total:,} keys, below the floor: {given.budgets.size:,} heads need at least {FLOOR} "
            f"each, {least:,} in all."
        )
    about = {key: given.about[key] for key in KEPT if key in given.about}
    made = Policy(name, given.ranks, given.budgets, given.cap, {**about, "corpus": "uploaded"})
    path, notes = store_policy(context, lm, made)
    numbers = {"policy": facts(made), "budgets": made.budgets.tolist(), "cap": int(made.cap), "path": str(path)}
    numbers["notes"] = notes
    return Result(numbers | {"protocol": protocol("import-policy", lm, text or None, policy=name)})


def _read(path: Path, model: Model) -> Policy:
    try:
        return read_policy(path.read_text(encoding="utf-8"), model, path.stem)
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"The policy {path.stem} cannot be read ({error}): calibrate it again.") from error


def _total(recipe: dict, base: Policy, length: int, floor: int) -> int | None:
    """All keys together, or None for the stored budgets."""
    given = {name: recipe[name] for name in TOTALS if recipe.get(name) is not None}
    if len(given) > 1:
        raise BadSetting(f"{' and '.join(given)} both say how many keys there are: give one of them.")
    if not given:
        return None
    ((name, value),) = given.items()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 30:
        raise BadSetting(f"The {name} of the policy is {str(value)[:20]} and must be a number above 0.")
    if name == "reads":
        return budget_for_reads(base.ranks, value, length, floor)
    keys = round(value * {"total": 1, "beta": float(base.ranks.sum()), "keys_per_head": base.budgets.size}[name])
    return max(keys, floor * base.budgets.size) if name == "beta" else keys
