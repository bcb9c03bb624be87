"""Measuring time: interleaved rounds, the fastest dense kernel as opponent, everything inside the clock.

A speed-up is the median of the ratios of rounds, so that a machine that slows down slows both sides. Sorting, gathering
and merging are part of the call that is timed; nothing is prepared outside it.
"""

import importlib
import importlib.util
import statistics
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..errors import BadSetting
from ..groups.controls import random_tokens
from ..kernels import grouped_attention, parts, plan
from ..kernels.parts import now
from ..kernels.pool import accelerated
from ..runs.machine import facts, processor_name
from .memory import peak_bytes

# The kernel that holds T x T is no candidate beyond this.
MATH_BYTES = 1 << 30
CANDIDATES = {  # name -> torch's backend
    "torch flash": SDPBackend.FLASH_ATTENTION,
    "torch math": SDPBackend.MATH,
    "torch memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "torch cuDNN": SDPBackend.CUDNN_ATTENTION,
}
ON_CPU = ("torch flash", "torch math")
# Timed when installed, on CUDA.
PACKAGES = {"flash-attn 2": "flash_attn", "FlashAttention 3": "flash_attn_interface"}
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Timing:
    """Seconds of one callable over the rounds: `median`, the quickest `low`, the slowest `high`, all in order."""

    median: float
    low: float
    high: float
    seconds: list[float]

    @classmethod
    def of(cls, values: list[float]) -> "Timing":
        """Summarise values that were measured in this order."""
        return cls(statistics.median(values), min(values), max(values), list(values))

    def over(self, other: "Timing") -> "Timing":
        """The ratios to another one's, round by round."""
        return Timing.of([a / b for a, b in zip(self.seconds, other.seconds, strict=True)])

    def spread(self, times: float = 1.0) -> dict[str, float]:
        """`median low high`, multiplied (1e3: milliseconds)."""
        return {"median": self.median * times, "low": self.low * times, "high": self.high * times}


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Sparse attention against dense at one length, in turns: `dense` and `sparse` in seconds, `bound` the speed-up
    that no exact kernel can pass."""

    length: int
    dtype: str
    kernel: str
    dense_kernel: str
    dense: Timing
    sparse: Timing
    bound: float

    @property
    def speedup(self) -> Timing:
        """Dense by sparse, round by round."""
        return self.dense.over(self.sparse)


@dataclass(frozen=True, kw_only=True)
class AttentionTime(Compared):
    """Grouped attention: what its `Plan` says, the dense kernels that are `missing`, `memory` peak bytes of the call by
    the bytes of q, k, v and out (None where it cannot be measured), `parts` name -> seconds of one more call, or None.
    """

    batch: int
    backend: str
    why: str
    missing: list[str]
    retained: float
    computed: float
    memory: float | None
    parts: dict[str, float] | None


def clock(
    callables: Mapping[str, Callable[[], object]], repeats: int = 5, progress: Progress | None = None
) -> dict[str, Timing]:
    """Time callables in turns: one warm-up round, then `repeats` rounds whose order alternates.

    GPU work is waited for. `progress(fraction, name)` is called before each call, outside the clock.
    """
    if repeats < 1:
        raise BadSetting(f"{repeats} rounds measure nothing: choose 1 or more.")
    seconds: dict[str, list[float]] = {name: [] for name in callables}
    for turn in range(repeats + 1):
        for index, name in enumerate(list(callables)[:: 1 if turn % 2 else -1]):
            if progress:
                progress((turn * len(callables) + index) / ((repeats + 1) * len(callables)), name)
            start = now()
            callables[name]()
            if turn:
                seconds[name].append(now() - start)
    return {name: Timing.of(values) for name, values in seconds.items()}


@torch.no_grad()
def time_attention(
    length: int,
    heads: int,
    head_dim: int,
    groups: int,
    window: int,
    k: int = 1,
    dtype: str = "bfloat16",
    batch: int = 1,
    kv_heads: int | None = None,
    members: Tensor | None = None,
    repeats: int = 5,
    device: str = "auto",
    parts: bool = False,
    progress: Progress | None = None,
    seed: int = 0,
    backend: str = "auto",
) -> AttentionTime:
    """Time grouped attention on unit-normal q, k, v against the fastest dense kernel here.

    `members` bool [T, K] or [B, T, K]; each token in `k` of `groups` random groups unless given. `backend`: one of
    `kernels.BACKENDS`. Errors: BadSetting.
    """
    at, kind, kv_heads = device_of(device), getattr(torch, dtype), kv_heads or heads
    draw = torch.Generator().manual_seed(seed)
    shapes = [(batch, n, length, head_dim) for n in (heads, kv_heads, kv_heads)]
    q, keys, v = (torch.randn(*shape, generator=draw).to(at, kind) for shape in shapes)
    if members is None:
        members = torch.stack([random_tokens(length, groups, k, seed + text) for text in range(batch)])
    members = members.expand(batch, -1, -1).to(at)
    chosen = plan(members, window, heads, head_dim, kind, at, backend)
    opponent, dense, missing = fastest_dense(q, keys, v)
    # glibc keeps what is freed only once a larger piece was: for both sides
    torch.empty(31 << 20, dtype=torch.uint8)
    sparse = partial(grouped_attention, q, keys, v, members, window, backend=backend)
    timed = clock({"dense": partial(dense, q, keys, v), "sparse": sparse}, repeats, progress)
    held, peak = q.nbytes + keys.nbytes + v.nbytes, peak_bytes(sparse, at)
    return AttentionTime(
        length=length,
        batch=batch,
        dtype=dtype,
        kernel=chosen.kernel,
        backend=chosen.backend,
        why=chosen.why,
        retained=chosen.retained,
        computed=chosen.computed,
        dense_kernel=opponent,
        missing=missing,
        dense=timed["dense"],
        sparse=timed["sparse"],
        bound=1 / chosen.retained,
        memory=None if peak is None else (held + peak) / (held + q.nbytes),
        parts=time_parts(sparse) if parts else None,
    )


def device_of(name: str) -> torch.device:
    """The device of this name; of `auto` a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def fastest_dense(q: Tensor, k: Tensor, v: Tensor) -> tuple[str, Callable[[Tensor, Tensor, Tensor], Tensor], list[str]]:
    """(name, function, names of known kernels that are missing here with the reason): tries all, keeps the quickest."""
    kernels = _dense_kernels(q)
    name, broken = quickest({name: partial(run, q, k, v) for name, run in kernels.items()})
    missing = [f"{name} (does not run on this shape and type)" for name in broken]
    if accelerated(q):
        missing += [f"{name} (not installed)" for name in PACKAGES if name not in kernels]
    else:
        missing += [f"{name} (needs an NVIDIA GPU)" for name in ("torch cuDNN", *PACKAGES)]
    return name, kernels[name], missing


