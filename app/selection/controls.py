"""Every value that can stand in the URL: its name, how its text is read, its default, and what a reader calls it.

A control's name is its key in the session, its widget's key and its name in the URL.
"""

from analysis.papers import PAPERS
from analysis.papers.ours import STATES
from app.selection.control import (
    Control,
    matching as _matching,
    number as _number,
    one_of as _one_of,
    to_url,
    whole as _whole,
)
from app.selection.names import NAMES

__all__ = ["CONTROLS", "NAMES", "Control", "to_url"]

HASH = r"[0-9a-f]{12}"
MODEL = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?"
DISTANCES = (16, 32, 64, 128, 256, 512, 1024)  # tokens between query and key
TOPS = (20, 50, 100, 200)  # rows of the pair table
CONTEXTS = tuple(1 << power for power in range(8, 21))  # tokens, 256 to 1,048,576
SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # answered at once
KEEPS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.33, 0.5, 0.75)  # fraction of the keys that is read
TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of a router
EVIDENCE = ("train", "collapse", "balance", "causality", "ablations")  # tabs of Train a router
PATHS = ("share", "centroid_cosine", "drift", "start_share", "rank")  # what is followed over the steps of a training
DTYPES = ("bfloat16", "float32", "float16")
STATISTICS = (  # of a head: the columns of the verb `statistics`
    "entropy", "max_prob", "top_p_rank", "first_token_mass", "window_mass", "mean_distance", "previous_token",
    "induction",
)  # fmt: skip
SOFTMAX = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5)  # temperatures of attention
ROUTED = (  # routers of buckets, the best possible first
    "oracle", "mlp", "gwr_linear", "gwr_linear_intercept", "static_prior", "recency", "kmeans", "gwr_geometric",
    "whitening", "random",
)  # fmt: skip
ROUTE_TABS = ("recall", "closure", "heads", "token", "cost", "fit")
TRAINED = ("temperatures", "limits", "scaling")  # what models were trained to find out
SHARPNESS = ("effective_support", "entropy", "max_prob")
BUDGETS = ("map", "reads", "cap", "calibrate", "query", "cost")  # tabs of KV budgets
READS = (1.0, 0.5, 0.25, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02)  # of the causal pairs
POLICY = r"[a-z0-9][a-z0-9-]{0,31}"
PROBES = ("uuid_needle", "several_needles", "json", "passages", "frequent_words", "labels")  # long-context tests
REACHES = tuple(1 << power for power in range(7, 18))  # tokens of their longest prompt

