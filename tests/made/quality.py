"""Hand-made answers of `evaluate`, with a method that no issue has built yet: the page knows methods by description."""

import numpy as np
import pandas as pd

from analysis.errors import BadSetting
from analysis.runs import Result
from app import cached
from tests.made import in_process, results

DEFAULTS = {"window": 16}
SHARING = {"oracle_topk": 1.25, "quick": 1.25}  # times as many keys for two heads that share them as for one


def field(name: str, default, help: str = "what it does", price: str = "live", low=None, high=None, **fields) -> dict:
    about = {"name": name, "type": type(default).__name__, "default": default, "help": help, "price": price}
    return about | {"low": low, "high": high, "step": None, "options": None, "future": []} | fields


def method(title: str, *fields: dict, ceiling: bool = False, needs: str = "", **about) -> dict:
    described = {"doc": f"{title} reads *less*.", "paper": "a paper", "title": title, "needs": needs}
    described |= {"ceiling": ceiling, "fields": list(fields)}
    described |= {"saves": "reads", "kernels": [], "exported": True, "budget": None, "competing": []}
    return described | about


DESCRIBED = {
    "dense": method("Dense"),
    "focus": method(
        "Focus",
        field("top", 1, low=1, high=64),
        field("window", 128, low=1, high=1 << 20),
        field("n_sink", 0, low=0, high=64),
        field("membership", "causal", options=["causal", "literal"], future=["literal"]),
        needs="router",
        kernels=["prompt", "token"],
        budget="window",
    ),
    "streaming_llm": method(
        "StreamingLLM", field("n_sink", 4, low=0, high=64), field("window", 128, low=1, high=1 << 20), budget="window"
    ),
    "oracle_topk": method(
        "Oracle top-k",
        field("k", 8, low=1, high=1 << 20),
        field("fraction", 0.0, low=0.0, high=1.0),
        ceiling=True,
        budget="k",
        competing=["fraction"],
    ),
    "quick": method("Quick", field("keys", 8, low=1, high=1 << 20), kernels=["token"], budget="keys"),
    "snapkv": method(
        "SnapKV",
        field("ratio", 0.5, low=0.0, high=0.99),
        field("window", 16, low=1, high=1024),
        saves="memory",
        kernels=["prompt", "token"],
        competing=["ratio"],
    ),
    "xattention": method(
        "XAttention",
        field("block", 128, low=8, high=512),
        field("threshold", 0.9, low=0.0, high=1.0),
        saves="prefill",
        kernels=["prompt"],
        exported=False,
        competing=["threshold"],
    ),
    "later": method("Later", field("budget_per_head", 0.5, price="refit", low=0.0, high=1.0)),
}