def quickest(runs: Mapping[str, Callable[[], object]]) -> tuple[str, list[str]]:
    """(name of the run that takes least time, names of those that do not run here)."""
    running, broken = {}, []
    for name, run in runs.items():
        try:
            with warnings.catch_warnings():
                # Why a kernel of torch does not run, in five warnings.
                warnings.simplefilter("ignore", UserWarning)
                run()
            running[name] = run
        except RuntimeError:
            broken.append(name)
    if len(running) == 1:
        return next(iter(running)), broken
    timed = clock(running, 2)
    return min(timed, key=lambda name: timed[name].low), broken


def _dense_kernels(q: Tensor) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Dense causal kernels worth trying for this q, by name."""

    def torch_kernel(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if backend == SDPBackend.EFFICIENT_ATTENTION:
            # This one takes as many heads of keys as of queries.
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])

    def package(module: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        run = importlib.import_module(module).flash_attn_func
        return run(*(x.transpose(1, 2) for x in (q, k, v)), causal=True)

    heavy = q.shape[0] * q.shape[1] * q.shape[2] ** 2 * 4 > MATH_BYTES
    names = [name for name in (CANDIDATES if accelerated(q) else ON_CPU) if not (heavy and name == "torch math")]
    kernels: dict[str, Callable] = {name: partial(torch_kernel, CANDIDATES[name]) for name in names}
    for name, module in PACKAGES.items():
        if accelerated(q) and importlib.util.find_spec(module) is not None:
            kernels[name] = partial(package, module)
    return kernels


def time_parts(run: Callable[[], object]) -> dict[str, float]:
    """Seconds of each part of one call of the kernels, and of what is in none of them (`rest`)."""
    with parts.collect() as seconds:
        start = now()
        run()
        taken = now() - start
    return {**{name: seconds.get(name, 0.0) for name in parts.PARTS}, "rest": taken - sum(seconds.values())}


def exponent(points: list[tuple[int, float]]) -> float:
    """With which power of a length something grows: the slope of a straight line through (length, value), two or more,
    in the logarithms of both, by least squares."""
    lengths, values = np.log(points).T
    return float(np.polyfit(lengths, values, 1)[0])


def crossover(points: list[tuple[int, float]]) -> int | None:
    """Length from which the speed-up stays above 1, from (length, speed-up) in order of length.

    Between two measured lengths it is read off a straight line in the logarithms of both. None: never, as far as was
    measured; the first length when sparse wins at all of them.
    """
    if points[-1][1] <= 1:
        return None
    last = max((at for at, (_, times) in enumerate(points) if times <= 1), default=-1)
    if last < 0:
        return points[0][0]
    (a, below), (b, above) = points[last], points[last + 1]
    return round(float(np.exp(np.interp(0, np.log([below, above]), np.log([a, b])))))


def processor(device: str) -> str:
    """The name of the chip that computed, and its widest instructions."""
    if accelerated(torch.device(device)):
        return torch.get_device_module(device).get_device_name(device)
    widest = torch.backends.cpu.get_cpu_capability()
    return f"{processor_name()}, {widest}{' with AMX' if 'amx_bf16' in facts() else ''}"
