"""Measuring time and memory: interleaved rounds, the fastest dense kernel as opponent, everything inside the clock.

A speed-up is the median of the ratios of rounds, so that a machine that slows down slows both sides. Sorting, gathering
and merging are part of the call that is timed; nothing is prepared outside it.
"""

import ctypes
import importlib.util
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..errors import BadSetting, TooLarge
from ..groups.controls import random_tokens
from ..kernels import grouped_attention, parts, plan
from ..kernels.parts import now
from ..models import Model
from ..models.weights import free_bytes

MATH_BYTES = 1 << 30  # the kernel that holds T x T is no candidate beyond this
CANDIDATES = {  # name -> torch's backend
    "torch flash": SDPBackend.FLASH_ATTENTION,
    "torch math": SDPBackend.MATH,
    "torch memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "torch cuDNN": SDPBackend.CUDNN_ATTENTION,
}
ON_CPU = ("torch flash", "torch math")
PACKAGES = {"flash-attn 2": "flash_attn", "FlashAttention 3": "flash_attn_interface"}  # timed when installed, on CUDA
PEAK, NOW = "VmHWM", "VmRSS"
TIMES_HELD = 4  # most memory of a measurement, in multiples of q, k, v and out in float32
SPARE = 128 << 20  # bytes beside a model: blocks of scores, and what a library keeps


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


@dataclass(frozen=True)
class AttentionTime:
    """Grouped attention against dense causal attention at one shape.

    `dense`, `sparse` in seconds; `speedup` dense by sparse, round by round; `bound` 1 / retained, which no exact kernel
    can pass; `memory` peak bytes of the call by the bytes of q, k, v and out (None where it cannot be measured);
    `parts` name -> seconds of one more call, or None.
    """

    length: int
    batch: int
    dtype: str
    kernel: str
    backend: str
    why: str
    dense_kernel: str
    missing: list[str]
    dense: Timing
    sparse: Timing
    speedup: Timing
    bound: float
    retained: float
    computed: float
    memory: float | None
    parts: dict[str, float] | None


def clock(
    callables: dict[str, Callable[[], object]], repeats: int = 5, progress: Callable[[float, str], None] | None = None
) -> dict[str, Timing]:
    """Time callables in turns: one warm-up round, then `repeats` rounds whose order alternates.

    GPU work is waited for. `progress(fraction, name)` is called before each call, outside the clock.
    """
    if repeats < 1:
        raise BadSetting(f"{repeats} rounds measure nothing: choose 1 or more.")
    seconds = {name: [] for name in callables}
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
    progress: Callable[[float, str], None] | None = None,
    seed: int = 0,
) -> AttentionTime:
    """Time grouped attention on unit-normal q, k, v against the fastest dense kernel here.

    `members` bool [T, K] or [B, T, K]; each token in `k` of `groups` random groups unless given. Errors: BadSetting.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else torch.device(device)
    kind, kv_heads = getattr(torch, dtype), kv_heads or heads
    draw = torch.Generator().manual_seed(seed)
    q, keys, v = (
        torch.randn(batch, n, length, head_dim, generator=draw).to(device, kind) for n in (heads, kv_heads, kv_heads)
    )
    if members is None:
        members = torch.stack([random_tokens(length, groups, k, seed + at) for at in range(batch)])
    members = members.expand(batch, -1, -1).to(device)
    chosen = plan(members, window, heads, head_dim, kind, device)
    opponent, dense, missing = fastest_dense(q, keys, v)
    torch.empty(31 << 20, dtype=torch.uint8)  # glibc keeps what is freed only once a larger piece was: for both sides

    def sparse():
        return grouped_attention(q, keys, v, members, window)

    timed = clock({"dense": lambda: dense(q, keys, v), "sparse": sparse}, repeats, progress)
    held = (2 * q.numel() + 2 * v.numel()) * q.element_size()
    peak = peak_bytes(sparse, device)
    return AttentionTime(
        *(length, batch, dtype, chosen.kernel, chosen.backend, chosen.why, opponent, missing),
        **timed,
        speedup=timed["dense"].over(timed["sparse"]),
        bound=1 / chosen.retained,
        retained=chosen.retained,
        computed=chosen.computed,
        memory=None if peak is None else (held - q.numel() * q.element_size() + peak) / held,
        parts=time_parts(sparse) if parts else None,
    )


def fastest_dense(q: Tensor, k: Tensor, v: Tensor) -> tuple[str, Callable[[Tensor, Tensor, Tensor], Tensor], list[str]]:
    """(name, function, names of known kernels that are missing here with the reason): tries all, keeps the quickest."""
    found, missing = {}, []
    for name, run in _dense_kernels(q).items():
        try:
            run(q, k, v)
            found[name] = run
        except RuntimeError:
            missing.append(f"{name} (does not run on this shape and type)")
    if q.is_cuda:
        missing += [f"{name} (not installed)" for name, module in PACKAGES.items() if not _installed(module)]
    else:
        missing += [f"{name} (needs an NVIDIA GPU)" for name in ("torch cuDNN", *PACKAGES)]
    best = clock({name: lambda run=run: run(q, k, v) for name, run in found.items()}, 2) if len(found) > 1 else found
    name = min(best, key=lambda name: best[name].low if len(found) > 1 else 0)
    return name, found[name], missing


def _dense_kernels(q: Tensor) -> dict[str, Callable]:
    """Dense causal kernels worth trying for this q, by name."""

    def torch_kernel(backend):
        def run(q, k, v):
            shared = q.shape[1] // k.shape[1]
            if shared > 1 and backend == SDPBackend.EFFICIENT_ATTENTION:
                # It takes no shared heads: each query head reads a copy of its own, made inside the clock.
                k, v = (x.repeat_interleave(shared, 1) for x in (k, v))
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])

        return run

    def package(module):
        run = importlib.import_module(module).flash_attn_func
        return lambda q, k, v: run(*(x.transpose(1, 2) for x in (q, k, v)), causal=True)

    heavy = q.shape[0] * q.shape[1] * q.shape[2] ** 2 * 4 > MATH_BYTES
    names = [name for name in (CANDIDATES if q.is_cuda else ON_CPU) if not (heavy and name == "torch math")]
    kernels = {name: torch_kernel(CANDIDATES[name]) for name in names}
    return kernels | {n: package(m) for n, m in PACKAGES.items() if q.is_cuda and _installed(m)}


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def time_parts(run: Callable[[], object]) -> dict[str, float]:
    """Seconds of each part of one call of the kernels, and of what is in none of them (`rest`)."""
    with parts.collect() as seconds:
        start = now()
        run()
        whole = now() - start
    return {**{name: seconds.get(name, 0.0) for name in parts.PARTS}, "rest": whole - sum(seconds.values())}


def peak_bytes(run: Callable[[], object], device: torch.device) -> int | None:
    """Most memory one call holds beyond what was held before it, in bytes; None where the system does not say."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return torch.cuda.max_memory_allocated() - before
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what is free but kept would hide what the call takes
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the highest mark begins anew
        before = _resident(NOW)
        run()
        return _resident(PEAK) - before
    except (OSError, AttributeError):
        return None


