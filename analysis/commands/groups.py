"""Learned groups of tokens (Focus)."""

from typing import Any

from ..declaration import field
from ..declaration.command import OfModel, OfText, layer, long_text, router, seed


class Groups(OfText):
    """What the learned groups hold in a text (Focus, section 5)."""

    place = "groups.contents:groups"
    page = "/token-groups"
    readings = 0.5
    served = {"shuffled": False, "seed": 0}

    router: str = router()
    seed: int = seed()
    shuffled: bool = field(True, "also read the text with its tokens shuffled, as a control")
    long_text: str = long_text()


class Umap(OfText):
    """The routing vectors of a layer on a map."""

    place = "groups.contents:umap"
    page = "/token-groups"

    router: str = router()
    layer: int = layer()
    seed: int = seed()
    long_text: str = long_text()


class Pairs(OfText):
    """The strongest far-apart pairs of one group, with null controls."""

    place = "groups.pairs:pairs"
    page = "/long-range-pairs"
    version = 2
    readings = 1.4
    served = {"shuffled": False, "seed": 0, "layer": None, "group": None, "head": None, "content": True}
    looks = True

    router: str = router()
    min_distance: int = field(128, "fewest tokens between query and key", control="distance")
    top: int = field(100, "number of pairs to list", control="top")
    layer: int | None = field(None, "show only this layer", control="layer")
    group: int | None = field(None, "show only this group", control="group")
    head: int | None = field(None, "show only this head", control="head")
    content: bool = field(
        True, "", control="content", label="content words", flags={False: ("--all-words", "keep function words too")}
    )
    seed: int = seed()
    shuffled: bool = field(True, "also read the text with its tokens shuffled, as a control")
    long_text: str = long_text()


class Compare(OfText):
    """Agreement of two routers on which tokens belong together, after their groups are matched."""

    place = "groups.compare:compare"
    page = "/token-groups"

    router: str = router()
    other: str = field("k8-top2", "the router to compare with")
    other_model: str = field("", "the model of the other router (default: the same model)")
    seed: int = seed()
    long_text: str = long_text()


class GroupControls(OfText):
    """Groups layer by layer beside random centroids and k-means (Focus, section 5)."""

    place = "groups.contents:group_controls"
    page = "/token-groups"

    router: str = router()
    seed: int = seed()
    long_text: str = long_text()


class Balance(OfText):
    """How Sinkhorn balances the groups of a text, step by step."""

    place = "groups.balance:balance"
    page = "/train-a-router"

    router: str = router()
    temperature: float = field(0.1, "temperature of the assignment to groups", control="balance_temperature")
    iterations: int = field(10, "number of Sinkhorn iterations", control="balance_iterations", low=0, high=1000)


class FitRouter(OfModel):
    """A Focus router without training, in seconds."""

    place = "groups.routers:fit_router"
    page = "/token-groups"
    version = 2
    changes = True

    groups: int = field(8, "number of groups K", low=1, high=64)
    top: int = field(1, "number of groups each token belongs to", low=1, high=64)
    window: int = field(128, "number of recent tokens that are always read", low=1, high=1 << 20)
    seed: int = seed()
    measure: bool = field(
        False, "also measure perplexity on the bundled story: dense attention, this router, random centroids"
    )


# Settings of a training that the Focus paper prints as its own (sections 2 and 3.1); sinks and a gate that sharpens are
# of this project.
AS_PRINTED: dict[str, Any] = {
    "groups": 4,
    "top": 2,
    "window": 128,
    "n_sink": 0,
    "length": 1024,
    "gate": "literal",
    "sharpest": 1.0,
}


# What may keep one group from taking all tokens (section 4; from the third on the rows of table 8, Sinkhorn beside it).
# The paper gives none of the numbers.
_SOFT_LOSSES: dict[str, Any] = {"balance": "softmax", "balance_weight": 0.01, "entropy_weight": 0.01}
AGAINST_COLLAPSE: dict[str, dict[str, Any]] = {
    "softmax": {"balance": "softmax"},
    "balance loss": {"balance": "softmax", "balance_weight": 0.01},
    "entropy and balance loss": _SOFT_LOSSES,
    "stop-gradient on inputs": {"balance": "softmax", "detach": True},
    "EMA centroids": {"balance": "softmax", "detach": True, "ema": 0.99},
    "recluster every 100 steps": {"balance": "softmax", "recluster_every": 100},
    "balance weight x5": _SOFT_LOSSES | {"balance_weight": 0.05},
    "sinkhorn": {},
    "sinkhorn with 50 iterations": {"iterations": 50},
}


