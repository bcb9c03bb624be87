"""Timing a whole model, dense and sparse in turns; and one decode step: reading a token's groups, against everything.

The opponent of a whole model is the stock model on its fastest dense path here: torch's quickest kernel for its prompt,
and whichever KV cache is quicker, transformers' own or one that never copies the past, so that no gain of the latter
counts as a gain of reading less.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from ..answer import doc, record
from ..errors import BadSetting
from ..groups.controls import random_tokens
from ..kernels import parts
from ..kernels.decode import Growing
from ..kernels.parts import now
from ..models import Model
from ..seam.arguments import as_past
from ..seam.attention import apply, ran
from ..seam.cache import ByGroup, Cache, DynamicCache, GrowingCache, cache_bytes
from ..seam.calls import Ran
from ..seam.layers import attention_as
from . import CANDIDATES, Compared, Progress, Timing, clock, device_of, fastest_dense, peak_bytes, quickest

# Speed-up -> the times that it compares.
SPEEDUPS = {"prefill": "prefill_ms", "per_token": "ms_per_token"}
PARTS = ("router", *parts.PARTS, "rest")
CACHES = {
    "transformers' cache": lambda lm: DynamicCache(config=lm.config),
    "growing cache": lambda lm: GrowingCache(lm.config),
}
# Tokens that decide between the caches.
TRIAL = 8
COMPILED = "a compiled decode step (torch.compile with a static cache)"


@record
class SideTimes:
    """What one side took. Times are median, low and high of the rounds, in milliseconds."""

    side: str = doc("dense or sparse")
    kernel: str = doc("what computed it")
    prefill_ms: dict = doc("time to the first token")
    ms_per_token: dict = doc("time of each further token")
    tokens_per_second: float = doc("further tokens a second")
    kv_bytes: int = doc("bytes of the KV cache at the end")
    kv_bytes_read_per_step: int = doc("bytes of it that a further token reads")
    peak_bytes: int | None = doc("peak memory beside the weights")


@dataclass(frozen=True)
class InferenceTime:
    """A model with a method against itself without, `dense` and `sparse`. `prefill` and `per_token` are speed-ups,
    dense by sparse, round by round; `rounds` a row for each side and round in milliseconds; `ran` which kernel ran in
    which layer and why; `parts` and `step_parts` seconds of one prompt and of one token by PARTS; `missing` the dense
    kernels that are not here; `tokens` the new ones of both sides.
    """

    length: int
    dense: SideTimes
    sparse: SideTimes
    prefill: Timing
    per_token: Timing
    rounds: pd.DataFrame
    ran: list[Ran]
    parts: dict[str, float]
    step_parts: dict[str, float]
    missing: list[str]
    tokens: list[list[int]]

    @property
    def sides(self) -> list[SideTimes]:
        """Both."""
        return [self.dense, self.sparse]


class _Pass(NamedTuple):
    """One prompt and its new tokens: seconds of the first and of each after it, and the KV cache at the end."""

    seconds: list[float]
    tokens: list[int]
    cache: Cache
    ran: list[Ran]

    @property
    def per_token(self) -> float:
        return median(self.seconds[1:])


@torch.no_grad()
def time_inference(
    model: Model,
    method: Any,
    token_ids: Any,
    new_tokens: int,
    repeats: int = 5,
    progress: Progress | None = None,
) -> InferenceTime:
    """Time `new_tokens` greedy tokens after the prompt `token_ids` [T], dense and with `method` in turns.

    `progress(fraction, stage)` is called between runs, never while the method is applied.
    """
    if new_tokens < 2:
        raise BadSetting(f"{new_tokens} new tokens have no time per token: choose 2 or more.")
    lm, report = model.lm, progress or (lambda fraction, stage: None)
    ids = torch.as_tensor(np.asarray(token_ids)).long().reshape(1, -1).to(lm.device)
    length, trial = ids.shape[1], min(new_tokens, TRIAL)
    report(0.0, "looking for the fastest dense path")
    shapes = [(1, n, length, model.head_dim) for n in (model.num_heads, model.num_kv_heads, model.num_kv_heads)]
    kernel, _, missing = fastest_dense(*(torch.randn(*shape, dtype=lm.dtype, device=lm.device) for shape in shapes))

    def dense(cache: str, tokens: int) -> _Pass:
        with _dense_path(lm, kernel):
            return _run(lm, ids, tokens, CACHES[cache](lm))

    # the first ones warm up
    for _ in range(2):
        trials = {cache: dense(cache, trial) for cache in CACHES}
    cache = min(trials, key=lambda name: trials[name].per_token)

    def sparse() -> _Pass:
        with apply(model, method, kernels=True):
            return _run(lm, ids, new_tokens, method.cache(lm) or CACHES[cache](lm))

    runs: dict[str, Callable[[], _Pass]] = {"dense": partial(dense, cache, new_tokens), "sparse": sparse}
    last, rows = {}, []

    def keep(side: str) -> None:
        last[side] = one = runs[side]()
        times = {"prefill_ms": one.seconds[0] * 1e3, "ms_per_token": one.per_token * 1e3}
        rows.append({"side": side, **times, "seconds": sum(one.seconds)})

    def timing(done: float, side: str) -> None:
        report(0.1 + 0.7 * done, f"{side}, {length:,} tokens")

    clock({side: partial(keep, side) for side in runs}, repeats, timing)
    # without the warm-up round
    rounds = pd.DataFrame(rows[len(runs) :]).sort_values("side", kind="stable", ignore_index=True)
    rounds.insert(0, "round", rounds.groupby("side").cumcount())
    sides = {}
    for done, (side, of_side) in zip((0.8, 0.9), rounds.groupby("side"), strict=True):
        report(done, f"memory, {side}")
        peak = peak_bytes(runs[side], lm.device)
        named = f"{kernel}, {cache}" if side == "dense" else ""
        sides[side] = _side(side, of_side, last[side], peak, named)
    with apply(model, method, kernels=True):
        of_prompt, of_token = _parts(lm, ids, trial, method.cache(lm) or CACHES[cache](lm))
    times = rounds.pivot(index="round", columns="side")
    prefill, per_token = (Timing.of((times[n, "dense"] / times[n, "sparse"]).tolist()) for n in SPEEDUPS.values())
    return InferenceTime(
        length=length,
        dense=sides["dense"],
        sparse=sides["sparse"],
        prefill=prefill,
        per_token=per_token,
        rounds=rounds.drop(columns="seconds"),
        ran=last["sparse"].ran,
        parts=of_prompt,
        step_parts=of_token,
        missing=[*missing, COMPILED],
        tokens=[last[side].tokens for side in runs],
    )


def _run(lm: Any, ids: Tensor, new_tokens: int, cache: Cache) -> _Pass:
    tokens, seconds = [], []
    for _ in range(new_tokens):
        start = now()
        ids = next_token(lm, ids, cache)
        seconds.append(now() - start)
        tokens.append(int(ids))
    return _Pass(seconds, tokens, cache, ran(lm))


def next_token(lm: Any, ids: Tensor, cache: Cache) -> Tensor:
    """The most likely token [1, 1] after the tokens [1, T], which are added to the KV cache."""
    logits = lm(input_ids=ids, **as_past(lm, cache), use_cache=True, logits_to_keep=1).logits
    return logits[:, -1].argmax(-1, keepdim=True)


def _side(side: str, rounds: pd.DataFrame, last: _Pass, peak: int | None, kernel: str) -> SideTimes:
    held, read = cache_bytes(last.cache)
    return SideTimes(
        side=side,
        kernel=kernel or "; ".join(dict.fromkeys(f"{entry.phase}: {entry.kernel}" for entry in last.ran)),
        **{name: Timing.of(rounds[name].tolist()).spread() for name in SPEEDUPS.values()},
        tokens_per_second=len(last.tokens) / rounds["seconds"].median(),
        kv_bytes=held,
        kv_bytes_read_per_step=read,
        peak_bytes=peak,
    )


def _parts(lm: Any, ids: Tensor, new_tokens: int, cache: Cache) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds by part of one prompt, and of one token after it."""
    found = []
    for count in (1, new_tokens - 1):
        with parts.collect() as seconds:
            start = now()
            for _ in range(count):
                ids = next_token(lm, ids, cache)
            seconds["rest"] = now() - start - sum(seconds.values())
        found.append({name: seconds.get(name, 0.0) / count for name in PARTS})
    return found[0], found[1]