def _resident(mark: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(mark))


def check_memory(length: int, batch: int, heads: int, kv_heads: int, head_dim: int, device: str) -> None:
    """Refuse a length that does not fit, with the numbers, before anything is made. Errors: TooLarge."""
    needed = TIMES_HELD * batch * length * head_dim * (2 * heads + 2 * kv_heads) * 4
    free = free_bytes(device)
    if needed > 0.9 * free:
        most = int(0.9 * free / needed * length)
        raise TooLarge(
            f"{length:,} tokens ({batch} x {heads} heads of {head_dim}) need about {needed / 1e9:,.1f} GB and "
            f"{free / 1e9:,.1f} GB are free on {device}: choose at most {most:,} tokens."
        )


def check_model_memory(model: Model, length: int, new_tokens: int, top: int) -> None:
    """Refuse a prompt that does not fit into memory, with the numbers, before anything runs. Errors: TooLarge."""
    item = model.dtype.itemsize
    states = (model.num_heads + model.num_kv_heads) * model.head_dim
    of_token = 2 * model.num_layers * model.num_kv_heads * model.head_dim * (1 + top) * 1.5  # KV, both caches, room
    of_token += 4 * model.width + 3 * model.inner + 6 * states
    needed = (length + new_tokens) * of_token * item + SPARE
    free = free_bytes(model.device)
    if needed > 0.9 * free:
        most = max(0, int((0.9 * free - SPARE) / (of_token * item)) - new_tokens)
        raise TooLarge(
            f"{length:,} tokens of {model.name} need about {needed / 1e9:,.1f} GB beside the weights and "
            f"{free / 1e9:,.1f} GB are free on {model.device}: choose at most {most:,} tokens."
        )


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
    share = -np.log(below) / (np.log(above) - np.log(below))
    return round(float(np.exp(np.log(a) + share * (np.log(b) - np.log(a)))))


def processor(device: str) -> str:
    """The name of the chip that computed, and its widest instructions."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    try:
        with open("/proc/cpuinfo") as file:
            told = file.read()
    except OSError:
        told = ""
    name = next((line.split(":", 1)[1].strip() for line in told.splitlines() if line.startswith("model name")), "CPU")
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}{' with AMX' if 'amx_bf16' in told else ''}"
