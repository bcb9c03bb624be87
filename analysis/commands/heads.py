"""What the heads of a model read."""

from collections.abc import Mapping
from typing import Any

from ..declaration import field
from ..declaration.command import (
    SMALLEST,
    OfModel,
    OfText,
    OfTexts,
    Shape,
    head,
    layer,
    long_text,
    part,
    seed,
    without_first,
)

# Plain passes of `ablate` beside those without heads.
ESTIMATE = 4
# Heads whose exact passes follow its estimate.
EXACT = 8


class Statistics(OfText):
    """Entropy, rank, sink, window, distance and far reading of every head's attention, exact, with a label."""

    place = "heads.head:statistics"
    page = "/attention-heads"
    version = 3
    readings = 0.7
    served = {"mass": 0.9, "window": 128, "without_first": False}
    looks = True

    mass: float = field(0.9, "share of a head's attention that its rank must hold")
    window: int = field(128, "tokens that count as the window, the query included")
    without_first: bool = without_first()
    seed: int = seed()
    long_text: str = long_text()


class Head(OfText):
    """One head on a text: what a token reads, by distance and by query."""

    place = "heads.head:head"
    page = "/attention-heads"
    version = 2
    readings = 0.6
    served = {"part": 0}
    looks = True

    layer: int = layer()
    head: int = head()
    query: int | None = field(None, "position of the query in the window (default: the strongest far read)")
    rows: list[int] | None = field(None, "first and last query of the tile to show exactly")
    columns: list[int] | None = field(None, "first and last key of the tile to show exactly")
    top: int = field(20, "number of keys to list", low=1, high=1000)
    without_first: bool = without_first()
    mass: float = field(0.9, "share of a head's attention that its rank must hold")
    window: int = field(128, "tokens that count as the window, the query included")
    part: int = part()
    long_text: str = long_text()


class HeadTexts(OfModel):
    """Where in a corpus every head does what it does: queries of each tenth, tokens and pairs with lift."""

    place = "heads.texts:head_texts"
    page = "/attention-heads?over_texts=yes"
    readings = 0.7

    corpus: str = field("", "a folder of texts (default: the bundled samples)")
    tokens: int = field(16384, "tokens of the corpus to read, from all its texts alike", low=64, high=1 << 24)
    queries: int = field(2048, "number of queries drawn from them", low=10, high=1 << 16)
    seed: int = seed()


class Readers(OfText):
    """Who reads one token: each head's strongest later reader of it, and what all later tokens give."""

    place = "heads.readers:readers"
    page = "/"

    token: int = field(0, "number of the token in the text, counted from 0")
    top: int = field(100, "number of heads to list", low=1, high=1000)
    min_distance: int = field(1, "fewest tokens from the token to a later one that reads it", low=1)
    long_text: str = long_text()


class HeadTokens(OfText):
    """One head token by token: what each reads most, and which later tokens read it most."""

    place = "heads.readers:head_tokens"
    page = "/attention-heads"
    readings = 0.4
    served = {"part": 0}
    looks = True

    layer: int = layer()
    head: int = head()
    top: int = field(5, "number of keys and readers of each token", low=1, high=100)
    without_first: bool = without_first()
    part: int = part()
    long_text: str = long_text()


class HeadPreference(OfText):
    """Which distances one head prefers by its mean query alone, and how nearly one way its queries point."""

    place = "heads.preference:head_preference"
    page = "/attention-heads?head_tab=numbers"
    readings = 0.4
    passes = 1.0
    served = {"part": 0}
    looks = True

    layer: int = layer()
    head: int = head()
    part: int = part()
    long_text: str = long_text()


class Alike(OfText):
    """Heads that read like one head: the Jensen-Shannon likeness of their attention on a text."""

    place = "heads.alike:alike"
    page = "/attention-heads?alike=yes"
    readings = 0.6
    served = {"part": 0}
    looks = True

    layer: int = layer()
    head: int = head()
    top: int = field(10, "number of heads to list", low=1, high=1000)
    without_first: bool = without_first()
    part: int | None = part()
    long_text: str = long_text()


class Why(OfText):
    """Why a head reads a key: its score by who wrote both streams, by distance, and what it moved."""

    place = "heads.why:why"
    page = "/attention-heads?head_tab=why"
    version = 2
    readings = 0.4
    passes = 10.0
    looks = True

    layer: int = layer()
    head: int = head()
    query: int | None = field(None, "position of the query in the window (default: the strongest far read)")
    # A request's own `key` is its identity.
    key_token: int | None = field(
        None, "position of the key in the window (default: what the query reads most)", option="--key"
    )
    by: str = field(
        "mean", "what a writer's output becomes where it is removed: zero or mean", options=("zero", "mean")
    )
    part: int = part()
    long_text: str = long_text()
    seed: int = seed()


class Ablate(OfText):
    """Which head a text needs: what its loss is without each, estimated for all and exact for some."""

    place = "heads.ablate:ablate"
    page = "/attention-heads"
    version = 2
    readings = 0.0
    passes = 1.0
    gradient = True

    heads: str = field("top", "top, all, or a list of layer.head such as 3.6,2.1")
    by: str = field(
        "zero", "what a head's output becomes: zero, mean or resample", options=("zero", "mean", "resample")
    )
    exact: int = field(EXACT, "number of heads whose exact passes follow the estimate", low=1)
    part: int | None = part()
    long_text: str = long_text()
    seed: int = seed()

    @classmethod
    def workload(cls, arguments: Mapping[str, Any], tokens: int, shape: Shape = SMALLEST) -> int:
        """Passes over the text: the estimate with its gradient, all heads, and those without some."""
        heads, exact = arguments.get("heads") or "top", arguments.get("exact")
        if heads == "top":
            without = exact if isinstance(exact, int) and exact else EXACT
        elif heads == "all":
            without = shape.layers * shape.heads
        else:
            without = len(str(heads).split(","))
        return max(int(tokens), 1) * (ESTIMATE + without)


class Names(OfModel):
    """Names of heads by published definitions: previous token, induction, retrieval and others, with a null, confirmed
    by ablation or not."""

    place = "heads.names:names"
    page = "/attention-heads?named=yes"
    readings = 1.0
    passes = 15.0
    made_tokens = 3072

    sequences: int = field(6, "number of made texts of each kind", low=5, high=256)
    confirm: int = field(3, "heads of each name that are taken away", low=0, high=64)
    by: str = field(
        "zero", "what a head's output becomes: zero, mean or resample", options=("zero", "mean", "resample")
    )
    seed: int = seed()


class HeadCards(OfTexts):
    """Cards of heads: names with their proof, own words, statistics over texts, who explains what they read, in one
    JSON file a model."""

    place = "heads.cards:head_cards"
    page = "/attention-heads?head_tab=numbers"
    readings = 2.4
    passes = 40.0
    made_tokens = 3072

    heads: str = field("all", "all, or a list of layer.head such as 3.6,2.1")
    writers: str = field(
        "named", "heads whose writers are asked for: those with a name, all, none", options=("named", "all", "none")
    )
    output: str = field("", help="FILE.json to write")
    headvis: str = field("", help="a new folder to write too, which HeadVis opens as its data")
    seed: int = seed()


class ImportCards(OfModel):
    """Others' cards of heads from a file of `head-cards`, shown beside one's own."""

    place = "heads.cards:import_cards"
    changes = True

    table: str = field(help="what head-cards wrote", word="FILE.json")
