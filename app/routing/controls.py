"""Routing: what of it stands in the URL."""

from app.selection.control import CORPUS, Control, matching, number, one_of, switch, whole

TABS = {
    "recall": "Recall",
    "closure": "Gap closure",
    "heads": "Heads",
    "token": "One token",
    "cost": "Cost and balance",
    "fit": "Your own texts",
}
ON = {"stored": "held-out documents", "text": "this text"}
PARTITIONS = {
    "raw keys": "raw keys, one for all routers",
    "whitening": "whitened keys, whitening's own",
    "gwr_geometric": "matched keys, GWR geometric's own",
}
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
HEADS = r"all|[0-9]{1,4}:[0-9]{1,4}(,[0-9]{1,4}:[0-9]{1,4}){0,63}"

CONTROLS = {
    "route_l": Control(number, name="number of buckets"),  # that a query visits
    "route_distance": Control(whole(7), 64, "minimum distance"),
    "route_sinks": switch(False),  # left out
    "route_partition": Control(one_of(*PARTITIONS), "raw keys", "kind of buckets"),
    "route_on": Control(one_of(*ON), "stored", "choice of what is tested"),
    "route_tab": Control(one_of(*TABS), "recall", "part of the page"),
    "route_measure": Control(
        one_of("over_prior", "over_kmeans", "gap_closure", *ROUTED), "gwr_linear", "measure on the map"
    ),
    "route_router": Control(one_of(*ROUTED), "gwr_linear", "bucket router"),
    "route_corpus": Control(matching(CORPUS), name="choice of texts"),
    "route_buckets": Control(whole(5), name="number of buckets"),
    "route_heads": Control(matching(HEADS), "all", "choice of heads"),
    "route_own": switch(False),
    "route_mlp": switch(True),
    "route_seed": Control(whole(), 0),
}
