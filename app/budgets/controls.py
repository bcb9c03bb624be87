"""KV budgets: what of it stands in the URL."""

from app.selection.control import CORPUS, Control, matching, number, one_of, switch, whole

TABS = {
    "map": "Keys per head",
    "reads": "Where it breaks",
    "cap": "Smallest cap",
    "calibrate": "Calibrate",
    "cost": "Cost",
}
READS = (1.0, 0.5, 0.25, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02)  # of the causal pairs
POLICY = r"[a-z0-9][a-z0-9-]{0,31}"
WHERE = {"cells": "Chosen heads", "layer": "Their layer", "head": "Their place in every layer", "all": "Every head"}
HOW = {"scale": "Scale", "set": "Set", "pin": "Pin"}
WAYS = {  # how many keys there are in all -> (its words, label of the number, lowest, highest, step)
    "stored": ("as calibrated", "", 0.0, 0.0, 0.0),
    "beta": ("beta × the sum of the ranks", "beta", 0.05, 1000.0, 0.5),
    "keys_per_head": ("keys per head on average", "Keys per head", 2.0, 1e6, 16.0),
    "reads": ("a share of the causal pairs", "Per cent", 0.1, 100.0, 1.0),
}
BARS = {"change": "Change against dense", "perplexity": "Perplexity"}
SHARED_BY = {"ranks": "ranks", "ablation": "the loss without a head"}
SHARED_OUT = {"beta": "beta × the sum of ranks", "total": "keys in all", "reads": "share of the reads"}

CONTROLS = {
    "budgets": Control(one_of(*TABS, "query"), "map", "part of the page"),  # "query" was a tab: now it is evidence
    "budgets_evidence": switch(False),
    "budget_policy": Control(matching(POLICY), "policy", "policy"),
    "budget_other": Control(matching(POLICY), name="second policy"),
    "budget_edits": Control(matching(r"[a-z0-9.~]{1,1500}"), name="list of changes"),  # see budgets.edits
    "budget_cells": Control(  # layer * heads + head of each chosen one
        matching(r"[0-9]{1,6}(\.[0-9]{1,6}){0,299}"), name="choice of heads"
    ),
    "budget_keep": switch(True, "choice to keep the total"),
    "budget_where": Control(one_of(*WHERE), "cells"),  # the change that is being made
    "budget_how": Control(one_of(*HOW), "scale"),
    "budget_factor": Control(number, 0.5),
    "budget_keys": Control(whole(7), 64),
    "budget_cap": Control(whole(7), name="cap"),
    "budget_way": Control(one_of(*WAYS), "stored", "way to say how many keys there are"),
    "budget_size": Control(number, 1.0, "number of keys"),  # of budget_way, the share of the reads in per cent
    "budget_bins": Control(one_of(*BARS), "change"),
    "budget_reads": Control(one_of(*READS), 0.1, "share of the reads"),
    "budget_token": Control(whole(7), name="marked token"),
    "budget_caps": Control(matching(r"[0-9kK, ]{1,80}"), "32, 64, 128, 256, 512", "list of caps"),
    "budget_tolerance": Control(number, 1.0),  # per cent of perplexity
    "budget_tolerance_bin": Control(number, 2.0),
    "budget_texts": Control(matching(CORPUS), name="choice of texts"),
    "budget_mass": Control(number, 0.9),
    "budget_min_pos": Control(whole(7), 0),
    "budget_by": Control(one_of(*SHARED_OUT), "beta"),
    "budget_shared": Control(one_of(*SHARED_BY), "ranks", "way to share out the keys"),
    "budget_beta": Control(number, 1.0),
    "budget_total": Control(whole(9), 5000),
    "budget_share": Control(number, 10.0),  # per cent of the causal pairs
    "budget_floor": Control(whole(), 2),
    "budget_tokens": Control(whole(6), 16384),
    "budget_sweep": switch(True),
    "budget_name": Control(matching(POLICY), "mine"),
}
