"""Routing to buckets of keys (GWR)."""

from collections.abc import Mapping
from typing import Any

from ..declaration import field
from ..declaration.command import HEADS, SMALLEST, OfModel, OfText, OfTexts, Shape, head, layer, long_text, part, seed

# Indexers that can be fitted beside the routers; the last one is a null, which learns the targets of other documents.
INDEXERS = ("dsa", "glm", "qsa", "m3", "seer", "moba", "low_rank", "dsa_shuffled")
# What a fit takes beside reading its texts, in readings of a token as measured on the bundled model (48 heads): of the
# MLP for each token, and of an indexer for each token of a prompt, because as many steps train it on any text.
OF_MLP = 1.2
OF_INDEXER = {"dsa": 5, "glm": 5, "qsa": 5, "m3": 6, "seer": 4, "dsa_shuffled": 5}
# Of any indexer, for each token: its targets, and its test.
LOOKED_AT = 0.1
# Tokens of a prompt unless said otherwise, where the model reads as many.
LENGTH = 2048
# Training steps of an indexer at most.
STEPS = 200
# Characters that surely hold a token.
SPARE = 8


def whole(control: str) -> Any:
    """The field of what recall is a share of."""
    about = "what recall is a share of: far, the attention on far keys, or all of a query's, near keys too"
    return field("far", about, options=("far", "all"), control=control, label="share that recall is of")


class Route(OfTexts):
    """Recall of bucket routers, calibrated on the first half of the documents, tested on the rest (GWR)."""

    place = "routing.route:route"
    page = "/routing?route_tab=fit"
    version = 5
    changes = True
    exclusive = True

    corpus: str = field("", "a folder of texts, instead of at least six text files")
    heads: str = field("all", "all, or a list of layer.head such as 2.0,7.0", control="route_heads")
    min_distance: int = field(
        64,
        "fewest tokens between query and key",
        control="route_distance",
        label="minimum distance",
        low=1,
        high=1 << 20,
    )
    sinks: int = field(0, "number of first keys left out (stored: 0 and 4)")
    buckets: int | None = field(None, "number of buckets C (default: length / 32)", control="route_buckets")
    length: int | None = field(
        None, "tokens in a prompt (default: 2048 or the model's context)", control="route_length"
    )
    prompts: int = field(
        12, "number of prompts on each side on which bucket routing is measured", control="route_prompts"
    )
    grid: bool = field(False, "also measure distances 16, 64, 256 and 1024, with and without sinks")
    distances: list[int] | None = field(None, "also measure these minimum distances, with and without sinks")
    recall_of: str = whole("route_fit_recall_of")
    own: bool = field(False, "also give whitening and geometric routing buckets of their own", control="route_own")
    mlp: bool = field(True, "also fit the learned router", control="route_mlp")
    optimiser: str = field(
        "adam",
        "what trains it: adam, stopped at its best, or sgd over 50 epochs (GWR, section 4.1)",
        control="route_optimiser",
        options=("adam", "sgd"),
    )
    kinds: list[str] | None = field(
        None, f"also fit these indexers and keep them for the method indexer: {', '.join(INDEXERS)}", options=INDEXERS
    )
    index_bytes: int = field(32, "bytes that an indexer caches of a token in a layer", low=4, high=1024)
    store: bool = field(False, "keep buckets, routers and curves in the fitted state")
    visited: float | None = field(None, "number of buckets a query visits (default: C / 32)")
    work: str | None = field(None, "folder of intermediate results to continue from (default: beside the output)")
    seed: int = seed("route_seed")

    @classmethod
    def workload(cls, arguments: Mapping[str, Any], tokens: int, shape: Shape = SMALLEST) -> int:
        """Readings of a token: of the texts, and what training the MLP and the indexers of all layers takes."""
        kinds = arguments.get("kinds") or []
        asked = str(arguments.get("heads") or "all")
        heads = shape.beside if asked == "all" else len(asked.split(",")) / HEADS / shape.pace
        mlp = OF_MLP * heads * arguments.get("mlp", True)
        trained = shape.beside * (arguments.get("length") or LENGTH) * sum(OF_INDEXER.get(kind, 0) for kind in kinds)
        return round(max(int(tokens), 1) * (1 + mlp + LOOKED_AT * len(kinds)) + trained)


class RouteAt(OfModel):
    """Recall at any number of buckets, from the stored curves or on a text."""

    place = "routing.live:route_at"
    page = "/routing?route_tab=recall"
    version = 2

    visited: float | None = field(None, "number of buckets a query visits (default: C / 32)")
    min_distance: int | None = field(None, "fewest tokens between query and key")
    sinks: int | None = field(None, "number of first keys left out (stored: 0 and 4)")
    partition: str = field(
        "raw keys", "how buckets are made: raw keys, whitening or gwr_geometric", control="route_partition"
    )
    recall_of: str = whole("route_recall_of")
    text: str = field("", "test on this text (default: use the stored curves)")
    seed: int = seed()
    made: str = field("", "date of the stored curves to use")


class RouteVisit(OfText):
    """The buckets that one query of a text visits, or the keys that an indexer offers, with its real attention."""

    place = "routing.live:route_visit"
    page = "/routing?route_tab=token"
    version = 2
    looks = True

    position: int | None = field(None, "position of the query (default: the last of the first window)")
    layer: int = layer()
    head: int = head()
    router: str = field(
        "gwr_linear",
        "name of a bucket router, or of an indexer that was fitted",
        option="--bucket-router",
        control="route_router",
    )
    visited: int = field(2, "number of buckets a query visits, or of keys (default: C / 32)")
    min_distance: int = field(64, "fewest tokens between query and key")
    sinks: int = field(0, "number of first keys left out (stored: 0 and 4)")
    made: str = field("", "date of the stored curves to use")


class Reuse(OfText):
    """Do layers read the same keys? The overlap of their best keys on a text, and which should choose for the rest."""

    place = "routing.reuse:reuse"
    page = "/routing?route_tab=layers"
    passes = 1.0
    looks = True

    k: int = field(64, "best keys of each query that are compared", low=1, high=1 << 16)
    anchors: int = field(2, "layers that choose keys for those below them", low=1, high=256)
    part: int | None = part()
    long_text: str = long_text()


class RouteTime(OfText):
    """Time of one more token with bucket routing, against dense."""

    place = "speed.method:route_time"
    page = "/routing?route_tab=cost"
    exclusive = True

    router: str = field("gwr_linear", "name of a bucket router", option="--bucket-router")
    visited: int = field(2, "number of buckets a query visits (default: C / 32)")
    length: int | None = field(None, "tokens in the prompt (default: all that fits the model)")
    new_tokens: int = field(32, "number of tokens to generate", low=2, high=1024)
    repeats: int = field(5, "number of rounds, with dense and sparse in alternation", low=1, high=100)
