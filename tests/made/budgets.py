"""Hand-made answers of the verbs behind KV budgets, on real allocations of six heads."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.errors import BadSetting
from analysis.metrics.budgets import allocate_budget, edited, reads
from analysis.runs import Result
from app.budgets.effect import SWEEP
from app.selection.sparsify import READ_SHARES
from tests.made.in_process import opened, part
from tests.made.quality import DESCRIBED, method
from tests.made.results import CONTEXT, HEADS, LAYERS, STUDIES, protocol, tokens

RANKS = np.array([[40.0, 50.0], [8.0, 6.0], [3.0, 20.0]])
POSITIONS = [{"bin": b, "first": 32 * b, "last": 32 * b + 32, "rank": 10.0 + b, "most": 16.0 + b} for b in range(2)]
ABOUT = {"tokens": 640, "window": 64, "mass": 0.9, "min_pos": 0, "corpus": "two <texts>", "texts": [], "beta": 1.0}
ABOUT |= {"positions": POSITIONS, "bias": {"all": 21.0, "from_min_pos": 21.0, "min_pos": 0, "last_sixteenth": 30.0}}


def store_policy(root: Path, name: str, **fields) -> None:
    """A policy of these ranks where the app looks for it."""
    folder = root / "fitted" / "demo" / "abc" / "csa"
    folder.mkdir(parents=True, exist_ok=True)
    integers = {"layers": LAYERS, "heads": HEADS, "policy": [*allocate_budget(RANKS, 127).ravel().tolist(), 32]}
    (folder / f"{name}.json").write_text(json.dumps(ABOUT | integers | {"ranks": RANKS.tolist()} | fields))


def cells(**columns) -> pd.DataFrame:
    layer, head = np.divmod(np.arange(LAYERS * HEADS), HEADS)
    return pd.DataFrame({"layer": layer, "head": head, **{name: np.ravel(value) for name, value in columns.items()}})


def budgets(args: dict, text: None) -> Result:
    policy = args["policy"]
    total = round(policy["beta"] * RANKS.sum()) if "beta" in policy else 127
    stored = allocate_budget(RANKS, 127)
    keys, fixed = edited(allocate_budget(RANKS, total), RANKS, policy.get("edits", []), policy.get("keep_total", True))
    cap = policy.get("cap", 32)
    numbers = {"ranks": RANKS.tolist(), "budgets": keys.tolist(), "stored": stored.tolist(), "fixed": fixed.tolist()}
    numbers |= {"total": int(keys.sum()), "stored_total": 127, "beta": keys.sum() / RANKS.sum(), "cap": cap}
    numbers |= {"integers": {"layers": LAYERS, "heads": HEADS, "policy": [*keys.ravel().tolist(), cap]}}
    numbers |= {**reads(keys, cap, CONTEXT), "kv_bytes": 12_000_000, "kv_bytes_evicted": 3_000_000, "window": CONTEXT}
    numbers |= {"policy": {"name": policy["name"], "total": 127, "cap": 32, "mass": 0.9}, "notes": []}
    table = cells(rank=RANKS, budget=keys, stored=stored, fixed=fixed, capped=np.minimum(keys, cap))
    about = protocol("budgets", args, 0) | {"dtype": "float32"}
    return Result(numbers | {"protocol": about}, {"cells": table})


def bins(change: float) -> list[dict]:
    """Two stretches; the last one changes ten times as much as the first."""
    rows = []
    for place, rise in enumerate((change / 10, change)):
        row = {"bin": place, "first": 31 * place, "last": 31 * place + 31, "n": 31, "difference": rise}
        row |= {"low": rise - 0.01, "high": rise + 0.01, "perplexity": 10 * (1 + rise), "perplexity_low": 9.0}
        rows.append(row | {"perplexity_high": 30.0, "perplexity_dense": 10.0})
    return rows


def row(change: float, **fields) -> dict:
    """A row of a sweep whose last stretch changes by `change`."""
    stretches = bins(change)
    values = {"perplexity": 10 * (1 + change / 2), "perplexity_dense": 10.0, "difference": change / 2, "units": 4}
    unit = "blocks of 64 tokens in this text"
    values |= {"low": change / 2 - 0.01, "high": change / 2 + 0.01, "bins": stretches}
    values |= {"unit": unit, "state": f"95% interval over 4 {unit}"}
    values |= {f"worst_bin_{name}": stretches[1][name] for name in ("first", "last", "difference", "low", "high", "n")}
    values |= {"worst_bin": 1, "worst_bin_change": 10 * change, "attended": 9.0, "kv_read": 0.6}
    side = {"difference": change / 2, "upper": change / 2, "worst_bin_difference": change, "worst_bin_upper": change}
    side |= {f"worst_bin_{name}": stretches[1][name] for name in ("first", "last")} | {"units": 8, "unit": "documents"}
    limits = [{"lower": -0.03, "upper": stretch["difference"], "perplexity_dense": 10.0} for stretch in stretches]
    places = [{name: stretch[name] for name in ("first", "last")} for stretch in stretches]
    side |= {"lower": -0.015, "perplexity_dense": 10.0}
    side |= {"stretches": [place | limit for place, limit in zip(places, limits, strict=True)]}
    values |= {"select": side, "report": side, "holds": change < 0.02}
    values |= {"reads_kv_least": 0.25, "reads_kv_most": 0.4}
    return values | {"reads_causal": 0.2, "reads_full": 0.1, "passes": change < 0.02, "fails": None, **fields}


def lost(table: pd.DataFrame, position: int) -> dict:
    key = {"position": 1, "piece": table["piece"][1], "distance": position - 2, "mass": 3.5, "heads": 4, "layer": 2}
    key |= {"head": 1, "attention": 0.5, "budget": 3}
    return {"position": position, "query": position - 1, "piece": table["piece"][position], "key": key} | {
        "sentence": f"Token {position} lost <b>.",
        "loss": 3.0,
        "loss_dense": 1.0,
        "difference": 2.0,
    }


def reads_text(args: dict, text: str) -> Result:
    table = tokens(text).head(CONTEXT)
    changes = [0.5 * (1 - share) ** 8 for share in args["shares"]]
    rows = [row(change, share=share, total=100) for share, change in zip(args["shares"], changes, strict=True)]
    places = np.arange(1, len(table), dtype=np.int32)
    apart = np.outer(changes, places / len(table) * 8).astype(np.float32)
    worst = [None if change == 0 else lost(table, len(table) - 1) for change in changes]
    numbers = {"rows": rows, "lost": worst, "sentence": "It breaks.", "window": CONTEXT, "windows": 1, "policy": {}}
    numbers |= {"notes": ["A note to <read>."], "protocol": protocol("reads-text", args, len(table))}
    columns = [{"share": r["share"], **numbers} for r in rows for numbers in r["bins"]]
    tables = {"tokens": table, "rows": pd.DataFrame({"share": args["shares"]}), "bins": pd.DataFrame(columns)}
    return Result(
        numbers, tables, {"position": places, "loss": np.full(len(places), 2, np.float32), "difference": apart}
    )


def lost_keys(args: dict, text: str) -> Result:
    table = tokens(text)
    keys = pd.DataFrame({"position": [1, 2], "piece": table["piece"][1:3], "distance": [5, 4], "mass": [2.0, 1.0]})
    return Result(
        lost(table, args["position"]) | {"protocol": protocol("lost-keys", args, len(table))},
        {"keys": keys.assign(heads=3)},
    )


def cap_sweep(args: dict, text: None) -> Result:
    changes = {16: 0.3, 32: 0.3, 64: 0.04, 128: 0.015, 256: 0.0, 512: 0.0}
    rows = [row(changes[cap], cap=cap) for cap in args["caps"]]
    columns = [{"cap": r["cap"], **numbers} for r in rows for numbers in r["bins"]]
    numbers = {"sweep": rows, "cap": 128, "sentence": "128.", "notes": [], "protocol": protocol("cap-sweep", args, 64)}
    return Result(numbers, {"bins": pd.DataFrame(columns)})


def calibrations(args: dict, text: None) -> Result:
    turned = RANKS[::-1]
    table = cells(rank=RANKS, other=turned, change=turned / RANKS - 1, budget=RANKS, other_budget=turned)
    sentence = f"The ranks of {args['policy']} and {args['other']} agree to 0.50."
    return Result({"sentence": sentence, "protocol": protocol("calibrations", args, 0)}, {"cells": table})


def calibrate(args: dict, text: None) -> Result:
    about = protocol("calibrate", args, args["tokens"])
    return Result({"sentence": "The smallest cap is 64.", "notes": ["Few tokens."], "protocol": about})


def import_policy(args: dict, text: None) -> Result:
    numbers = args["policy"]["policy"] if isinstance(args["policy"], dict) else args["policy"]
    if len(numbers) != LAYERS * HEADS + 1:
        raise BadSetting(f"The policy was made for {len(numbers) - 1} heads: calibrate on this model.")
    return Result({"path": "x", "protocol": protocol("import-policy", args, 0)})


def topk_cost(args: dict, text: None) -> Result:
    times = {"dense_ms": 2.0, "topk_ms": 3.0, "masked_ms": 20.0, "times_dense": 1.5, "times_dense_low": 1.4}
    times |= {"times_dense_high": 1.6, "faster_than_masked": 7.0, "keys": 64, "dense_kernel": "flash"}
    rows = [{"what": phase, "length": 1024, **times} for phase in ("pass", "step")]
    about = {"repeats": 5, "dtype": "float32", "processor": "A chip", "device": "cpu", "threads": 2}
    return Result({"rows": rows, "sentence": "1.50 times dense.", "met": None, "protocol": about})


def evaluate(args: dict, text: str) -> Result:
    rows = [{"difference": d, "difference_low": d - 0.01, "difference_high": d + 0.01} for d in (0.01, 0.2)]
    return Result({"rows": rows, "protocol": protocol("evaluate", args, 64)})


ANSWERS = {"budgets": budgets, "reads-text": reads_text, "lost-keys": lost_keys, "cap-sweep": cap_sweep}
ANSWERS |= {"calibrations": calibrations, "calibrate": calibrate, "import-policy": import_policy}
ANSWERS |= {"topk-cost": topk_cost}


def prepared(client, monkeypatch):
    """The client with two policies where the app looks for them, and the method that follows one; two methods are
    evaluated at once."""
    monkeypatch.setitem(STUDIES, "evaluate", evaluate)
    monkeypatch.setitem(DESCRIBED, "csa", method("CSA", needs="policy"))
    for name in ("policy", "other"):
        store_policy(client.store.root, name)
    return client


def page(**link):
    return opened("budgets", **link)


def key(client) -> str:
    return client.store.samples()[0][0]


def measure_reads(client) -> None:
    settings = {"policy": "policy", "shares": list(READ_SHARES), "window": None, "seed": 0, "long_text": "windows"}
    client.done("reads-text", {"model": "demo", "text": key(client)} | settings)


def sweep(client, policy: dict, caps: list[int]) -> None:
    client.done("cap-sweep", {"model": "demo", "texts": [key(client)], "policy": policy, "caps": caps, **SWEEP})


def keys_of(app) -> list[int]:
    """The budgets on the map, head after head."""
    return part(app, "budgets")["budgets"]
