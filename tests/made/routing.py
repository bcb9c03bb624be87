"""Hand-made answers of the verbs behind Routing, and the stored curves that a page looks for."""

import json

import pandas as pd

from analysis.runs import Result, RunStore
from analysis.runs.stored import study_folders
from tests.made.results import HEADS, LAYERS, protocol, tokens

BUCKETS, BUDGETS = 64, (1, 2, 4, 8)
MADE = "2026-01-01T00:00:00+00:00"
RECALL = {  # at 2 buckets
    "random": 0.03,
    "static_prior": 0.3,
    "recency": 0.2,
    "kmeans": 0.1,
    "whitening": 0.05,
    "gwr_geometric": 0.11,
    "gwr_linear": 0.4,
    "gwr_linear_intercept": 0.39,
    "mlp": 0.5,
    "mlp_squared": 0.45,
    "linear_cross_entropy": 0.42,
    "oracle": 0.7,
}
CELLS = [(64, 0, "raw keys"), (16, 0, "raw keys"), (16, 4, "raw keys"), (64, 4, "raw keys"), (64, 0, "whitening")]


INDEXED = [
    {"kind": kind, "shares": shares, "recall": recall, "whole": 0.9, "cached": 32.0, "multiplied": 68.0}
    | {"seconds": 1.0, "curve": [{"step": 0, "selection": 2.0}, {"step": 50, "selection": 1.0}] if curve else []}
    for kind, shares, recall, curve in (("moba", "head", 0.4, False), ("dsa", "layer", 0.3, True))
]
STARVED = [
    {"kind": "dsa", "layer": layer, "head": head, "recall": recall, "shared": 0.5, "alone": 0.8, "far": far}
    for layer, head, recall, far in ((2, 1, 0.1, 0.05), (1, 0, 0.7, 0.4))
]


def _recall(kind: str, visited: float, layer: int = 0) -> float:
    return min(1.0, RECALL[kind] * (visited / 2) ** 0.5 + 0.01 * layer)


def _mean(kind: str, visited: float) -> dict:
    row = {"router": kind, "l": visited, "share": visited / BUCKETS, "selectivity": 0.04}
    row |= {"recall": _recall(kind, visited), "selectivity_low": 0.03, "selectivity_high": 0.05}
    return row | {"recall_low": row["recall"] - 0.01, "recall_high": row["recall"] + 0.01}


def _closure(kind: str, visited: float) -> dict:
    value = (RECALL[kind] - RECALL["kmeans"]) / (RECALL["mlp"] - RECALL["kmeans"])
    row = {"router": kind, "l": visited}
    for way in ("mean_of_ratios", "ratio_of_means"):
        row |= {way: value, f"{way}_low": value - 0.1, f"{way}_high": value + 0.1}
    return row


def numbers(visited: float, kinds=tuple(RECALL)) -> dict:
    """What `route` and `route-at` both say."""
    both = {"kmeans", "mlp"} <= set(kinds)
    cells = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    table = [
        {"layer": layer, "head": head, "gap_closure": 0.5 + 0.1 * layer}
        | {kind: _recall(kind, visited, layer) for kind in kinds if kind in ("kmeans", "static_prior", "gwr_linear")}
        | {kind: _recall(kind, visited, layer) for kind in kinds if kind in ("mlp", "oracle")}
        for layer, head in cells
    ]
    return {
        "means": [_mean(kind, visited) for kind in kinds],
        "closure": [_closure(kind, visited) for kind in kinds] if both else [],
        "curve": [_mean(kind, budget) for budget in BUDGETS for kind in kinds],
        "closures": [_closure(kind, budget) for budget in BUDGETS for kind in kinds] if both else [],
        "heads": table,
        "buckets": BUCKETS,
        "l": visited,
        "balance": [
            {"layer": layer, "part": 0, "side": side, "largest": 0.1, "empty": 0.0, "effective": 0.9}
            for layer in range(LAYERS)
            for side in ("calibration", "test")
        ],
        "timings": [{"router": kind, "fit_seconds": 1.5, "route_us": 2.5} for kind in kinds]
        + [{"router": "buckets", "fit_seconds": 3.0, "route_us": None}],
        "paper": _paper(),
    }


def _paper() -> list[dict]:
    rows = [("table 1", "GWR Linear (Ours)", "Recall@32", 0.726, "fraction", "gwr_linear", 32)]
    rows += [("table 1", "GWR Linear (Ours)", "Training", "No", "", "gwr_linear", 32)]
    rows += [("table 1", "GWR Linear (Ours)", "Gap Closure", 63.6, "%", "gwr_linear", 32)]
    rows += [("figure 2", "ℓ=128", "GWR Linear", 88.4, "%", "gwr_linear", 128)]
    rows += [("figure 2", "ℓ=4", "Gap Closure", 44.3, "%", None, 4)]
    rows += [("table 2", "L2-H0", "Symmetric K-Means", 0.25, "fraction", "kmeans", 32)]
    rows += [("table 2", "L2-H0", "Gap Closure", 83.6, "%", None, 32)]
    names = ("table", "row", "column", "value", "unit", "router", "l")
    return [
        dict(zip(names, row, strict=True)) | {"share": row[-1] / 1024, "protocol": "Qwen2.5-7B", "note": ""}
        for row in rows
    ]