@contextmanager
def _dense_path(lm: Any, kernel: str) -> Iterator[None]:
    """The stock model, with torch's attention where its family takes it, the quickest kernel first."""
    first = [CANDIDATES[kernel]] if kernel in CANDIDATES else []
    others = [backend for backend in CANDIDATES.values() if backend not in first]
    with ExitStack() as stack:
        # a family with a soft cap keeps its own
        with suppress(ValueError):
            stack.enter_context(attention_as(lm, "sdpa"))
        stack.enter_context(sdpa_kernel([*first, *others], set_priority=True))
        yield


@dataclass(frozen=True, kw_only=True)
class DecodeTime(Compared):
    """One decode step of attention at a cache of `length` tokens, and the bytes of keys and values each side reads (the
    mean over steps). `bound` dense bytes by sparse ones."""

    dense_bytes: int
    sparse_bytes: int


@torch.no_grad()
def time_decode(
    length: int,
    heads: int,
    head_dim: int,
    groups: int,
    window: int,
    k: int = 1,
    dtype: str = "bfloat16",
    kv_heads: int | None = None,
    repeats: int = 20,
    device: str = "auto",
    n_sink: int = 0,
    members: Tensor | None = None,
    progress: Progress | None = None,
    seed: int = 0,
) -> DecodeTime:
    """Time a step that appends one token and reads: unit-normal keys, `members` bool [T, K] or k random groups each.

    Dense reads all of a preallocated cache with torch's quickest kernel for a single query.
    """
    at, kind, draw = device_of(device), getattr(torch, dtype), torch.Generator().manual_seed(seed)
    kv_heads = kv_heads or heads
    shapes = [
        (1, n, tokens, head_dim) for n, tokens in ((kv_heads, length), (kv_heads, length), (heads, 1), (kv_heads, 1))
    ]
    keys, values, q, new = (torch.randn(*shape, generator=draw).to(at, kind) for shape in shapes)
    members = (random_tokens(length, groups, k, seed) if members is None else members).to(at)
    # as a model holds it on this device
    held = ByGroup(keys, values, members[None], window, n_sink)
    coming = cycle(members)
    plain = [Growing(x, spare=repeats + 99) for x in (keys, values)]
    read = []

    def sparse() -> None:
        held.coming = next(coming)[None, None]
        held.put(new, new)
        held.attend(q, head_dim**-0.5, None)
        read.append(held.read_bytes)

    def dense() -> None:
        for buffer in plain:
            buffer.put(new)
        F.scaled_dot_product_attention(q, plain[0].rows, plain[1].rows, enable_gqa=heads != kv_heads)

    name = quickest_backend(dense)
    with sdpa_kernel(CANDIDATES[name]):
        timed = clock({"dense": dense, "sparse": sparse}, repeats, progress)
    dense_bytes, sparse_bytes = sum(buffer.rows.nbytes for buffer in plain), sum(read) // len(read)
    return DecodeTime(
        length=length,
        dtype=dtype,
        kernel="group-major cache",
        dense_kernel=name,
        dense=timed["dense"],
        sparse=timed["sparse"],
        dense_bytes=dense_bytes,
        sparse_bytes=sparse_bytes,
        bound=dense_bytes / sparse_bytes,
    )


def quickest_backend(dense: Any) -> str:
    """The name of torch's kernel that runs this fastest."""

    def by(name: str) -> None:
        with sdpa_kernel(CANDIDATES[name]):
            dense()

    return quickest({name: partial(by, name) for name in CANDIDATES})[0]
