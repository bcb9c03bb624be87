"""The pages that let a model read less: their state in the address, beside the fields of commands."""

from dataclasses import dataclass

from analysis.commands.routing import Route, RouteAt, RouteVisit
from analysis.declaration import field
from app.selection.patterns import CORPUS

BUDGET_TABS = {  # what is folded under the map
    "reads": "Where it breaks: positions and words",
    "hand": "Change it by hand",
    "cap": "Smallest cap",
    "calibrate": "Calibrate on your own texts",
    "cost": "Cost: time and memory",
}
READ_SHARES = (1.0, 0.5, 0.25, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02)  # of the causal pairs
POLICY = r"[a-z0-9][a-z0-9-]{0,31}"
EDIT_WHERE = {
    "cells": "Chosen heads",
    "layer": "Their layer",
    "head": "Their place in every layer",
    "all": "Every head",
}
EDIT_HOW = {"scale": "Scale", "set": "Set", "pin": "Pin"}
BUDGET_WAYS = {  # how many keys there are in all -> (its words, label of the number, lowest, highest, step)
    "stored": ("as calibrated", "", 0.0, 0.0, 0.0),
    "beta": ("beta × the sum of the ranks", "beta", 0.05, 1000.0, 0.5),
    "keys_per_head": ("keys per head on average", "Keys per head", 2.0, 1e6, 16.0),
    "reads": ("a share of the causal pairs", "Per cent", 0.1, 100.0, 1.0),
}
BUDGET_BARS = {"change": "Change against dense", "perplexity": "Perplexity"}
SHARED_BY = {"ranks": "ranks", "ablation": "the loss without a head"}
FLOORED = {"first": "first, the rest shared out", "last": "last, where it is missing"}
JUDGED = {"rise": "a rise, in %", "change": "up or down, in %", "perplexity": "up or down, in perplexity"}
SHARED_OUT = {"beta": "beta × the sum of ranks", "total": "keys in all", "reads": "share of the reads"}
SOFTMAX = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5)  # temperatures of attention
SHARPNESS = {  # column -> (title, glossary term, log axis)
    "effective_support": ("Effective support, keys", "effective support", True),
    "entropy": ("Entropy, nats", "entropy (attention)", False),
    "max_prob": ("Largest probability", "largest probability", False),
}
FOCAL_STUDIES = {  # choice -> (study, what it is called, the question)
    "temperatures": (
        "focal-temperatures",
        "Constant, learned, adapted",
        "Does training with a temperature help, from the start or later? Tables 1 and 2, figure 8a.",
    ),
    "limits": (
        "focal-limits",
        "Limits of a learned temperature",
        "How far may a learned temperature go? Figure 8b.",
    ),
    "scaling": (
        "focal-scaling",
        "Size, tokens, context",
        "Does it pay more with size, tokens or context? Figures 2 to 4.",
    ),
    "tasks": (
        "focal-tasks",
        "Long-context tasks",
        "Does a model trained with a temperature answer more from far? Figures 5 to 7.",
    ),
}
TEMPERATURE_TABS = {"token": "One token", "heads": "Every head", "text": "Perplexity"}
ROUTE_TABS = {  # what is folded under the curves
    "table": "Every router, with intervals and the paper's numbers",
    "closure": "Gap closure: from k-means to the trained router",
    "heads": "Head by head",
    "token": "One token in the text",
    "cost": "Cost and balance",
    "indexers": "Learned indexers: DSA, QSA, M3, SeerAttention, MoBA",
    "layers": "Do layers read the same keys?",
    "fit": "Your own texts",
}
ROUTE_ON = {"stored": "unseen texts", "text": "this text"}
PARTITIONS = {
    "raw keys": "raw keys, one for all routers",
    "whitening": "whitened keys, whitening's own",
    "gwr_geometric": "matched keys, GWR geometric's own",
}
RECALL_OF = {"far": "the far attention", "all": "all attention, near keys too"}
OPTIMISERS = {"adam": "Adam, stopped at its best", "sgd": "SGD, 50 epochs"}
ROUTED = (  # routers of buckets, the best possible first
    "oracle",
    "mlp",
    "gwr_linear",
    "gwr_linear_intercept",
    "static_prior",
    "recency",
    "kmeans",
    "gwr_geometric",
    "whitening",
    "random",
)
ROUTE_HEADS = r"all|[0-9]{1,4}[.:][0-9]{1,4}(,[0-9]{1,4}[.:][0-9]{1,4}){0,63}"