CONTROLS = {
    "model": Control(_matching(MODEL), "demo"),
    "text": Control(_matching(HASH)),
    "router": Control(_matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")),
    "long_text": Control(_one_of("windows", "first"), "windows"),
    "layer": Control(_whole),
    "group": Control(_whole),
    "head": Control(_whole),
    "pair": Control(_matching(r"([0-9]{1,4}\.){2}[0-9]{1,7}\.[0-9]{1,7}")),  # layer.head.query.key
    "distance": Control(_one_of(*DISTANCES), 128),
    "top": Control(_one_of(*TOPS), 100),
    "content": Control(_one_of(True, False), True),
    "measure": Control(_one_of("share", "confidence"), "share"),
    "view": Control(_one_of("PCA", "UMAP"), "PCA"),
    "speed_on": Control(_one_of("model", "shapes"), "model"),
    "speed_what": Control(_one_of("attention", "decode", "inference"), "attention"),
    "speed_heads": Control(_whole, 8),
    "speed_size": Control(_whole, 64),
    "speed_groups": Control(_whole, 8),
    "speed_top": Control(_whole),
    "speed_window": Control(lambda raw: _whole(raw, 7)),
    "speed_sinks": Control(_whole, 0),
    "speed_dtype": Control(_one_of(*DTYPES), DTYPES[0]),
    "speed_batch": Control(_whole, 1),
    "speed_members": Control(_one_of("even", "skewed", "router"), "even"),
    "speed_lengths": Control(_matching(r"[0-9kKmM, ]{1,80}"), "1024, 4096, 16384"),
    "speed_prompt": Control(lambda raw: _whole(raw, 7)),
    "speed_new": Control(_whole, 32),
    "speed_rounds": Control(_whole, 5),
    "tab": Control(_one_of("quality", "speed", "equal")),
    "quality": Control(_matching(r"[a-z0-9_.~-]{1,400}")),  # methods and their settings, see quality_controls
    "quality_equal": Control(_one_of(5, 10, 25, 50)),  # per cent of the pairs that every method reads
    "equal_panel": Control(_matching(r"[A-Za-z0-9][A-Za-z0-9 ,._-]{0,79}")),
    "quality_read": Control(_matching(r"all|[0-9]{2,7}w?")),
    "quality_paint": Control(_matching(r"[a-z_]{1,40}")),
    "quality_token": Control(lambda raw: _whole(raw, 7)),
    "job": Control(_matching(HASH)),
    "run": Control(_matching(HASH)),
    "run_other": Control(_matching(HASH)),
    "runs_find": Control(_matching(r"[^\x00-\x1f\x7f\ud800-\udfff]{0,80}"), ""),
    "runs_made": Control(_matching(r"[a-z][a-z0-9-]{0,39}")),
    "runs_pinned": Control(_one_of(True, False), False),
    "runs_table": Control(_matching(r"[a-z_]{1,40}")),
    "runs_column": Control(_matching(r"[A-Za-z0-9_. %()-]{1,60}")),
    "shape": Control(_matching(MODEL), "loaded"),  # a well-known model, or the hash of a stored config.json
    "context": Control(_one_of(*CONTEXTS)),
    "sequences": Control(_one_of(*SEQUENCES), 1),
    "keep": Control(_one_of(*KEEPS), 0.1),
    "counted": Control(_one_of("all", "ffn"), "all"),
    "evidence": Control(_one_of(*EVIDENCE), EVIDENCE[0]),
    "train_corpus": Control(_matching(r"[0-9a-f]{12}(\+[0-9a-f]{12}){0,19}|[A-Za-z0-9][A-Za-z0-9._-]{0,63}")),
    "train_phase": Control(_one_of(1, 2), 1),
    "train_groups": Control(_whole, 8),
    "train_top": Control(_whole, 1),
    "train_steps": Control(lambda raw: _whole(raw, 6), 100),
    "train_window": Control(_whole, 16),
    "train_sinks": Control(_whole, 4),
    "train_rate": Control(_number, 1e-3),
    "train_base_rate": Control(_number, 1e-4),
    "train_tokens": Control(lambda raw: _whole(raw, 6), 1024),
    "train_gate": Control(_one_of("log", "literal", "centred"), "log"),
    "train_balance": Control(_one_of("sinkhorn", "softmax"), "sinkhorn"),
    "train_reading": Control(_one_of("soft", "straight_through", "hard"), "soft"),
    "train_temperature": Control(_number, 0.1),
    "train_iterations": Control(_whole, 10),
    "train_size": Control(_whole, 16),
    "train_label": Control(_matching(r"[a-z0-9]{1,16}"), "mine"),
    "train_seed": Control(_whole, 0),
    "collapse_rows": Control(_one_of("two", "all"), "two"),
    "collapse_measure": Control(_one_of(*PATHS), PATHS[0]),
    "balance_temperature": Control(_one_of(*TEMPERATURES), 0.1),
    "balance_iterations": Control(_whole, 10),
    "ablation": Control(_matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")),
    "other": Control(_matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")),
    "query": Control(lambda raw: _whole(raw, 7)),  # a token of the text, on both pages that show what one reads
    "without_first": Control(_one_of(True, False), False),
    "statistic": Control(_one_of(*STATISTICS), STATISTICS[0]),
    "order": Control(_one_of("highest", "lowest")),
    "finder": Control(_one_of(5, 10, 20), 10),
    "tile": Control(_matching(r"[0-9]{1,7}\.[0-9]{1,7}")),  # first query and first key of an exact tile
    "beside": Control(_one_of("head", "text")),
    "other_head": Control(_matching(r"[0-9]{1,4}\.[0-9]{1,4}")),  # layer.head
    "other_text": Control(_matching(HASH)),
    "softmax": Control(_one_of(*SOFTMAX), 0.4),
    "sharpness": Control(_one_of(*SHARPNESS), SHARPNESS[0]),
    "budgets": Control(_one_of(*BUDGETS), BUDGETS[0]),
    "budget_policy": Control(_matching(POLICY), "policy"),
    "budget_other": Control(_matching(POLICY)),
    "budget_edits": Control(_matching(r"[a-z0-9.~]{1,1500}")),  # see budgets_edits
    "budget_cells": Control(_matching(r"[0-9]{1,6}(\.[0-9]{1,6}){0,299}")),  # layer * heads + head of each chosen one
    "budget_keep": Control(_one_of(True, False), True),
    "budget_where": Control(_one_of("cells", "layer", "head", "all"), "cells"),  # the change that is being made
    "budget_how": Control(_one_of("scale", "set", "pin"), "scale"),
    "budget_factor": Control(_number, 0.5),
    "budget_keys": Control(lambda raw: _whole(raw, 7), 64),
    "budget_cap": Control(lambda raw: _whole(raw, 7)),
    "budget_way": Control(_one_of("stored", "beta", "keys_per_head", "reads"), "stored"),
    "budget_size": Control(_number, 1.0),  # of budget_way, the share of the reads in per cent
    "budget_bins": Control(_one_of("change", "perplexity"), "change"),
    "budget_reads": Control(_one_of(*READS), 0.1),
    "budget_token": Control(lambda raw: _whole(raw, 7)),
    "budget_caps": Control(_matching(r"[0-9kK, ]{1,80}"), "32, 64, 128, 256, 512"),
    "budget_tolerance": Control(_number, 1.0),  # per cent of perplexity
    "budget_tolerance_bin": Control(_number, 2.0),
    "budget_texts": Control(_matching(r"[0-9a-f]{12}(\+[0-9a-f]{12}){0,19}|[A-Za-z0-9][A-Za-z0-9._-]{0,63}")),
    "budget_mass": Control(_number, 0.9),
    "budget_min_pos": Control(lambda raw: _whole(raw, 7), 0),
    "budget_by": Control(_one_of("beta", "total", "reads"), "beta"),
    "budget_beta": Control(_number, 1.0),
    "budget_total": Control(lambda raw: _whole(raw, 9), 5000),
    "budget_share": Control(_number, 10.0),  # per cent of the causal pairs
    "budget_floor": Control(_whole, 2),
    "budget_tokens": Control(lambda raw: _whole(raw, 6), 16384),
    "budget_sweep": Control(_one_of(True, False), True),
    "budget_name": Control(_matching(POLICY), "mine"),
    "route_l": Control(_number),  # buckets that a query visits
    "route_distance": Control(lambda raw: _whole(raw, 7), 64),
    "route_sinks": Control(_one_of(True, False), False),  # left out
    "route_partition": Control(_one_of("raw keys", "whitening", "gwr_geometric"), "raw keys"),
    "route_on": Control(_one_of("stored", "text"), "stored"),
    "route_tab": Control(_one_of(*ROUTE_TABS), ROUTE_TABS[0]),
    "route_measure": Control(_one_of("over_prior", "over_kmeans", "gap_closure", *ROUTED), "gwr_linear"),
    "route_router": Control(_one_of(*ROUTED), "gwr_linear"),
    "route_corpus": Control(_matching(r"[0-9a-f]{12}(\+[0-9a-f]{12}){0,19}|[A-Za-z0-9][A-Za-z0-9._-]{0,63}")),
    "route_buckets": Control(lambda raw: _whole(raw, 5)),
    "route_heads": Control(_matching(r"all|[0-9]{1,4}:[0-9]{1,4}(,[0-9]{1,4}:[0-9]{1,4}){0,63}"), "all"),
    "route_own": Control(_one_of(True, False), False),
    "route_mlp": Control(_one_of(True, False), True),
    "route_seed": Control(_whole, 0),
    "trained_with": Control(_one_of(*TRAINED), TRAINED[0]),
    "by_layer": Control(_matching(r"[0-9.]{1,6}(~[0-9.]{1,6}){0,255}")),  # a temperature for each layer
    "paper": Control(_one_of(*PAPERS), next(iter(PAPERS))),
    "paper_state": Control(_one_of("all", *STATES), "all"),
    "paper_row": Control(_whole),
    "benchmark_tasks": Control(_matching(r"none|[a-z_0-9]{1,40}(~[a-z_0-9]{1,40}){0,19}")),
    "benchmark_shots": Control(_whole),
    "benchmark_items": Control(lambda raw: _whole(raw, 5), 100),
    "benchmark_question": Control(_one_of("sparse", "dense"), "sparse"),
    "probe": Control(_one_of(*PROBES), PROBES[0]),
    "probe_methods": Control(_matching(r"[a-z_]{1,40}(~[a-z_]{1,40}){0,9}")),
    "probe_reach": Control(lambda raw: _whole(raw, 7)),
    "probe_items": Control(_one_of(4, 8, 16, 32, 64), 8),
    "probe_choices": Control(_one_of(2, 4, 8, 16), 4),
    "probe_rope": Control(_one_of("as_trained", "longer", "dynamic_ntk"), "as_trained"),
}