def evaluate(args: dict, text: str) -> Result:
    """Every method loses 32% over its window and reads in proportion to it; the token after the third loses most. One
    that is set to a share gets as much of 512 keys, Quick no fewer than 64."""
    (method,) = args["methods"]
    about = DESCRIBED[method["name"]]
    made_for = DEFAULTS if about["needs"] == "router" else {}
    defaults = {field["name"]: made_for.get(field["name"], field["default"]) for field in about["fields"]}
    settings = defaults | method["settings"]
    if args.get("share") and about["budget"]:
        settings[about["budget"]] = max(64 if method["name"] == "quick" else 1, round(512 * args["share"]))
    if settings.get("top", 1) > results.GROUPS:
        raise BadSetting(f"top is {settings['top']} and the router has 4 groups: choose at most 4.")
    table = results.tokens(text)
    size = min(args["window"] or results.CONTEXT, len(table))
    windows = 1 if args["long_text"] == "first" else len(table) // size
    table = table.iloc[: windows * size].copy()
    table["window"] = table.index // size
    width = settings.get("window", settings.get("k", settings.get("keys", 64))) if method["name"] != "dense" else 0
    share, loses = (width / 512, 0.32 / width) if width else (1.0, 0.0)
    position = np.array([i for i in range(windows * size) if i % size])
    apart = np.where(position == 3, 2.5, np.where(position == 5, -1.0, loses)) if width else np.zeros(len(position))
    losses = pd.DataFrame({"method": 0, "position": position, "window": position // size, "loss": 3.0 + apart})
    losses["difference"], losses["kl"] = apart, apart
    edges = np.linspace(0, size - 1, 4).astype(int)
    bins = [
        {"bin": i, "first": int(a), "last": int(b), "n": int(b - a), "perplexity": 20.0, "difference": loses * i}
        | ({"low": None, "high": None} if i == 1 else {"low": loses * i - 0.01, "high": loses * i + 0.01})
        for i, (a, b) in enumerate(zip(edges, edges[1:], strict=False))
    ]
    row = {"method": method["name"], "title": about["title"], "label": method["name"], "ceiling": about["ceiling"]}
    row |= {
        "router": results.ROUTER if about["needs"] == "router" else None,
        "settings": settings,
        "defaults": defaults,
    }
    row |= {"reads_future": any(settings[field["name"]] in field["future"] for field in about["fields"])}
    row |= {"perplexity": 20 * (1 + loses), "low": None, "high": None, "units": 1, "perplexity_dense": 20.0}
    row |= {"difference": loses, "difference_low": loses - 0.005, "difference_high": loses + 0.005}
    row |= {
        "difference_units": 2,
        "difference_unit": "blocks of 64 tokens in this text",
        "kl_mean": loses,
        "kl_p99": 2 * loses,
    }
    row |= {
        "same_top1": 1 - loses,
        "reads_causal": share,
        "kv_read": share,
        "attended": 512.5 * share,
        "reads_kv": SHARING.get(method["name"], 1.0) * share,
        "attended_kv": SHARING.get(method["name"], 1.0) * 512.5 * share,
        "sharing": SHARING.get(method["name"], 1.0),
        "worst_bin": 2,
        "bins": bins,
    }
    row |= {"worst_bin_difference": 2 * loses, "tokens": len(position)}
    notes = [f"The first {len(table):,} tokens are scored."]
    numbers = {"rows": [row], "window": size, "heads_sharing": 2, "sentence": "", "notes": notes}
    numbers["protocol"] = results.protocol("evaluate", args, len(table))
    return Result(numbers, {"tokens": table, "losses": losses})


def continuation(args: dict, text: str | None) -> Result:
    """A quarter of the cache kept costs 2%, and an eighth of the blocks read 10%; nothing given up costs nothing."""
    (method,) = args["methods"]
    about = DESCRIBED[method["name"]]
    settings = {field["name"]: field["default"] for field in about["fields"]} | method["settings"]
    memory = about["saves"] == "memory"
    share = args["share"] or (1 - settings["ratio"] if memory else 0.125)
    common = {"setting": "no question", "kept_keys": 64.0, "perplexity": 20.0, "units": 16, "unit": "stretches"}
    dense = common | {"method": "dense", "label": "Dense", "settings": {}, "kv_bytes": 4_000_000, "kv_share": 1.0}
    dense |= {"kv_most_bytes": 4_000_000}
    dense |= {"blocks": None, "difference": 0.0, "low": None, "high": None}
    row = common | {"method": method["name"], "label": about["title"], "settings": settings}
    row |= {"kv_bytes": round(4e6 * share) if memory else 4_000_000, "kv_share": share if memory else 1.0}
    row |= {"blocks": None if memory else share, "difference": 0.02 if memory else 0.1, "low": 0.01, "high": 0.12}
    row |= {"kv_most_bytes": row["kv_bytes"] + 1_000_000 * memory}
    numbers = {"rows": [dense, row], "notes": ["A note."], "sentence": "It follows."}
    return Result(numbers | {"protocol": {"verb": "continuation", "model": args["model"], "tokens": 4 * 64}})


ANSWERS = {"evaluate": evaluate, "continuation": continuation}


def opened(**link: object):
    """Quality vs speed as a link opens it: about the story, its first 1,024 tokens."""
    usual = {"text": cached.sample("story"), "quality_read": 1024}
    return in_process.opened("methods", **usual | link)