class TrainRouter(OfModel):
    """Training of a Focus router, the model frozen; resumes when stopped."""

    place = "training.train_router:train_focus_router"
    page = "/train-a-router"
    version = 2
    changes = True
    exclusive = True

    corpus: str = field("", "a folder of texts")
    steps: int = field(100, "number of training steps", former=300, control="train_steps", low=1, high=1_000_000)
    groups: int = field(8, "number of groups K", control="train_groups", low=1, high=64)
    top: int = field(1, "number of groups each token belongs to", control="train_top", low=1, high=64)
    window: int = field(16, "number of recent tokens that are always read", control="train_window", low=1, high=1 << 20)
    n_sink: int = field(4, "number of first tokens that are always read", control="train_sinks", low=0, high=64)
    rate: float = field(0.001, "learning rate", control="train_rate")
    tokens_per_step: int = field(
        1024, "tokens in one training step", former=2048, control="train_tokens", low=2, high=1 << 20
    )
    seed: int = seed("train_seed")
    output: str | None = field(None, "file or folder to write")
    phase: int = field(
        1, "1 trains the router, 2 trains a copy of the model with it", control="train_phase", options=(1, 2)
    )
    base_rate: float = field(0.0001, "learning rate of the model in phase 2", control="train_base_rate")
    reading: str = field(
        "soft",
        "how the gate is applied: soft, straight_through, or hard (phase 2 only)",
        control="train_reading",
        options=("soft", "straight_through", "hard"),
    )
    gate: str = field(
        "log", "form of the gate: log, literal or centred", control="train_gate", options=("log", "literal", "centred")
    )
    balance: str = field(
        "sinkhorn",
        "how group sizes are balanced: sinkhorn or softmax",
        control="train_balance",
        options=("sinkhorn", "softmax"),
    )
    temperature: float = field(0.1, "temperature of the assignment to groups", control="train_temperature")
    iterations: int = field(10, "number of Sinkhorn iterations", control="train_iterations", low=0, high=1000)
    d_s: int = field(16, "dimensions of the routing vectors", control="train_size", low=1, high=4096)
    similarity: str = field(
        "dot",
        "scores of tokens and centroids: dot, or cosine, which leaves lengths out",
        control="train_similarity",
        options=("dot", "cosine"),
    )
    length: int = field(1024, "tokens in a sequence of the training", control="train_length", low=2, high=1 << 20)
    gate_sharpness: float | None = field(
        None, "sharpness of the gate, lambda (default: 20 * top)", control="train_sharpness", low=0, high=1e6
    )
    gate_offset: float | None = field(
        None, "offset of the gate, b (default: 1 / (4 * top))", control="train_offset", low=-1, high=1
    )
    sharpest: float = field(
        3.0,
        "times its own to which the gate's sharpness rises over the last 30% of the steps; 1 leaves it",
        control="train_sharpest",
        low=1,
        high=1000,
    )
    balance_weight: float = field(
        0.0, "weight of the balance loss (table 8)", control="train_balance_weight", low=0, high=1e3
    )
    entropy_weight: float = field(
        0.0, "weight of the entropy loss (table 8)", control="train_entropy_weight", low=0, high=1e3
    )
    detach: bool = field(False, "no gradient from the router to its inputs (table 8)", control="train_detach")
    ema: float = field(
        0.0, "centroids follow the mean of their tokens with this decay (table 8)", control="train_ema", low=0, high=1
    )
    recluster_every: int = field(
        0,
        "new centroids from k-means every so many steps; 0 never (table 8)",
        control="train_recluster",
        low=0,
        high=1_000_000,
    )
    grouped_layers: list[int] | None = field(
        None, "layers whose tokens are in groups; in the others they read everything (default: all)", low=0, high=9_999
    )
    per_head: bool = field(
        False, "a router for every key-value head in the place of one for all heads", control="train_per_head"
    )
    label: str = field("", "added to the router's name, to tell it from other routers")
