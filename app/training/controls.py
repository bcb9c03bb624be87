"""Train a router: what of it stands in the URL."""

from app.selection.control import CORPUS, NAME, Control, matching, number, one_of, whole

TABS = {
    "train": "Train",
    "collapse": "Routing collapse",
    "balance": "Balance by hand",
    "causality": "Causality check",
    "ablations": "Ablations",
}
PHASES = {1: "Phase 1: the router alone", 2: "Phase 2: the model with it"}
GATES = ("log", "literal", "centred")
BALANCES = ("sinkhorn", "softmax")
READINGS = ("soft", "straight_through", "hard")  # the last one only in phase 2
ROWS = {"two": "Softmax and Sinkhorn", "all": "All rows of table 8"}
MEASURES = {  # what is followed over the steps -> (its short name, the axis)
    "share": ("Largest share", "largest group's share of the tokens"),
    "centroid_cosine": ("A: centroids", "A: mean cosine of two centroids"),
    "drift": ("B: hidden states", "B: drift of the hidden states (1 − cosine)"),
    "start_share": ("B: old router", "B: largest share, seen by the router of the start"),
    "rank": ("C: projection", "C: effective rank of the routing vectors"),
}
TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of a router

CONTROLS = {
    "evidence": Control(one_of(*TABS), "train", "part of the page"),
    "train_corpus": Control(matching(CORPUS), name="corpus"),
    "train_phase": Control(one_of(*PHASES), 1),
    "train_groups": Control(whole(), 8),
    "train_top": Control(whole(), 1),
    "train_steps": Control(whole(6), 100),
    "train_window": Control(whole(), 16),
    "train_sinks": Control(whole(), 4),
    "train_rate": Control(number, 1e-3),
    "train_base_rate": Control(number, 1e-4),
    "train_tokens": Control(whole(6), 1024),
    "train_gate": Control(one_of(*GATES), "log"),
    "train_balance": Control(one_of(*BALANCES), "sinkhorn"),
    "train_reading": Control(one_of(*READINGS), "soft"),
    "train_temperature": Control(number, 0.1),
    "train_iterations": Control(whole(), 10),
    "train_size": Control(whole(), 16),
    "train_label": Control(matching(r"[a-z0-9]{1,16}"), "mine"),
    "train_seed": Control(whole(), 0),
    "collapse_rows": Control(one_of(*ROWS), "two"),
    "collapse_measure": Control(one_of(*MEASURES), "share"),
    "balance_temperature": Control(one_of(*TEMPERATURES), 0.1),
    "balance_iterations": Control(whole(), 10),
    "ablation": Control(matching(NAME), name="study"),
}