def lines(kinds: tuple) -> dict:
    """Every router at every budget."""
    points = list(range(1, BUCKETS + 1))
    return {
        kind: {"l": points, "recall": [_recall(kind, n) for n in points], "selectivity": [0.04] * BUCKETS}
        for kind in kinds
    }


def route_at(args: dict, text: str | None) -> Result:
    visited = 2.0 if args["visited"] is None else args["visited"]
    kinds = tuple(RECALL) if args["partition"] == "raw keys" else ("random", args["partition"], "oracle")
    facts = numbers(visited, kinds)
    rows = pd.DataFrame(
        [
            {"layer": row["layer"], "head": row["head"], "router": kind, "recall": _recall(kind, visited, row["layer"])}
            for row in facts["heads"]
            for kind in kinds
        ]
    )
    facts["lines"] = lines(kinds)
    cells = [dict(zip(("min_distance", "sinks", "partition"), cell, strict=True)) | {"name": "x"} for cell in CELLS]
    facts |= {"min_distance": args["min_distance"] or 64, "sinks": args["sinks"] or 0, "partition": args["partition"]}
    where = "your text" if text else "stored"
    facts |= {
        "cells": cells,
        "documents": 4,
        "queries": 99,
        "notes": ["Tried at 16."] if text else ["Twelve prompts."],
    }
    facts["sentence"] = f"Visiting {visited:g} of 64 buckets, GWR linear finds 40.0% ({where})."
    about = protocol("route-at", args, 64) | {
        "measured": MADE,
        "documents": [12, 11],
        "window": 64,
        "prompts": [12, 12],
    }
    return Result(facts | {"protocol": about | {"device": "cpu", "threads": 1, "date": MADE}}, {"rows": rows})


def route_visit(args: dict, text: str) -> Result:
    table = tokens(text)
    position = 63 if args["position"] is None else args["position"]
    inside = list(range(position + 1))
    table["bucket"] = [place % BUCKETS if place in inside else -1 for place in range(len(table))]
    table["far"] = [place in inside and position - place >= args["min_distance"] // 8 for place in range(len(table))]
    table["attention"] = [1 / len(inside) if place in inside else 0.0 for place in range(len(table))]
    table["visited"] = False
    buckets = pd.DataFrame({"bucket": range(BUCKETS), "score": [float(-place) for place in range(BUCKETS)]})
    buckets["rank"], buckets["visited"] = range(BUCKETS), [place < 2 for place in range(BUCKETS)]
    buckets["keys"], buckets["mass"] = 1, 1 / BUCKETS
    query = {name: args[name] for name in ("layer", "head", "router")}
    query |= {"position": position, "word": table["word"].iloc[position]}
    facts = {"recall": 0.1, "best": 0.2, "far_mass": 0.8, "selectivity": 0.03, "query": query, "buckets": BUCKETS}
    facts |= {"notes": [], "sentence": "It finds it.", "start": 0}
    return Result(
        facts | {"protocol": protocol("route-visit", args, len(table))}, {"tokens": table, "buckets": buckets}
    )


def route(args: dict, text: str | None) -> Result:
    facts = numbers(2.0) | {"sentence": "On your texts GWR linear finds 40.0%.", "notes": ["Six documents."]}
    whitened = numbers(2.0, ("random", "whitening", "oracle"))
    facts["cells"] = [{"partition": "raw keys", **facts}, {"partition": "whitening", **whitened}]
    facts["lines"] = lines(tuple(RECALL))
    if args.get("kinds"):
        facts |= {"indexers": INDEXED, "starved": STARVED}
    return Result(facts | {"protocol": protocol("route", args, 64)})


def route_time(args: dict, text: str) -> Result:
    rows = [
        {"side": name, "ms_per_token": 5.0, "prefill_ms": 90.0, "kernel": "k"} for name in ("dense", "bucket routing")
    ]
    facts = {"rows": rows, "sentence": "One more token takes 5.0 ms.", "notes": ["A prompt is a masked pass."]}
    return Result(facts | {"protocol": protocol("route-time", args, 64)})


def put_curves(store: RunStore, date: str = MADE) -> None:
    """The note that says when the curves of the fake model were made."""
    folder = study_folders(store, "demo", "abc")[0].parent / "routing"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "curves.json").write_text(json.dumps({"about": {"date": date}}))


ANSWERS = {"route-at": route_at, "route-visit": route_visit, "route": route, "route-time": route_time}
