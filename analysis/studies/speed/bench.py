"""How fast the sparse kernels are on this machine, at which lengths, and where dense attention wins.

The attention half: bare shapes, unit-normal queries and keys, dense and sparse in turns. Memberships are random and
balanced, random and skewed, or those of a model's router on a real text.
"""

import numpy as np
import pandas as pd
import torch

from analysis.corpus import sample_texts
from analysis.errors import BadSetting
from analysis.groups.controls import random_tokens
from analysis.kernels.merge import merges
from analysis.runs import Result
from analysis.statistics import attention_inputs
from analysis.studies.context import Context, check_seed, made_on, read
from analysis.studies.groups.routers import memberships, router_for
from analysis.studies.speed.bench_model import Members, bench_decode, bench_inference
from analysis.studies.speed.bench_statistics import bench_statistics
from analysis.timing import AttentionTime, check_memory, crossover, processor, time_attention

WHAT = ("attention", "decode", "inference", "statistics")
LENGTHS = (1024, 4096, 16384)
TYPES = ("bfloat16", "float16", "float32")
SKEW = 0.8  # skewed groups: each is a fifth smaller than the one before; with 8 groups the largest holds 24 %
MERGED = 1024  # tokens on which the ways to merge are compared


def bench(
    what: str = "attention",
    lengths: list[int] | None = None,
    heads: int = 8,
    head_dim: int = 64,
    groups: int = 8,
    top: int = 1,
    window: int = 128,
    dtype: str = "bfloat16",
    batch: int = 1,
    repeats: int = 5,
    kv_heads: int | None = None,
    skew: bool = False,
    router: str | None = None,
    layer: int | None = None,
    text: str = "",
    model: str = "demo",
    seed: int = 0,
    new_tokens: int = 16,
    *,
    context: Context,
) -> Result:
    """Time grouped attention against the fastest dense kernel at several lengths.

    `what`: attention over a text; `decode`, one token over a KV cache; `inference`, a whole model with `new_tokens`;
    `statistics`, those of every head (`bench_statistics`).

    `router`: take the memberships of this router of `model` on `text` (the bundled story unless given) in `layer` (the
    middle one unless given), repeated where a length is longer than the text; `groups` and `top` are then the router's.
    numbers: `rows` (also the table `curve`: milliseconds, speed-up with its spread over rounds, bound 1 / retained
    pairs, peak memory by q, k, v and out, and where the time goes), `crossover` (the length from which sparse wins, or
    None), `missing` dense kernels, `merges` (why the parts must be disjoint: cosine and error of each way to merge,
    on 1,024 tokens; None for several groups per token), `sentence`. Errors: TooLarge before anything starts.
    """
    if what not in WHAT:
        raise BadSetting(f"What is timed must be one of {', '.join(WHAT)}, and {what[:40]!r} was asked for.")
    if what == "statistics":
        return bench_statistics(lengths, repeats, seed, context)
    if what == "inference":
        router = router or f"k{groups}-top{top}"
        return bench_inference(model, text, router, lengths, window, new_tokens, repeats, context)
    lengths = sorted(set(lengths or LENGTHS))
    check_seed(seed)
    _check(lengths, heads, head_dim, groups, top, window, dtype, batch, repeats, kv_heads)
    device = context.torch_device()
    for length in lengths:
        check_memory(length, batch, heads, kv_heads or heads, head_dim, device)
    made, about = _memberships(context, groups, top, skew, router, layer, text, model)
    if what == "decode":
        shape = {"heads": heads, "head_dim": head_dim, "kv_heads": kv_heads or heads, "dtype": dtype, "window": window}
        return bench_decode(lengths, shape | {"seed": seed}, made, about, repeats, device, context)
    rows, missing = [], []
    for index, length in enumerate(lengths):

        def progress(done: float, side: str, index: int = index, length: int = length) -> None:
            context.progress((index + done) / len(lengths), f"{length:,} tokens, {side}")

        progress(0.0, "memberships")
        timed = time_attention(
            *(length, heads, head_dim, about["groups"], window),
            **{"k": about["top"], "dtype": dtype, "batch": batch, "kv_heads": kv_heads, "repeats": repeats},
            members=torch.stack([made(length, seed * 1000 + at) for at in range(batch)]),
            **{"device": device, "parts": True, "progress": progress, "seed": seed},
        )
        rows.append(_row(timed))
        missing = timed.missing
    where = crossover([(row["length"], row["speedup"]) for row in rows])
    numbers = {
        "rows": rows,
        "crossover": where,
        "missing": missing,
        "merges": _merges(made, head_dim, window, dtype, device) if about["top"] == 1 else None,
        "sentence": _sentence(rows, where),
        "protocol": made_on(
            **{"verb": "bench", "what": what, "revision": None, "text": None, "model": None, **about},
            **{"window": window, "seed": seed, "dtype": dtype, "device": device, "kernel": rows[-1]["kernel"]},
            **{"heads": heads, "kv_heads": kv_heads or heads, "head_dim": head_dim, "batch": batch},
            **{"repeats": repeats, "dense_kernel": rows[-1]["dense_kernel"], "processor": processor(device)},
        ),
    }
    return Result(numbers, {"curve": pd.DataFrame(rows).drop(columns="why")})


