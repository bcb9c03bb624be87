"""The pages of evidence: their state in the address, beside the fields of commands."""

from dataclasses import dataclass

from analysis.commands.groups import Balance, TrainRouter
from analysis.declaration import field
from analysis.papers import PAPERS
from analysis.papers.ours import STATES
from app.selection.patterns import CORPUS, HASH, NAME

TRAIN_TABS = {
    "train": "Train",
    "collapse": "Routing collapse",
    "balance": "Balance by hand",
    "causality": "Causality check",
    "ablations": "Ablations",
}
PHASES = {1: "Phase 1: the router alone", 2: "Phase 2: the model with it"}
COLLAPSE_ROWS = {"two": "Softmax and Sinkhorn", "all": "All rows of table 8"}
COLLAPSE_MEASURES = {  # what is followed over the steps -> (its short name, the axis)
    "share": ("Largest share", "largest group's share of the tokens"),
    "centroid_cosine": ("A: centroids", "A: mean cosine of two centroids"),
    "drift": ("B: hidden states", "B: drift of the hidden states (1 − cosine)"),
    "start_share": ("B: old router", "B: largest share, seen by the router of the start"),
    "rank": ("C: projection", "C: effective rank of the routing vectors"),
}
ROUTER_TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of a router


@dataclass(frozen=True)
class EvidenceControls:
    """Evidence, page by page."""

    # Train a router.
    evidence: str = field("train", options=tuple(TRAIN_TABS), label="part of the page")
    train_corpus: str | None = field(None, pattern=CORPUS, label="corpus")
    train_label: str = field("mine", pattern="[a-z0-9]{1,16}")
    train_seed: int = field(TrainRouter.seed, high=9_999)
    train_layers: str | None = field(None, pattern="[0-9, ]{1,200}", label="layers with groups")
    collapse_rows: str = field("two", options=tuple(COLLAPSE_ROWS))
    collapse_measure: str = field("share", options=tuple(COLLAPSE_MEASURES))
    balance_temperature: float = field(Balance.temperature, options=tuple(ROUTER_TEMPERATURES))
    ablation: str | None = field(None, pattern=NAME, label="study")
    # Papers vs measured.
    paper: str = field(next(iter(PAPERS)), options=tuple(PAPERS))
    paper_state: str = field("all", options=("all", *STATES))
    paper_row: int | None = field(None, high=9_999)
    papers_findings: bool = field(False, label="findings about the papers")
    # Runs.
    run: str | None = field(None, pattern=HASH)
    run_other: str | None = field(None, pattern=HASH, label="second run")
    runs_find: str = field("", pattern=r"[^\x00-\x1f\x7f\ud800-\udfff]{0,80}", label="search")
    runs_made: str | None = field(None, pattern="[a-z][a-z0-9-]{0,39}", label="kind of run")
    runs_beside: bool = field(False, label="comparison of runs")
    runs_pinned: bool = field(False, label="filter")
    runs_table: str | None = field(None, pattern="[a-z_]{1,40}", label="table")
    runs_column: str | None = field(None, pattern="[A-Za-z0-9_. %()-]{1,60}", label="column")
