"""The pages that look at what a model reads: their state in the address, beside the fields of commands."""

from dataclasses import dataclass

from analysis.commands.groups import Pairs
from analysis.declaration import field
from app.selection.patterns import CORPUS, NAME

TOUR_STEPS = {"token": "A token", "head": "A head", "pair": "A far pair", "sharpen": "Sharpen", "cut": "Cut to 10%"}
STATISTICS = (  # of a head: the columns of the verb `statistics`
    "far_peaks",
    "entropy",
    "max_prob",
    "top_p_rank",
    "first_token_mass",
    "window_mass",
    "mean_distance",
    "previous_token",
    "induction",
)
OWN_STATISTICS = ("sink_mass", "entry_mass", "gate", "selected_mass")  # of models that have a thing of this kind
# What takes a head's place.
ABLATION_WAYS = {"zero": "Zero", "mean": "Its mean", "resample": "Another position"}
HEAD_TABS = {  # of the card of a head
    "text": "Text",
    "why": "Why",
    "pattern": "Pattern",
    "sharpness": "Sharpness",
    "many": "Many texts",
    "numbers": "Numbers",
}
FINDERS = (5, 10, 20)  # rows of the finder
GROUP_MEASURES = {"share": "Largest group's share by layer", "confidence": "Confidence by layer"}
GROUP_VIEWS = ("PCA", "UMAP")
# Tokens between query and key.
PAIR_DISTANCES = (16, 32, 64, 128, 256, 512, 1024)
PAIR_TOPS = (20, 50, 100, 200)  # rows of the table
PAIR_KINDS = ("copy", "induction", "same word", "same group")


@dataclass(frozen=True)
class LookControls:
    """What a model reads, page by page."""

    # Start.
    start_beside: str | None = field(None, options=("text", "model"), label="beside the text")
    start_more: bool = field(False, label="details of the text")
    # The 60-second tour.
    step: str | None = field(None, options=tuple(TOUR_STEPS), label="step of the tour")
    # Attention heads.
    heads_evidence: bool = field(False)
    alike: bool = field(False, label="heads like this one")
    alike_all: bool = field(False, label="choice of windows")
    named: bool = field(False, label="names of heads")
    over_texts: bool = field(False, label="a head over many texts")
    heads_corpus: str | None = field(None, pattern=CORPUS, label="choice of texts")
    without: bool = field(False, label="what is lost without a head")
    without_by: str | None = field(None, options=tuple(ABLATION_WAYS))
    without_all: bool = field(False, label="choice of windows")
    without_first: bool = field(False, label="first-token choice")
    statistic: str = field(STATISTICS[0], options=(*STATISTICS, *OWN_STATISTICS))
    heads_shown: str = field("map", options=("map", "scatter"), label="map or scatter")
    heads_across: str = field("entropy", options=(*STATISTICS, *OWN_STATISTICS), label="statistic across")
    heads_colour: str = field("layer", options=("layer", *STATISTICS, *OWN_STATISTICS), label="statistic in colour")
    order: str | None = field(None, options=("highest", "lowest"))
    finder: int = field(10, options=tuple(FINDERS))
    why_key: int | None = field(None, low=0, high=1_000_000, label="the key that is asked about")
    tile: str | None = field(None, pattern=r"[0-9]{1,7}\.[0-9]{1,7}", label="exact tile")
    beside: str | None = field(None, options=("head", "text", "model"))
    other_head: str | None = field(None, pattern=r"[0-9]{1,4}\.[0-9]{1,4}", label="second head")
    head_tab: str | None = field(None, options=tuple(HEAD_TABS), label="part of the card")
    # Token groups.
    measure: str = field("share", options=tuple(GROUP_MEASURES))
    view: str = field("PCA", options=tuple(GROUP_VIEWS))
    other: str | None = field(None, pattern=NAME, label="second router")
    groups_more: bool = field(False, label="details of the groups")
    groups_controls: bool = field(False, label="controls of the groups")
    groups_beside: bool = field(False, label="choice of a second router")
    groups_fit: bool = field(False, label="fit of a router")
    # Long-range pairs.
    pair: str | None = field(None, pattern=r"([0-9]{1,4}\.){2}[0-9]{1,7}\.[0-9]{1,7}")
    distance: int = field(Pairs.min_distance, options=tuple(PAIR_DISTANCES), label="smallest distance")
    kind: str | None = field(None, options=tuple(PAIR_KINDS), label="kind of pairs")
    pairs_beside: str | None = field(None, options=("text", "model"), label="beside the pairs")
    top: int = field(Pairs.top, options=tuple(PAIR_TOPS), label="number of pairs")
    pairs_filters: bool = field(False, label="filters of the links")
    pairs_more: bool = field(False, label="details of the links")
