"""How fast the sparse kernels are on this machine, at which lengths, and where dense attention wins.

Attention alone has bare shapes, unit-normal queries and keys, dense and sparse in turns. Memberships are random and
balanced, random and skewed, or those of a model's router on a real text. A whole model is timed by length of its
prompt, and one decode step of attention by length of its cache.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
import torch

from ... import timing
from ...answer import doc, record
from ...corpus import sample_texts
from ...errors import BadSetting, TooLarge
from ...groups.controls import random_tokens
from ...kernels.merge import merges
from ...methods import METHODS
from ...models import Model
from ...statistics import attention_inputs
from ...timing.inference import DecodeTime, InferenceTime, time_decode, time_inference
from ..context import Context, check_seed, made_on, protocol, read
from ..groups.routers import memberships, router_for
from .bench_model import bench_model
from .bench_sliders import bench_sliders
from .bench_statistics import bench_statistics
from .benched import Benchmark
from .launch import MAX_NEW, retained

Members = Callable[[int, int], torch.Tensor]  # (length, seed) -> bool [T, K]
WHAT = ("attention", "decode", "inference", "statistics", "model", "sliders")
LENGTHS = (1024, 4096, 16384)
TYPES = ("bfloat16", "float16", "float32")
# Times dense attention that are aimed at, for these shapes: length -> ratio. A whole model is to be as quick as dense.
AIMED = {"heads": 8, "head_dim": 64, "groups": 8, "top": 1, "window": 128}
TARGETS: dict[str, dict[int, float]] = {
    "attention": {1024: 1.0, 4096: 2.2, 16384: 4.6, 32768: 5.4, 65536: 6.5},
    "decode": {32768: 5.0},
    "inference": {2000: 1.0, 2032: 1.0},
}
ENDS = {"": "median", "_low": "low", "_high": "high"}
SKEW = 0.8  # skewed groups: each is a fifth smaller than the one before; with 8 groups the largest holds 24%
MERGED = 1024  # tokens on which the ways to merge are compared


@record
class Curve(Benchmark):
    """Sparse against the fastest dense kernel by length: milliseconds, speed-up with its spread over rounds and the
    target that is aimed at, bound 1 / retained pairs, memory, and where the time goes."""

    crossover: int | None = doc("length from which sparse wins; null where it does not at the longest")
    missing: list[str] = doc("dense kernels that cannot run here")
    curve: pd.DataFrame = doc("the rows")


@record
class AttentionCurve(Curve):
    """Attention alone, where the parts of grouped attention are merged."""

    merges: dict | None = doc(
        "why the parts must be disjoint: cosine and error of each way to merge, on 1,024 tokens; null for several "
        "groups per token"
    )


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
) -> Benchmark:
    """Time grouped attention against the fastest dense kernel at several lengths.

    `what`: attention over a text; `decode`, one token over a KV cache; `inference`, a whole model with `new_tokens`;
    `statistics`, those of every head (`bench_statistics`); `model`, every page's verb on a text (`bench_model`);
    `sliders`, moved in Chromium (`bench_sliders`).

    `router`: take the memberships of this router of `model` on `text` (the bundled story unless given) in `layer` (the
    middle one unless given), repeated where a length is longer than the text; `groups` and `top` are then the router's.
    Errors: TooLarge before anything starts.
    """
    if what not in WHAT:
        raise BadSetting(f"What is timed must be one of {', '.join(WHAT)}, and {what[:40]!r} was asked for.")
    if what == "statistics":
        return bench_statistics(lengths, repeats, seed, context)
    if what == "model":
        return bench_model(model, text, lengths, context)
    if what == "sliders":
        return bench_sliders(context)
    if what == "inference":
        return _inference(model, text, router or f"k{groups}-top{top}", lengths, window, new_tokens, repeats, context)
    lengths = sorted(set(lengths or LENGTHS))
    check_seed(seed)
    shape = {"heads": heads, "kv_heads": kv_heads or heads, "head_dim": head_dim, "window": window}
    counts = {"groups": groups, "top": top, "batch": batch, "repeats": repeats}
    _check({"lengths": lengths[0], **shape, **counts}, dtype)
    device = context.torch_device()
    for length in lengths:
        timing.check_memory(length, batch, heads, shape["kv_heads"], head_dim, device)
    draw, about = _memberships(context, groups, top, skew, router, layer, text, model)
    shape |= {"dtype": dtype, "device": device, "seed": seed}
    defaults = {"verb": "bench", "what": what, "revision": None, "text": None, "model": None}
    about = {**defaults, **about, **shape, "repeats": 4 * repeats if what == "decode" else repeats}
    rows, missing = [], []
    for index, length in enumerate(lengths):
        report = context.within(index / len(lengths), 1 / len(lengths), f"{length:,} tokens").progress
        sizes = {"groups": about["groups"], "k": about["top"], "repeats": about["repeats"], **shape}
        if what == "decode":
            report(0.0, "one token after them")
            row = _decoded(time_decode(length, members=draw(length, seed * 1000), **sizes))
            rows.append(row | {"target": _target(what, length, about, router)})
            continue
        report(0.0, "memberships")
        members = torch.stack([draw(length, seed * 1000 + sequence) for sequence in range(batch)])
        timed = timing.time_attention(length, members=members, batch=batch, parts=True, progress=report, **sizes)
        rows.append(_attended(timed) | {"target": _target(what, length, about, router) if batch == 1 else None})
        missing = timed.missing
    about |= {"kernel": rows[-1]["kernel"], "dense_kernel": rows[-1]["dense_kernel"]}
    about["processor"] = timing.processor(device)
    if what == "decode":
        return Curve(**_curve(rows, missing, "a token"), protocol=made_on(**about))
    states = torch.randn(3, 1, 2, MERGED, head_dim, generator=torch.Generator().manual_seed(0))
    states = states.to(device, getattr(torch, dtype))
    merged = None
    if about["top"] == 1:
        merged = merges(*states, draw(MERGED, 0).to(device), window)
    return AttentionCurve(**_curve(rows, missing), merges=merged, protocol=made_on(**about, batch=batch))


def _target(what: str, length: int, about: dict, router: str | None) -> float | None:
    """The ratio to dense that is aimed at, for the shapes it is defined for."""
    defined_shapes = all(about[name] == wanted for name, wanted in AIMED.items())
    return TARGETS[what].get(length) if defined_shapes and router is None else None


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
    if router is None:
        draw = skewed_tokens if skew else random_tokens
        description = "random, each group a fifth smaller than the one before" if skew else "random, balanced"
        about = {"groups": groups, "top": top, "memberships": description}
        return lambda length, seed: draw(length, groups, top, seed), about
    lm = context.model(model)
    layer = lm.num_layers // 2 if layer is None else layer
    if not 0 <= layer < lm.num_layers:
        raise BadSetting(f"Layers run from 0 to {lm.num_layers - 1}, and {layer} was asked for.")
    key = text or context.add_text(*sample_texts()["story"])
    reading = read(context, lm, key)
    focus_router = router_for(context, lm, router)[0]
    projected = attention_inputs(lm, reading.windows, make=focus_router.project)
    real = memberships(focus_router, projected)[1][layer]  # [T, K]
    description = f"router {router}, layer {layer}, on {reading.name}: {len(real):,} tokens, repeated to the length"
    about = {"groups": focus_router.K, "top": focus_router.top, "memberships": description}
    about |= {"router": router, "layer": layer}
    about |= {"text": key, "model": lm.name, "revision": lm.revision, "tokens": len(real)}
    return lambda length, seed: real.repeat(-(-length // len(real)), 1)[:length], about


def _inference(
    model: str, text: str, router: str, lengths: list | None, window: int, new: int, repeats: int, context: Context
) -> Curve:
    """Time a model with Focus against itself dense, prompt and tokens apart, at several lengths of the prompt.

    The text (the bundled story unless given) is repeated where a prompt is longer. As `bench`, where `dense_ms`,
    `sparse_ms` and `speedup` are of the prompt; `prefill_ms`, `ms_per_token`, `kv_bytes` of both sides beside.
    """
    lm = context.model(model)
    lengths = _lengths(lm, lengths, new)
    key = text or context.add_text(*sample_texts()["story"])
    ids = read(context, lm, key).tokens.ids
    method = METHODS["focus"].build(router_for(context, lm, router)[0], window=window)
    for length in lengths:
        timing.check_model_memory(lm, length, new, method.top)
    rows, missing = [], []
    for index, length in enumerate(lengths):
        report = context.within(index / len(lengths), 1 / len(lengths), f"{length:,} tokens").progress
        timed = time_inference(lm, method, np.resize(ids, length), new, repeats, report)
        rows.append(_prompted(timed, str(lm.dtype)[6:], method.n_sink) | {"target": TARGETS["inference"].get(length)})
        missing = timed.missing
    about = {"router": router, "settings": {"top": method.top, "window": window, "n_sink": method.n_sink}}
    about |= {"kernel": rows[-1]["kernel"], "dense_kernel": rows[-1]["dense_kernel"], "what": "inference"}
    about |= {"new_tokens": new, "repeats": repeats, "processor": timing.processor(str(lm.device))}
    return Curve(**_curve(rows, missing, "the prompt"), protocol=protocol("bench", lm, key, len(ids), **about))


def _lengths(model: Model, lengths: list[int] | None, new_tokens: int) -> list[int]:
    """The prompts to time, checked: a quarter, half and all of what the model reads at once, unless given."""
    longest = model.max_positions - new_tokens
    if not 2 <= new_tokens <= min(MAX_NEW, model.max_positions - 2):
        raise BadSetting(f"{new_tokens:,} new tokens were asked for: choose between 2 and {MAX_NEW:,}.")
    lengths = sorted(set(lengths or (max(2, longest // 4), max(2, longest // 2), longest)))
    if lengths[0] < 2:
        raise BadSetting(f"A prompt of {lengths[0]} tokens was asked for: choose 2 or more.")
    if lengths[-1] > longest:
        raise TooLarge(
            f"{lengths[-1]:,} tokens and {new_tokens:,} new ones are more than the {model.max_positions:,} that "
            f"{model.name} reads at once: choose at most {longest:,} tokens."
        )
    return lengths


def _times(dense: timing.Timing, sparse: timing.Timing, speedup: timing.Timing) -> dict:
    times = {"dense_ms": dense.median * 1e3, "sparse_ms": sparse.median * 1e3}
    return times | {f"speedup{end}": getattr(speedup, of) for end, of in ENDS.items()}


def _attended(timed: timing.AttentionTime) -> dict:
    return {
        **{name: getattr(timed, name) for name in ("length", "batch", "dtype", "kernel", "backend", "dense_kernel")},
        **_times(timed.dense, timed.sparse, timed.speedup),
        **{name: getattr(timed, name) for name in ("bound", "retained", "computed", "memory", "why")},
        **{f"{name}_ms": seconds * 1e3 for name, seconds in timed.parts.items()},
    }


def _decoded(timed: DecodeTime) -> dict:
    return {
        **{"length": timed.length, "batch": 1, "dtype": timed.dtype, "kernel": timed.kernel},
        **{"dense_kernel": timed.dense_kernel, **_times(timed.dense, timed.sparse, timed.speedup)},
        **{"bound": timed.bound, "retained": 1 / timed.bound},
        **{"dense_bytes": timed.dense_bytes, "sparse_bytes": timed.sparse_bytes},
    }


def _prompted(timed: InferenceTime, dtype: str, n_sink: int) -> dict:
    share, sides = retained(timed.ran, n_sink), {"dense": timed.dense, "sparse": timed.sparse}
    return {
        **{"length": timed.length, "batch": 1, "dtype": dtype, "kernel": timed.sparse.kernel},
        **{"dense_kernel": timed.dense.kernel},
        **_times(timed.dense.prefill, timed.sparse.prefill, timed.prefill),
        **{f"speedup_per_token{end}": getattr(timed.per_token, of) for end, of in ENDS.items()},
        **{"bound": share and 1 / share, "retained": share},
        "prefill_ms": {name: side.prefill.median * 1e3 for name, side in sides.items()},
        "ms_per_token": {name: side.per_token.median * 1e3 for name, side in sides.items()},
        "kv_bytes": {name: side.kv_bytes for name, side in sides.items()},
        "kv_bytes_read_per_step": {name: side.kv_bytes_read for name, side in sides.items()},
    }


def _curve(rows: list[dict], missing: list[str], phase: str = "") -> dict:
    """The fields of a `Curve`; `phase` was timed, attention alone unless it is named."""
    crossover, last = timing.crossover([(row["length"], row["speedup"]) for row in rows]), rows[-1]
    speed, dense_wins = f"{phase} {last['speedup']:.2f} times as fast as dense at {last['length']:,} tokens", ""
    if not phase:
        speed = f"{last['speedup']:.2f} times dense attention at {last['length']:,} tokens (bound {last['bound']:.2f})"
        dense_wins = "sparse runs at "
    sentence = f"Dense wins below about {crossover or 0:,} tokens; {dense_wins}{speed}."
    if crossover is None:
        sentence = f"Dense wins at every length measured: {dense_wins}{speed}."
    elif crossover == rows[0]["length"]:
        sentence = f"Sparse wins at every length measured: {speed}."
    table = pd.json_normalize(rows, sep="_").drop(columns="why", errors="ignore")
    return {"rows": rows, "crossover": crossover, "missing": missing, "sentence": sentence, "curve": table}


def _check(sizes: dict[str, int], dtype: str) -> None:
    for name, value in sizes.items():
        if value < 1:
            raise BadSetting(f"{name} must be 1 or more, and {value} was asked for.")
    heads, kv_heads, groups, top = (sizes[name] for name in ("heads", "kv_heads", "groups", "top"))
    if dtype not in TYPES:
        raise BadSetting(f"The type is {dtype[:20]!r} and must be one of {', '.join(TYPES)}.")
    if heads % kv_heads:
        raise BadSetting(f"{kv_heads} heads of keys and values do not divide {heads} heads of queries.")
    if not top <= groups <= 64:
        raise BadSetting(f"A token cannot be in {top} of {groups} groups: choose 1 to 64 groups, and top up to that.")