@dataclass(frozen=True)
class SparsifyControls:
    """What a model reads less, page by page."""

    # KV budgets.
    budgets: str = field("map", options=("map", *BUDGET_TABS, "query"), label="part of the page")
    budgets_evidence: bool = field(False)
    budget_policy: str = field("policy", pattern=POLICY, label="policy")
    budget_other: str | None = field(None, pattern=POLICY, label="second policy")
    budget_edits: str | None = field(None, pattern="[a-z0-9.~]{1,1500}", label="list of changes")
    budget_cells: str | None = field(None, pattern=r"[0-9]{1,6}(\.[0-9]{1,6}){0,299}", label="choice of heads")
    budget_keep: bool = field(True, label="choice to keep the total")
    budget_where: str = field("cells", options=tuple(EDIT_WHERE))
    budget_how: str = field("scale", options=tuple(EDIT_HOW))
    budget_factor: float = field(0.5)
    budget_keys: int = field(64, high=9_999_999)
    budget_cap: int | None = field(None, high=9_999_999, label="cap")
    budget_way: str = field("stored", options=tuple(BUDGET_WAYS), label="way to say how many keys there are")
    budget_size: float = field(1.0, label="number of keys")
    budget_bins: str = field("change", options=tuple(BUDGET_BARS))
    budget_reads: float = field(0.1, options=tuple(READ_SHARES), label="share of the reads")
    budget_token: int | None = field(None, high=9_999_999, label="marked token")
    budget_caps: str = field("32, 64, 128, 256, 512", pattern="[0-9kK, ]{1,80}", label="list of caps")
    budget_tolerance: float = field(1.0)
    budget_tolerance_bin: float = field(2.0)
    budget_texts: str | None = field(None, pattern=CORPUS, label="choice of texts")
    budget_by: str = field("beta", options=tuple(SHARED_OUT))
    budget_total: int = field(5000, high=999_999_999)
    budget_share: float = field(10.0)
    budget_sweep: bool = field(True)
    budget_name: str = field("mine", pattern=POLICY)
    # Softmax temperature.
    temperature_tab: str | None = field(None, options=tuple(TEMPERATURE_TABS))
    temperature_evidence: bool = field(False)
    softmax: float = field(0.4, low=0.1, high=2.0, label="softmax temperature")
    sharpness: str = field("effective_support", options=tuple(SHARPNESS), label="measure of sharpness")
    trained_with: str = field("temperatures", options=tuple(FOCAL_STUDIES), label="study")
    by_layer: str | None = field(None, pattern="[0-9.]{1,6}(~[0-9.]{1,6}){0,255}", label="temperatures of the layers")
    # Routing.
    route_l: float | None = field(None, label="number of buckets")
    route_sinks: bool = field(False)
    route_partition: str = field(RouteAt.partition, options=tuple(PARTITIONS), label="kind of buckets")
    route_on: str = field("stored", options=tuple(ROUTE_ON), label="choice of what is tested")
    route_tab: str = field("recall", options=("recall", *ROUTE_TABS), label="part of the page")
    route_measure: str = field(
        "gwr_linear", options=("over_prior", "over_kmeans", "gap_closure", *ROUTED), label="measure on the map"
    )
    route_router: str = field(RouteVisit.router, options=tuple(ROUTED), label="bucket router")
    route_corpus: str | None = field(None, pattern=CORPUS, label="choice of texts")
    route_buckets: int | None = field(None, high=99_999, label="number of buckets")
    route_heads: str = field(Route.heads, pattern=ROUTE_HEADS, label="choice of heads")
    route_indexers: str | None = field(None, pattern="[a-z0-9_~]{1,120}", label="choice of indexers")
    route_mlp: bool = field(Route.mlp, label="choice to train the MLP")
    route_seed: int = field(Route.seed, high=9_999)
    route_length: int | None = field(Route.length, low=8, high=9_999_999, label="length of a prompt")
    route_prompts: int = field(Route.prompts, low=1, high=4096, label="number of prompts")
    route_distances: str | None = field(None, pattern="[0-9, ]{1,80}", label="list of minimum distances")
