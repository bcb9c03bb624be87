"""Runs in words: their main number, and the names of numbers, columns and settings."""

import re
from collections.abc import Mapping
from typing import Any

NAMES = {  # a column or a key of a run -> its name
    "affinity": "affinity to the group",
    "attended": "keys of a query",
    "attended_kv": "keys of a query, per key-value head",
    "ceiling": "gain with free attention",
    "decode_gain": "largest gain, later tokens",
    "decode_share": "attention's share, later tokens",
    "difference": "change of perplexity against dense",
    "difference_high": "change of perplexity, upper end",
    "difference_low": "change of perplexity, lower end",
    "dominance": "largest group's share",
    "effective_support": "effective number of keys",
    "first_token_mass": "attention on the first token",
    "gain_bound": "largest possible gain",
    "kl_mean": "KL divergence, mean",
    "kl_p99": "KL divergence, 99th percentile",
    "kv_bytes": "KV cache held, bytes",
    "kv_bytes_read_per_step": "KV cache read per token, bytes",
    "kv_read": "keys and values fetched, share",
    "max_prob": "largest attention",
    "mean_distance": "mean distance, tokens",
    "ms_per_token": "time per output token, ms",
    "n": "tokens counted",
    "n_sink": "sinks",
    "peak_bytes": "peak memory without weights, bytes",
    "perplexity_dense": "perplexity, dense",
    "prefill_gain": "largest gain, first token",
    "prefill_ms": "time to first token, ms",
    "prefill_share": "attention's share, first token",
    "previous_token": "attention on the previous token",
    "rank": "rank, keys",
    "reads_causal": "reads, share of the causal pairs",
    "reads_full": "reads, share of all pairs",
    "reads_kv": "reads per key-value head",
    "same_top1": "same most likely token, share",
    "speedup": "speed-up, times dense",
    "top_p_rank": "top-p rank, keys",
    "window_mass": "attention inside the window",
    "worst_bin_difference": "change of perplexity, worst positions",
}
# Keys of a row that say what it is about.
WHO = ("title", "label", "side", "name", "method")


def runs(count: int) -> str:
    """So many runs."""
    return f"{count:,} run" if count == 1 else f"{count:,} runs"


def column(name: str) -> str:
    """A column in words; an inner number as in `prefill_ms.median` names both."""
    return ", ".join(NAMES.get(part, part.replace("_", " ")) for part in name.split("."))


def number(path: str, numbers: object) -> str:
    """A number of a run in words: `path` leads to it in the run's `numbers`, and rows are called by what they are
    about."""
    parts: list[str] = []
    rows: list[str] = []
    node: Any = numbers
    for part in path.split("."):
        if isinstance(node, list) and part.isdigit():
            node = node[int(part)] if int(part) < len(node) else None
            names = [node[key] for key in WHO if isinstance(node.get(key), str)] if isinstance(node, dict) else []
            rows.append(names[0] if names else f"row {int(part) + 1}")
        else:
            node = node.get(part) if isinstance(node, dict) else None
            parts += [] if part == "rows" else [column(part)]
    return ", ".join(parts) + (f" ({', '.join(rows)})" if rows else "")


def settings(sentence: str, methods: Mapping[str, dict]) -> str:
    """Settings in one line, with the titles of `methods` (name -> what describes it) and words in place of code names;
    routers and policies keep the names that their makers gave."""

    def title(match: re.Match) -> str:
        name = match.group()
        return methods[name]["title"] if name in methods else name.replace("_", " ")

    pattern = "|".join(map(re.escape, methods))
    return re.sub(rf"(?<!router )(?<!policy )\b(?:(?:{pattern})(?! \d)|[a-z]+(?:_[a-z\d]+)+)\b", title, sentence)
