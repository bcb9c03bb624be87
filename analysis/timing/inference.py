"""Timing a whole model, dense and sparse in turns; and one decode step: reading a token's groups, against everything.

The opponent of a whole model is the stock model on its fastest dense path here: torch's quickest kernel for its prompt,
and whichever KV cache is quicker, transformers' own or one that never copies the past, so that no gain of the latter
counts as a gain of reading less.
"""

import math
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from ..errors import BadSetting
from ..groups.controls import random_tokens
from ..kernels import parts
from ..kernels.decode import GroupMajor, Growing
from ..kernels.parts import now
from ..seam.arguments import as_past
from ..seam.attention import apply, ran
from ..seam.cache import Cache, DynamicCache, GrowingCache, cache_bytes
from ..seam.calls import Ran
from ..seam.layers import attention_as
from . import CANDIDATES, Timing, clock, fastest_dense, peak_bytes

PARTS = ("router", *parts.PARTS, "rest")
CACHES = {
    "transformers' cache": lambda lm: DynamicCache(config=lm.config),
    "growing cache": lambda lm: GrowingCache(lm.config),
}
TRIAL = 8  # tokens that decide between the caches
COMPILED = "a compiled decode step (torch.compile with a static cache)"


@dataclass(frozen=True)
class Side:
    """One way to run the model. Times in seconds: `prefill` to the first token, `per_token` after it (each round's
    median); `tokens_per_second` new tokens by the whole time, prompt included; bytes of the KV cache held, read in the
    last step, and the most memory beyond the weights (None where it cannot be measured); `tokens` the new ones.
    """

    kernel: str
    prefill: Timing
    per_token: Timing
    tokens_per_second: float
    kv_bytes: int
    kv_bytes_read: int
    peak_bytes: int | None
    tokens: list[int]


@dataclass(frozen=True)
class InferenceTime:
    """A model with a method against itself without. `prefill` and `per_token` are speed-ups, dense by sparse, round by
    round; `ran` which kernel ran in which layer and why; `parts` and `step_parts` seconds of one prompt and of one
    token by PARTS; `dense_kernel` torch's quickest kernel for this prompt, `missing` the ones that are not here.
    """

    length: int
    dense: Side
    sparse: Side
    prefill: Timing
    per_token: Timing
    ran: list[Ran]
    parts: dict[str, float]
    step_parts: dict[str, float]
    dense_kernel: str
    missing: list[str]


@dataclass(frozen=True)
class _Pass:
    """One prompt and its new tokens: seconds to the first, seconds of each after it, and the KV cache at the end."""

    prefill: float
    steps: list[float]
    tokens: list[int]
    cache: Cache
    ran: list[Ran]

    @property
    def per_token(self) -> float:
        return float(np.median(self.steps))


@torch.no_grad()
def time_inference(
    model, method, token_ids, new_tokens: int, repeats: int = 5, progress: Callable[[float, str], None] | None = None
) -> InferenceTime:
    """Time `new_tokens` greedy tokens after the prompt `token_ids` [T], dense and with `method` in turns.

    `model` a `Model`. `progress(fraction, stage)` is called between runs, never while the method is applied.
    """
    if new_tokens < 2:
        raise BadSetting(f"{new_tokens} new tokens have no time per token: choose 2 or more.")
    lm, told = model.lm, progress or (lambda fraction, stage: None)
    ids = torch.as_tensor(np.asarray(token_ids)).long().reshape(1, -1).to(lm.device)
    told(0.0, "looking for the fastest dense path")
    shape = (model.num_heads, model.num_kv_heads, model.num_kv_heads)
    kernel, _, missing = fastest_dense(
        *(torch.randn(1, n, ids.shape[1], model.head_dim, dtype=lm.dtype, device=lm.device) for n in shape)
    )

    def dense(cache: str, tokens: int) -> _Pass:
        with _dense_path(lm, kernel):
            return _run(lm, ids, tokens, CACHES[cache](lm))

    trials = {cache: dense(cache, min(new_tokens, TRIAL)) for cache in CACHES}
    trials = {cache: dense(cache, min(new_tokens, TRIAL)) for cache in trials}  # the first ones warm up
    cache = min(trials, key=lambda name: trials[name].per_token)

    def sparse() -> _Pass:
        with apply(model, method, kernels=True):
            return _run(lm, ids, new_tokens, method.cache(lm) or CACHES[cache](lm))

    found = {"dense": [], "sparse": []}
    runs = {"dense": lambda: dense(cache, new_tokens), "sparse": sparse}
    clock(
        {side: lambda side=side: found[side].append(runs[side]()) for side in runs},
        repeats,
        lambda done, side: told(0.1 + 0.7 * done, f"{side}, {ids.shape[1]:,} tokens"),
    )
    sides = {}
    for done, side in ((0.8, "dense"), (0.9, "sparse")):
        told(done, f"memory, {side}")
        sides[side] = _side(side, found[side], peak_bytes(runs[side], lm.device), f"{kernel}, {cache}")
    with apply(model, method, kernels=True):
        of_prompt, of_token = _parts(lm, ids, min(new_tokens, TRIAL), method.cache(lm) or CACHES[cache](lm))
    rounds = list(zip(found["dense"][1:], found["sparse"][1:], strict=True))  # without the warm-up
    return InferenceTime(
        ids.shape[1],
        **sides,
        prefill=Timing.of([a.prefill / b.prefill for a, b in rounds]),
        per_token=Timing.of([a.per_token / b.per_token for a, b in rounds]),
        ran=found["sparse"][-1].ran,
        **{"parts": of_prompt, "step_parts": of_token, "dense_kernel": kernel, "missing": [*missing, COMPILED]},
    )