def skewed_tokens(tokens: int, groups: int, top: int, seed: int) -> torch.Tensor:
    """Membership by chance in groups of which each is a fifth smaller than the one before: bool [tokens, groups]."""
    uniform = torch.rand(tokens, groups, generator=torch.Generator().manual_seed(seed)).clamp_(1e-9, 1 - 1e-7)
    drawn = torch.arange(groups) * np.log(SKEW) - torch.log(-torch.log(uniform))  # Gumbel: draws without replacement
    chosen = drawn.topk(top, -1).indices
    return torch.zeros(tokens, groups, dtype=torch.bool).scatter_(-1, chosen, True)


def _memberships(
    context: Context, groups: int, top: int, skew: bool, router: str | None, layer: int | None, text: str, model: str
) -> tuple[Members, dict]:
    """How memberships are made for a length, and what the protocol says of it."""
    about = {"groups": groups, "top": top, "memberships": "random, balanced"}
    if router is None:
        draw = skewed_tokens if skew else random_tokens
        about["memberships"] = "random, each group a fifth smaller than the one before" if skew else "random, balanced"
        return lambda length, seed: draw(length, groups, top, seed), about
    lm = context.model(model)
    layer = lm.num_layers // 2 if layer is None else layer
    if not 0 <= layer < lm.num_layers:
        raise BadSetting(f"Layers run from 0 to {lm.num_layers - 1}, and {layer} was asked for.")
    key = text or context.add_text(*sample_texts()["story"])
    reading = read(context, lm, key)
    made = router_for(context, lm, router)[0]
    real = memberships(made, attention_inputs(lm, reading.windows))[1][layer]  # [T, K]
    said = f"router {router}, layer {layer}, on {reading.name}: {len(real):,} tokens, repeated to the length"
    about |= {"groups": made.K, "top": made.top, "memberships": said, "router": router, "layer": layer}
    about |= {"text": key, "model": lm.name, "revision": lm.revision, "tokens": len(real)}
    return lambda length, seed: real.repeat(-(-length // len(real)), 1)[:length], about


def _merges(made: Members, head_dim: int, window: int, dtype: str, device: str) -> dict:
    states = torch.randn(3, 1, 2, MERGED, head_dim, generator=torch.Generator().manual_seed(0))
    return merges(*states.to(device, getattr(torch, dtype)), made(MERGED, 0).to(device), window)


def _row(timed: AttentionTime) -> dict:
    return {
        **{name: getattr(timed, name) for name in ("length", "batch", "dtype", "kernel", "backend", "dense_kernel")},
        "dense_ms": timed.dense.median * 1e3,
        "sparse_ms": timed.sparse.median * 1e3,
        "speedup": timed.speedup.median,
        "speedup_low": timed.speedup.low,
        "speedup_high": timed.speedup.high,
        **{name: getattr(timed, name) for name in ("bound", "retained", "computed", "memory", "why")},
        **{f"{name}_ms": seconds * 1e3 for name, seconds in timed.parts.items()},
    }


def _sentence(rows: list[dict], where: int | None) -> str:
    last = rows[-1]
    at = f"{last['speedup']:.2f} times dense attention at {last['length']:,} tokens (bound {last['bound']:.2f})"
    if where is None:
        return f"Dense wins at every length measured: sparse runs at {at}."
    if where == rows[0]["length"]:
        return f"Sparse wins at every length measured: {at}."
    return f"Dense wins below about {where:,} tokens; sparse runs at {at}."


def _check(
    lengths: list[int],
    heads: int,
    head_dim: int,
    groups: int,
    top: int,
    window: int,
    dtype: str,
    batch: int,
    repeats: int,
    kv_heads: int | None,
) -> None:
    sizes = {"lengths": lengths[0], "heads": heads, "head_dim": head_dim, "groups": groups, "top": top}
    sizes |= {"window": window, "batch": batch, "repeats": repeats, "kv_heads": kv_heads or 1}
    for name, value in sizes.items():
        if value < 1:
            raise BadSetting(f"{name} must be 1 or more, and {value} was asked for.")
    if dtype not in TYPES:
        raise BadSetting(f"The type is {dtype[:20]!r} and must be one of {', '.join(TYPES)}.")
    if kv_heads and heads % kv_heads:
        raise BadSetting(f"{kv_heads} heads of keys and values do not divide {heads} heads of queries.")
    if not top <= groups <= 64:
        raise BadSetting(f"A token cannot be in {top} of {groups} groups: choose 1 to 64 groups, and top up to that.")
