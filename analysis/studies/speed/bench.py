"""How fast the sparse kernels are on this machine, at which lengths, and where dense attention wins.

Attention alone has bare shapes, unit-normal queries and keys, dense and sparse in turns. Memberships are random and
balanced, random and skewed, or those of a model's router on a real text. A whole model is timed by length of its
prompt, and one decode step of attention by length of its cache.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch

from ... import timing
from ...answer import doc, record
from ...commands.speed import Bench
from ...corpus import sample_texts
from ...errors import BadSetting, TooLarge
from ...groups.controls import random_tokens
from ...kernels.merge import merges
from ...methods import METHODS
from ...models import Model
from ...statistics import attention_inputs
from ...timing import memory
from ...timing.inference import time_decode, time_inference
from ..context import Context, made_on, protocol, read
from ..groups.routers import heads_note, memberships, router_for, shared_router
from ..text.states import check_head
from .bench_model import bench_model
from .benched import Benchmark, ends
from .launch import retained

Members = Callable[[int, int], torch.Tensor]  # (length, seed) -> bool [T, K]
LENGTHS = (1024, 4096, 16384)
# Times dense attention that are aimed at, for these shapes: length -> ratio. A whole model is to be as quick as dense.
AIMED = {"heads": 8, "head_dim": 64, "groups": 8, "top": 1, "window": 128}
TARGETS: dict[str, dict[int, float]] = {
    "attention": {1024: 1.0, 4096: 2.2, 16384: 4.6, 32768: 5.4, 65536: 6.5},
    "decode": {32768: 5.0},
    "inference": {2000: 1.0, 2032: 1.0},
}
# Skewed groups: each is a fifth smaller than the one before; with 8 groups the largest holds 24%.
SKEW = 0.8
# Tokens on which the ways to merge are compared.
MERGED = 1024
FIELDS = ("length", "batch", "dtype", "kernel", "backend", "dense_kernel")
READ = ("bound", "retained", "computed", "memory", "why", "dense_bytes", "sparse_bytes")


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


def bench(request: Bench, *, context: Context) -> Benchmark:
    """Time grouped attention against the fastest dense kernel at several lengths. The memberships of a `router`, with
    its groups and top, are of `layer` (the middle one unless given), repeated where a length is longer than the text.
    Errors: TooLarge before anything starts."""
    if request.what == "model":
        return bench_model(request.model, request.text, request.lengths, context)
    return _inference(request, context) if request.what == "inference" else _kernels(request, context)


def _kernels(request: Bench, context: Context) -> Curve:
    """Attention over a text, or of one token over a KV cache."""
    lengths, decode = sorted(set(request.lengths or LENGTHS)), request.what == "decode"
    kv_heads = request.kv_heads or request.heads
    if lengths[0] < 1:
        raise BadSetting(f"lengths must be 1 or more, and {lengths[0]} was asked for.")
    if request.heads % kv_heads:
        raise BadSetting(f"{kv_heads} heads of keys and values do not divide {request.heads} heads of queries.")
    if request.top > request.groups:
        raise BadSetting(f"A token cannot be in {request.top} of {request.groups} groups: choose top up to that.")
    device = context.torch_device()
    for length in lengths:
        sizes_of = (length, request.batch, request.heads, kv_heads, request.head_dim)
        memory.check_memory(*sizes_of, device, request.dtype, request.top)
    draw, about = _memberships(request, context)
    shape: dict[str, Any] = {name: getattr(request, name) for name in ("heads", "head_dim", "window", "dtype", "seed")}
    shape |= {"kv_heads": kv_heads, "device": device}
    about = {"verb": "bench", "what": request.what, "revision": None, "text": None, "model": None} | about | shape
    about["repeats"] = 4 * request.repeats if decode else request.repeats
    sizes = shape | {"groups": about["groups"], "k": about["top"], "repeats": about["repeats"]}
    # A ratio to dense is aimed at for these shapes alone.
    is_aimed = all(about[name] == wanted for name, wanted in AIMED.items()) and request.backend == "auto"
    is_aimed = is_aimed and request.router is None and (request.batch == 1 or decode)
    rows, missing = [], []
    for index, length in enumerate(lengths):
        report = context.within(index / len(lengths), 1 / len(lengths), f"{length:,} tokens").progress
        report(0.0, "one token after them" if decode else "memberships")
        aimed = TARGETS[request.what].get(length) if is_aimed else None
        if decode:
            step = time_decode(length, members=draw(length, request.seed * 1000), **sizes)
            rows.append(_row(step, batch=1, retained=1 / step.bound) | {"target": aimed})
            continue
        texts = [draw(length, request.seed * 1000 + text) for text in range(request.batch)]
        timed = timing.time_attention(
            length,
            members=torch.stack(texts),
            batch=request.batch,
            parts=True,
            progress=report,
            backend=request.backend,
            **sizes,
        )
        parts = {f"{name}_ms": seconds * 1e3 for name, seconds in (timed.parts or {}).items()}
        rows.append(_row(timed) | parts | {"target": aimed})
        missing = timed.missing
    about |= {name: rows[-1][name] for name in ("kernel", "dense_kernel")} | {"processor": timing.processor(device)}
    if decode:
        return Curve(**_curve(rows, missing, "a token"), protocol=made_on(**about))
    states = torch.randn(3, 1, 2, MERGED, request.head_dim, generator=torch.Generator().manual_seed(0))
    q, k, v = states.to(device, getattr(torch, request.dtype))
    merged = merges(q, k, v, draw(MERGED, 0).to(device), request.window) if about["top"] == 1 else None
    return AttentionCurve(**_curve(rows, missing), merges=merged, protocol=made_on(**about, batch=request.batch))


def skewed_tokens(tokens: int, groups: int, top: int, seed: int) -> torch.Tensor:
    """Membership by chance in groups of which each is a fifth smaller than the one before: bool [tokens, groups]."""
    uniform = torch.rand(tokens, groups, generator=torch.Generator().manual_seed(seed)).clamp_(1e-9, 1 - 1e-7)
    # Gumbel noise: the largest are a draw without replacement
    drawn = torch.arange(groups) * np.log(SKEW) - torch.log(-torch.log(uniform))
    return torch.zeros(tokens, groups, dtype=torch.bool).scatter_(-1, drawn.topk(top, -1).indices, True)


def _memberships(request: Bench, context: Context) -> tuple[Members, dict]:
    """How memberships are made for a length, and what the protocol says of it."""
    if request.router is None:
        draw: Callable[..., torch.Tensor] = skewed_tokens if request.skew else random_tokens
        how = "each group a fifth smaller than the one before" if request.skew else "balanced"
        about = {"groups": request.groups, "top": request.top, "memberships": f"random, {how}"}
        return lambda length, seed: draw(length, request.groups, request.top, seed), about
    lm = context.model(request.model)
    layer = lm.layer_numbers[lm.num_layers // 2] if request.layer is None else request.layer
    place = check_head(lm, layer, 0)
    key = request.text or context.add_text(*sample_texts()["story"])
    reading, router = read(context, lm, key), shared_router(context, lm, request.router)[0]
    projected = attention_inputs(lm, reading.windows, make=router.project)
    real = memberships(router, projected)[1][place]  # [T, K]
    where = f"router {request.router}, layer {layer}, on {reading.name}"
    where += "".join(f" ({note})" for note in heads_note(router))
    about = {"memberships": f"{where}: {len(real):,} tokens, repeated to the length", "router": request.router}
    about |= {"groups": router.K, "top": router.top, "layer": layer, "tokens": len(real)}
    about |= {"text": key, "model": lm.name, "revision": lm.revision}
    return lambda length, seed: real.repeat(-(-length // len(real)), 1)[:length], about


def _inference(request: Bench, context: Context) -> Curve:
    """A model with Focus against itself dense, prompt and tokens apart, at several lengths of the prompt.

    The text (the bundled story unless given) is repeated where a prompt is longer. `dense_ms`, `sparse_ms` and
    `speedup` are of the prompt; `prefill_ms`, `ms_per_token`, `kv_bytes` of both sides beside.
    """
    lm, window = context.model(request.model), request.window
    lengths = _lengths(lm, request.lengths, request.new_tokens)
    router = request.router or f"k{request.groups}-top{request.top}"
    key = request.text or context.add_text(*sample_texts()["story"])
    ids = read(context, lm, key).tokens.ids
    method: Any = METHODS["focus"].build(router_for(context, lm, router)[0], window=window)
    for length in lengths:
        memory.check_model_memory(lm, length, request.new_tokens, method.top)
    rows, missing = [], []
    for index, length in enumerate(lengths):
        report = context.within(index / len(lengths), 1 / len(lengths), f"{length:,} tokens").progress
        timed = time_inference(lm, method, np.resize(ids, length), request.new_tokens, request.repeats, report)
        share, (dense, sparse) = retained(timed.ran, method.n_sink), timed.sides
        row: dict[str, Any] = {"length": timed.length, "batch": 1, "dtype": str(lm.dtype)[6:]}
        row |= {"kernel": sparse.kernel, "dense_kernel": dense.kernel}
        row |= {"dense_ms": dense.prefill_ms["median"], "sparse_ms": sparse.prefill_ms["median"]}
        row |= ends("speedup", timed.prefill) | ends("speedup_per_token", timed.per_token)
        row |= {"bound": share and 1 / share, "retained": share, "target": TARGETS["inference"].get(length)}
        for name in ("prefill_ms", "ms_per_token"):
            row[name] = {side.side: getattr(side, name)["median"] for side in timed.sides}
        for name in ("kv_bytes", "kv_bytes_read_per_step"):
            row[name] = {side.side: getattr(side, name) for side in timed.sides}
        rows.append(row)
        missing = timed.missing
    about: dict[str, Any] = {
        "router": router,
        "settings": {"top": method.top, "window": window, "n_sink": method.n_sink},
    }
    about |= {name: rows[-1][name] for name in ("kernel", "dense_kernel")} | {"what": "inference"}
    about |= {"new_tokens": request.new_tokens, "repeats": request.repeats}
    about["processor"] = timing.processor(str(lm.device))
    return Curve(**_curve(rows, missing, "the prompt"), protocol=protocol("bench", lm, key, len(ids), **about))


def _lengths(model: Model, lengths: list[int] | None, new_tokens: int) -> list[int]:
    """The prompts to time, checked: a quarter, half and all of what the model reads at once, unless given."""
    longest = model.max_positions - new_tokens
    if longest < 2:
        raise BadSetting(f"{new_tokens:,} new tokens were asked for: choose between 2 and {model.max_positions - 2:,}.")
    lengths = sorted(set(lengths or (max(2, longest // 4), max(2, longest // 2), longest)))
    if lengths[0] < 2:
        raise BadSetting(f"A prompt of {lengths[0]} tokens was asked for: choose 2 or more.")
    if lengths[-1] > longest:
        raise TooLarge(
            f"{lengths[-1]:,} tokens and {new_tokens:,} new ones are more than the {model.max_positions:,} that "
            f"{model.name} reads at once: choose at most {longest:,} tokens."
        )
    return lengths


def _row(timed: timing.Compared, **more: Any) -> dict:
    facts = vars(timed) | more
    times = {"dense_ms": timed.dense.median * 1e3, "sparse_ms": timed.sparse.median * 1e3}
    first, last = ({name: facts[name] for name in names if name in facts} for names in (FIELDS, READ))
    return first | times | ends("speedup", timed.speedup) | last


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