def _run(lm, ids: Tensor, new_tokens: int, cache: Cache) -> _Pass:
    start = now()
    token, tokens, steps = next_token(lm, ids, cache), [], []
    prefill = now() - start
    for _ in range(new_tokens - 1):
        tokens.append(int(token))
        start = now()
        token = next_token(lm, token, cache)
        steps.append(now() - start)
    return _Pass(prefill, steps, [*tokens, int(token)], cache, ran(lm))


def next_token(lm, ids: Tensor, cache: Cache) -> Tensor:
    """The most likely token [1, 1] after the tokens [1, T], which are added to the KV cache."""
    logits = lm(input_ids=ids, **as_past(lm, cache), use_cache=True, logits_to_keep=1).logits
    return logits[:, -1].argmax(-1, keepdim=True)


def _side(side: str, runs: list[_Pass], peak: int | None, dense: str) -> Side:
    held, read = cache_bytes(runs[-1].cache)
    prefill, step = (Timing.of([getattr(one, name) for one in runs[1:]]) for name in ("prefill", "per_token"))
    new, took = len(runs[-1].tokens), [one.prefill + sum(one.steps) for one in runs[1:]]
    kernels = dict.fromkeys(f"{entry.phase}: {entry.kernel}" for entry in runs[-1].ran)
    kernel = dense if side == "dense" else "; ".join(kernels)
    return Side(kernel, prefill, step, new / float(np.median(took)), held, read, peak, runs[-1].tokens)


def _parts(lm, ids: Tensor, new_tokens: int, cache: Cache) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds by part of one prompt, and of one token after it."""
    found = []
    for count in (1, new_tokens - 1):
        with parts.collect() as seconds:
            start = now()
            for _ in range(count):
                ids = next_token(lm, ids, cache)
            whole = now() - start
        seconds["rest"] = whole - sum(seconds.values())
        found.append({name: seconds.get(name, 0.0) / count for name in PARTS})
    return tuple(found)


@contextmanager
def _dense_path(lm, kernel: str):
    """The stock model, with torch's attention where its family takes it, the quickest kernel first."""
    first = [CANDIDATES[kernel]] if kernel in CANDIDATES else []
    with ExitStack() as stack:
        with suppress(ValueError):  # a family with a soft cap keeps its own
            stack.enter_context(attention_as(lm, "sdpa"))
        stack.enter_context(
            sdpa_kernel([*first, *(k for k in CANDIDATES.values() if k not in first)], set_priority=True)
        )
        yield


@dataclass(frozen=True)
class DecodeTime:
    """One decode step of attention, sparse against dense, at a cache of `length` tokens; seconds, and the bytes of keys
    and values each side reads (the mean over steps). `bound` dense bytes by sparse ones."""

    length: int
    dtype: str
    kernel: str
    dense_kernel: str
    dense: Timing
    sparse: Timing
    speedup: Timing
    dense_bytes: int
    sparse_bytes: int
    bound: float


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
    progress: Callable[[float, str], None] | None = None,
    seed: int = 0,
) -> DecodeTime:
    """Time a step that appends one token and reads: unit-normal keys, `members` bool [T, K] or k random groups each.

    Dense reads all of a preallocated cache with torch's quickest kernel for a single query.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else torch.device(device)
    kind, kv_heads, draw = getattr(torch, dtype), kv_heads or heads, torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw).to(device, kind)

    keys, values, q = (normal(1, *shape, head_dim) for shape in ((kv_heads, length), (kv_heads, length), (heads, 1)))
    members = (random_tokens(length, groups, k, seed) if members is None else members).to(device)
    new, coming = normal(1, kv_heads, 1, head_dim), cycle(members)
    text = GroupMajor(keys, values, members, window, n_sink)
    plain = Growing(keys, spare=repeats + 99), Growing(values, spare=repeats + 99)

    read = []

    def sparse():
        text.put(new, new, next(coming))
        text.attend(q, head_dim**-0.5)
        read.append(text.read_bytes)

    def dense():
        for buffer in plain:
            buffer.put(new)
        rows = (buffer.rows for buffer in plain)
        F.scaled_dot_product_attention(q, *rows, enable_gqa=heads != kv_heads)

    name = quickest(dense)
    with sdpa_kernel(CANDIDATES[name]):
        timed = clock({"dense": dense, "sparse": sparse}, repeats, progress)
    held, each = sum(buffer.rows.nbytes for buffer in plain), sum(read) // len(read)
    return DecodeTime(
        *(length, dtype, "group-major cache", name),
        **timed,
        speedup=timed["dense"].over(timed["sparse"]),
        **{"dense_bytes": held, "sparse_bytes": each, "bound": held / each},
    )


def quickest(dense: Callable[[], object]) -> str:
    """The name of torch's kernel that runs this fastest."""
    best = math.inf, ""
    for name, backend in CANDIDATES.items():
        with suppress(RuntimeError), sdpa_kernel(backend):
            best = min(best, (clock({name: dense}, 3)[name].low, name))
    return best[1]
