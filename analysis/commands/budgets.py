"""Key budgets per head (Calibrated Sparse Attention)."""

from typing import Any

from ..declaration import field
from ..declaration.command import Command, OfModel, OfText, OfTexts, long_text, seed, window


def policy() -> Any:
    """The field that names a policy of budgets."""
    return field(None, "policy of Calibrated Sparse Attention: a stored name, or JSON (default: the stored policy)")


def shares() -> Any:
    """The field of how many of the causal pairs are read, one row each."""
    return field(None, "shares of the causal pairs that are read (default: 1 to 0.02)")


def allowed(default: float, where: str) -> Any:
    """The field of what a cap may change."""
    about = f"largest allowed change of perplexity {where}, as a share unless judged says"
    return field(default, about, low=0, high=10)


def judged_by() -> Any:
    """The field of what a tolerance is of."""
    about = "what a tolerance is of: a rise, a change up or down, or a change in perplexity instead of a share"
    look: dict[str, Any] = {"control": "budget_judged", "label": "what a tolerance is of"}
    return field("rise", about, options=("rise", "change", "perplexity"), **look)


class Calibrate(OfTexts):
    """A budget of keys for every head, and the smallest cap that changes no position (Calibrated Sparse Attention)."""

    place = "budgets.calibrate:calibrate"
    page = "/kv-budgets?budgets=calibrate"
    version = 3
    changes = True
    repeated_by = ("caps",)

    against: list[str] | None = field(None, "texts to measure on (default: the second half of the texts)")
    window: int | None = window()
    tokens: int = field(16384, "most tokens on each side", control="budget_tokens", low=8, high=1 << 24)
    mass: float = field(0.9, "share of a head's attention that its rank must hold", control="budget_mass")
    min_pos: int = field(0, "first position that counts towards a rank", control="budget_min_pos", low=0, high=1 << 20)
    beta: float = field(
        1.0, "total key budget, as a multiple of the sum of the heads' ranks", control="budget_beta", low=0, high=1000
    )
    total: int | None = field(None, "total key budget of all heads, instead of --beta")
    reads: float | None = field(None, "give every method as many keys as this share of the causal pairs")
    shared: str = field(
        "ranks",
        "what the keys are shared out by: ranks, or ablation (the rise of the loss without a head)",
        control="budget_shared",
        label="way to share out the keys",
        options=("ranks", "ablation"),
    )
    floor: int = field(2, "fewest keys a head may read", control="budget_floor", low=0, high=1024)
    floored: str = field(
        "first",
        "when heads get it: first, so that the keys add up to the budget, or last, to those that were given fewer",
        control="budget_floored",
        label="time of the floor",
        options=("first", "last"),
    )
    caps: list[int] | None = field(None, "most keys a head may read, one or several (default: 32,64,128,256,512)")
    tolerance: float = allowed(0.01, "on average")
    tolerance_bin: float = allowed(0.02, "in the worst position bin")
    judged: str = judged_by()
    name: str = field("policy", "name under which the policy is stored")
    corpus: str = field("", "a folder of texts")
    seed: int = seed()
    output: str | None = field(None, "file or folder to write")


class CapSweep(OfTexts):
    """A policy under several caps, against dense attention by position, on texts it was not calibrated on."""

    place = "budgets.cap_sweep:cap_sweep"
    page = "/kv-budgets?budgets=cap"
    version = 3
    repeated_by = ("caps",)
    scores = True

    policy: dict | str | None = policy()
    caps: list[int] | None = field(None, "most keys a head may read, one or several (default: 32,64,128,256,512)")
    tolerance: float = allowed(0.01, "on average")
    tolerance_bin: float = allowed(0.02, "in the worst position bin")
    judged: str = judged_by()
    window: int | None = window()
    tokens: int = field(16384, "most tokens on each side")
    seed: int = seed()


class ReadsText(OfText):
    """One text with ever fewer keys by the ranks of a policy, token by token, and the key that the worst token lost."""

    place = "budgets.reads_text:reads_text"
    page = "/kv-budgets?budgets=reads"
    version = 3
    repeated_by = ("shares",)
    scores = True

    policy: str | None = policy()
    shares: list[float] | None = shares()
    window: int | None = window()
    long_text: str = long_text()
    seed: int = seed()


class Budgets(OfModel):
    """The budgets of a policy, with changes by hand, and what they read."""

    place = "budgets.edited:budgets"
    page = "/kv-budgets?budgets=map"
    version = 3

    policy: dict | str | None = policy()
    window: int | None = window()


class Calibrations(OfModel):
    """Agreement of two stored policies, for example from two corpora."""

    place = "budgets.edited:calibrations"
    page = "/kv-budgets?budgets=calibrate"

    policy: str = field("policy", "name of a stored policy")
    other: str = field("", "the router to compare with")
    total: int | None = field(None, "total key budget of all heads, instead of --beta")


class LostKeys(OfText):
    """Keys that a token lost to a policy: for the token hurt most, or for one you name."""

    place = "budgets.lost_keys:lost_keys"
    page = "/kv-budgets?budgets=reads"
    scores = True

    policy: dict | str | None = policy()
    cap: int | None = field(None, "most keys a head may read (default: the policy's cap)")
    position: int | None = field(None, "position of the token (default: the token that is hurt most)")
    window: int | None = window()
    long_text: str = long_text()
    top: int = field(20, "number of keys to list", low=1, high=1000)


class ImportPolicy(OfModel):
    """A policy of budgets from a JSON file, checked against the model and stored."""

    place = "budgets.policies:import_policy"
    page = "/kv-budgets?budgets=map"
    changes = True

    text: str = field("", "the file that holds the policy", word="[FILE.json]")
    name: str = field("uploaded", "name under which the policy is stored")
    policy: dict | list | None = field(None, "the policy itself, as JSON")


class TopkCost(Command):
    """Speed of the top-k kernels on this machine, against dense attention and the masked pass (Calibrated Sparse
    Attention)."""

    place = "speed.topk_cost:topk_cost"
    page = "/kv-budgets?budgets=cost"
    exclusive = True

    lengths: list[int] | None = field(None, "lengths in tokens, one or several")
    keys: int = field(64, "number of keys every query reads", low=1, high=1 << 20)
    heads: int = field(8, "number of query heads", low=1, high=256)
    head_dim: int = field(64, "dimensions of a head", low=1, high=512)
    kv_heads: int | None = field(None, "number of key-value heads (default: one for each query head)", low=1, high=256)
    repeats: int = field(5, "number of rounds, with dense and sparse in alternation", low=1, high=1000)
    seed: int = seed()
