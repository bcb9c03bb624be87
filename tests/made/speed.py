"""Hand-made answers of the commands that time."""

import pandas as pd

from analysis.runs import Result
from tests.made.results import protocol


def launch(args: dict, text: str) -> Result:
    spread = {"median": 8.0, "low": 7.0, "high": 9.0}
    row = {"kernel": "k", "prefill_ms": spread, "ms_per_token": spread, "tokens_per_second": 90.0}
    row |= {"kv_bytes": 2_000_000, "kv_bytes_read_per_step": 500_000, "peak_bytes": None}
    parts = {"router": 1.0, "sort": 2.0, "set_a": 3.0, "set_b": 1.0, "merge": 1.0, "rest": 12.0}
    times = {"median": 0.8, "low": 0.7, "high": 0.9}
    numbers = {
        "rows": [{**row, "side": "dense"}, {**row, "side": "sparse"}],
        "speedup": {"prefill": times, "per_token": times, "attention": times},
        **{"attention_layer": 1, "retained": 0.4, "bound": 2.5, "parts": parts, "step_parts": parts, "length": 48},
        **{"text_dense": " the lamp burned", "text_sparse": " the lamp <b>fell</b>", "prompt_end": f"{text[-80:]}"},
        **{"first_difference": 2, "new_tokens": 3, "cosine": 0.9999999, "max_difference": 2e-6, "prefix": 48},
        **{"dense_kernel": "torch flash, growing cache", "missing_kernels": ["flash-attn 2 (needs an NVIDIA GPU)"]},
        **{"crossover": {"prefill": 8192, "per_token": None}, "longer": {"prefill": [[48, 0.8], [96, 1.1]]}},
        **{"sentence": "Dense wins here, at 48 tokens; estimated crossover for the prompt near 80 tokens."},
    }
    numbers["longer"]["per_token"] = [[48, 0.8]]
    rounds = pd.DataFrame({"round": [0, 0], "side": ["dense", "sparse"], "prefill_ms": 8.0, "ms_per_token": 1.0})
    kernels = pd.DataFrame({"layer": [0], "phase": ["prefill"], "kernel": ["groups"], "why": ["It wins."], "calls": 1})
    about = protocol("launch", args, 48) | {"processor": "A chip", "threads": 2, "dtype": "float32", "repeats": 5}
    numbers |= {"notes": [], "protocol": about}
    return Result(numbers, {"rounds": rounds, "kernels": kernels})


def timed_method(args: dict, text: str | None) -> Result:
    rows = [{"length": n, "token_dense_ms": 8.0, "token_sparse_ms": 7.0} for n in (15, 30, 60)]
    numbers = {
        "kernels": {"prompt": None, "token": "pages"},
        "why": {"prompt": "None.", "token": "It wins."},
        "length": 60,
    }
    numbers |= {"speedup": {"prefill": None, "per_token": {"median": 1.14, "low": 1.1, "high": 1.2}}, "rows": rows}
    numbers |= {"longer": {"prefill": [], "per_token": [[15, 0.9], [30, 1.0], [60, 1.14]]}, "sentence": "Quest at 60."}
    about = {"processor": "A chip", "threads": 2, "dtype": "float32", "repeats": args["repeats"]}
    return Result(numbers | {"protocol": protocol("time-method", args, 60) | about}, {})


def bench(args: dict, text: str | None) -> Result:
    names = ("sort_ms", "set_a_ms", "set_b_ms", "merge_ms", "rest_ms")
    rows = [
        {"length": n, "batch": 1, "dtype": "bfloat16", "kernel": "groups", "dense_kernel": "torch flash"}
        | {"backend": "torch", "dense_ms": n / 100, "sparse_ms": n / 100 / x, "speedup": x, "speedup_low": 0.9 * x}
        | {"speedup_high": 1.1 * x, "bound": 7.0, "retained": 1 / 7, "computed": 0.2, "memory": 2.0, "why": "It wins."}
        | dict.fromkeys(names, 1.0)
        for n, x in zip(args["lengths"], (0.5, 2.0, 4.0), strict=False)
    ]
    sentence = "Dense wins below about 2,000 tokens; sparse runs at 4.00 times dense attention."
    about = {"verb": "bench", "processor": "A chip", "threads": 2, "dtype": "bfloat16", "repeats": 5}
    about |= {"memberships": "random, balanced"}
    merges = {"disjoint": 1.0, "subtraction": 0.7}
    merges = {"merges": {name: {"cosine": x, "lowest": x, "error": 1 - x} for name, x in merges.items()}}
    return Result({"rows": rows, "crossover": 2000, "missing": ["x"], "sentence": sentence, "protocol": about} | merges)


def pitfalls(args: dict, text: str) -> Result:
    merges = {name: {"cosine": x, "lowest": x, "error": 1 - x} for name, x in (("disjoint", 1.0), ("subtraction", 0.7))}
    empty = {"lse": 0.0, "wrong": True, "error": 0.5, "error_right": 0.0, "gradient": False, "upper_left": True}
    rule = {"rule": "two tables, weighed for two", "found": 0.04, "ratio": 1.0, "error": 0.5}
    return Result({"merges": merges, "empty": empty, "rows": [rule], "protocol": protocol("pitfalls", args, 64)})


ANSWERS = {"pitfalls": pitfalls, "launch": launch, "bench": bench, "time-method": timed_method}
