"""The policies of CSA that are stored for a model: read, checked, listed, imported."""

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...answer import Answer, doc, record
from ...commands.budgets import ImportPolicy
from ...corpus import text_hash
from ...errors import AnalysisError, BadSetting
from ...files import write_json
from ...methods.csa import CSA
from ...metrics.budgets import FLOOR
from ...models import Model
from ...runs.stored import POLICY_FORMAT
from ..context import Context, protocol
from ..text.held_out import make_folder

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
FOLDER, DEFAULT = "csa", "policy"
# What is told of how a policy was made.
FACTS = ("tokens", "window", "mass", "min_pos", "shared", "beta", "texts", "halves")


@dataclass(frozen=True)
class Policy:
    """Budgets of keys for all heads."""

    name: str
    # float [L, H], by which the keys were shared out.
    ranks: np.ndarray
    # int [L, H]: keys that a head may read.
    budgets: np.ndarray
    # Keys that a head reads at most.
    cap: int
    # How it was made, as plain data.
    about: dict = field(default_factory=dict)
    # bool [L, H], set by hand.
    fixed: np.ndarray | None = None
    # Something differs from what is stored.
    by_hand: bool = False

    @property
    def integers(self) -> dict:
        """The policy as it is stored and handed on: `layers heads policy`, L * H budgets and the cap."""
        layers, heads = self.budgets.shape
        return {"layers": layers, "heads": heads, "policy": [*self.budgets.ravel().tolist(), int(self.cap)]}

    def method(self, **settings: Any) -> CSA:
        """CSA with these budgets."""
        return CSA.build(self.integers, **settings)

    def refuse_seen(self, key: str, name: str) -> None:
        """Errors: BadSetting for a text, by its hash, that calibrated the policy whole."""
        if key in self.about.get("texts", ()):
            raise BadSetting(
                f"{name} calibrated the policy {self.name}, which must not be measured on it: choose another text, or "
                "calibrate on others."
            )


def policy_path(context: Context, model: Model, name: str) -> Path:
    """Where the policy of this name is stored when it is made now. Errors: BadSetting for what is no name."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadSetting(f"{str(name)[:40]!r} names no policy: use up to 32 lower-case letters, digits and hyphens.")
    return context.state_dirs(model)[0] / FOLDER / f"{name}.json"


def read_policy(stored: dict | str | list, model: Model, name: str) -> Policy:
    """A policy from its JSON, checked against the model. Errors: BadSetting."""
    method = CSA.build(stored)
    method.check(model.lm)
    about = json.loads(stored) if isinstance(stored, str) else stored
    about = {} if isinstance(about, list) else dict(about)
    about.pop("policy", None)
    budgets = np.array(method.budgets, dtype=np.int64).reshape(method.shape)
    try:
        ranks = np.array(about.pop("ranks", budgets), dtype=np.float64)
        good = ranks.shape == budgets.shape and np.isfinite(ranks).all() and (ranks >= 0).all()
    except (TypeError, ValueError):
        good = False
    if not good:
        raise BadSetting(f"The ranks of the policy {name} are no table of {budgets.shape} numbers from 0 up.")
    return Policy(name, ranks, budgets, method.cap, about)


def read_stored(path: Path, model: Model) -> Policy:
    """The policy in a file of the fitted state. Errors: BadSetting."""
    try:
        return read_policy(path.read_text(encoding="utf-8"), model, path.stem)
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"The policy {path.stem} cannot be read ({error}): calibrate it again.") from error


def stored_policies(context: Context, model: Model) -> list[dict]:
    """The policies stored for a model as plain data: `name total cap tokens texts`, or why one is unusable."""
    listed = {}
    for path in context.stored(model, f"{FOLDER}/*.json"):
        if NAME.fullmatch(path.stem) and path.stem not in listed:
            try:
                listed[path.stem] = facts(read_stored(path, model))
            except AnalysisError as error:
                listed[path.stem] = {"name": path.stem, "error": str(error)}
    return list(listed.values())


def facts(policy: Policy) -> dict:
    """What every page says of a policy."""
    about = {name: policy.about[name] for name in (*FACTS, "corpus", "passes") if name in policy.about}
    return {"name": policy.name, "total": int(policy.budgets.sum()), "cap": int(policy.cap), **about}


def store_policy(context: Context, model: Model, policy: Policy) -> tuple[Path, list[str]]:
    """Store a policy with its ranks and how it was made; runs that used an earlier one of this name go to the trash.
    Returns its place, and sentences that say so."""
    path = policy_path(context, model, policy.name)
    make_folder(path.parent)
    stored = {**policy.about, **policy.integers, "ranks": policy.ranks.tolist()}
    stored |= {"format": POLICY_FORMAT, "method": "csa"}
    write_json(path, stored | {"model": model.name, "revision": model.revision})
    return path, context.forget("policy", policy.name, model)


def named(policy: Policy) -> list[str]:
    """Words that tell a policy from others in a label: its name unless it is the default one, and by hand its keys."""
    words = [] if policy.name == DEFAULT else [policy.name]
    if policy.by_hand:
        mark = text_hash(str(policy.integers["policy"]))[:4]
        words.append(f"with {int(policy.budgets.sum()):,} keys ({mark})")
    return words


@record
class ImportedPolicy(Answer):
    """A policy that was imported."""

    policy: dict = doc("its facts")
    budgets: list[list[int]] = doc("[layer][head]: keys that a head may read")
    cap: int = doc("keys that a head may read at most")
    path: str = doc("where it is stored")
    notes: list[str] = doc("stored runs that used an earlier one of this name")


def import_policy(request: ImportPolicy, *, context: Context) -> ImportedPolicy:
    """Store an uploaded policy, the text of a JSON file or `policy` read from one, under a name, once it was checked
    against the model. Errors: BadSetting, with both shapes where the policy is another model's, and for fewer keys than
    the floor of all heads."""
    lm = context.model(request.model)
    content = context.text(request.text)[1] if request.policy is None else request.policy
    uploaded = read_policy(content, lm, request.name)
    total, floor = int(uploaded.budgets.sum()), FLOOR * uploaded.budgets.size
    if total < floor:
        raise BadSetting(
            f"The policy holds {total:,} keys, below the floor: {uploaded.budgets.size:,} heads need at least {FLOOR} "
            f"each, {floor:,} in all."
        )
    about = {key: uploaded.about[key] for key in FACTS if key in uploaded.about}
    imported = replace(uploaded, about=about | {"corpus": "uploaded"})
    path, notes = store_policy(context, lm, imported)
    return ImportedPolicy(
        policy=facts(imported),
        budgets=imported.budgets.tolist(),
        cap=int(imported.cap),
        path=str(path),
        notes=notes,
        protocol=protocol("import-policy", lm, request.text or None, policy=request.name),
    )
