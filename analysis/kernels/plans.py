"""Which kernel runs, and why: the cheaper of the sparse one and masked dense, predicted from the group sizes."""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from analysis.errors import BadSetting
from analysis.kernels.cuda import MOST_DIMENSIONS, why_not
from analysis.kernels.members import causal_pairs, kept_pairs
from analysis.kernels.window import Band

BACKENDS = ("auto", "reference", "torch", "flash_attn")
FAST_TYPES = (torch.float32, torch.bfloat16, torch.float16)
# CPU, measured, in pairs of a long dense call, for float32 and for halves. The flash kernel takes fewer queries at once
# in shorter calls: (from so many queries, at once, price of a pair); keys come in stretches of 512, so a short causal
# call computes up to twice what it keeps.
TILES = ((768, 256, (1.0, 1.0)), (192, 64, (1.15, 1.3)), (1, 32, (1.6, 2.2)))
KEYS = 512
BIASED = 1.15  # a pair under a bias
PER_TOKEN = (120, 300)  # sorting, gathering and merging one membership
MASKED = (1.5, 1.8)  # masked dense attention


@dataclass(frozen=True)
class Plan:
    """What `grouped_attention` runs for these memberships.

    `kernel`: groups (one group per token), lowest shared group (several), masked (sparse cannot win), causal (every
    causal pair is kept). `why`: one sentence. `cost`: predicted time as a multiple of dense attention. Counts are per
    head: `pairs` kept, `retained` their share of the causal pairs (1 / retained bounds any speed-up), `computed` pairs
    the kernel computes, as a multiple of the causal pairs.
    """

    kernel: str
    backend: str
    why: str
    cost: float
    computed: float
    members: Tensor = field(repr=False)
    window: int = field(repr=False)

    @cached_property
    def pairs(self) -> int:
        """Pairs kept, counted exactly when first asked for."""
        return kept_pairs(self.members, self.window)

    @property
    def retained(self) -> float:
        """Kept pairs by causal pairs."""
        return self.pairs / causal_pairs(*self.members.shape[:2])


def plan(members: Tensor, window: int, heads: int, head_dim: int, dtype, device, backend: str = "auto") -> Plan:
    """Choose for members bool [B, T, K] or [T, K]; errors: BadSetting for what a backend cannot run."""
    device = torch.device(device)
    backend = _backend(backend, head_dim, dtype, device)
    members = members if members.dim() == 3 else members[None]
    length, groups = members.shape[1:]
    of_token = members.sum(-1)
    fewest, most = int(of_token.min()), int(of_token.max())

    def made(kernel: str, why: str, cost: float = 1.0, computed: float = 1.0) -> Plan:
        return Plan(kernel, backend, why, cost, computed, members, window)

    if backend == "reference":
        return made("masked", "The reference computes every causal pair, in blocks of queries.")
    if length <= window:
        return made("causal", f"The window of {window:,} tokens covers all {length:,}: this is dense attention.")
    if 2 * fewest > groups:
        return made("causal", f"Each token is in {fewest} or more of {groups} groups, so any two share one: dense.")
    if bool(members.all(1).any(1).all()):
        return made("causal", "One group holds every token: this is dense attention.")
    sizes = members.sum(1).flatten().tolist()
    kernel = "groups" if most <= 1 else "lowest shared group"
    if device.type != "cpu":
        if dtype == torch.float32:
            return made("masked", f"{backend} has no sparse kernel in float32 on this device: masked dense attention.")
        wide = -(-(head_dim + groups) // 8) * 8
        if wide > MOST_DIMENSIONS:
            return made(
                "masked",
                f"{head_dim} head dimensions and {groups} groups exceed the {MOST_DIMENSIONS} of {backend}.",
            )
        cost, computed = _packed_cost(sizes, members.shape, window, head_dim, wide, most)
    else:
        cost, computed = _cpu_cost(sizes, members.shape, window, head_dim, most, dtype)
    instead = MASKED[dtype != torch.float32]
    if cost > (instead if most <= 1 else 1):
        return made(
            "masked",
            f"Sparse cannot win here: it would take {cost:.1f} times dense attention, so masked dense attention runs.",
            instead,
        )
    said = f"predicted {cost:.2f} of dense attention's time"
    return made(kernel, f"{said}." if cost < 1 else f"{said}: dense wins at this length.", cost, computed)


def _backend(name: str, head_dim: int, dtype: torch.dtype, device: torch.device) -> str:
    """The backend that runs; `auto` takes torch where it can, the reference elsewhere."""
    if name not in BACKENDS:
        raise BadSetting(f"The backend is {str(name)[:40]!r} and must be one of {', '.join(BACKENDS)}.")
    if name == "reference":
        return name
    why = why_not(name, head_dim, dtype, device) if device.type == "cuda" or name == "flash_attn" else None
    if device.type not in ("cpu", "cuda"):
        why = f"The backend {name} runs on cpu and cuda only, and the tensors are on {device.type}: use reference."
    elif device.type == "cpu" and dtype not in FAST_TYPES:
        why = f"The backend {name} takes float32, bfloat16 and float16, not {str(dtype)[6:]}: use reference."
    if why is None:
        return "torch" if name == "auto" else name
    if name == "auto":
        return "reference"
    raise BadSetting(why)


def _cpu_cost(sizes: list[int], shape, window: int, head_dim: int, most: int, dtype) -> tuple[float, float]:
    """(predicted time, computed pairs), both as multiples of dense causal attention."""
    batch, length, groups = shape
    halves = dtype != torch.float32
    band = Band.of(length, window, dtype)
    pairs = batch * -(-length // band.rows) * band.rows * band.keys
    time = pairs * BIASED * _tile(band.rows, halves)[1] + PER_TOKEN[halves] * sum(sizes)
    extra = 8 * -(-(groups - 1) // 16) if most > 1 else 0  # head dimensions, on average
    for size in filter(None, sizes):
        group_time, group_pairs = _causal(size, halves)
        time += group_time * (1 + extra / head_dim)
        pairs += group_pairs
    return time / (batch * _causal(length, halves)[0]), pairs / causal_pairs(batch, length)


def _causal(length: int, halves: bool) -> tuple[float, int]:
    """(time in pairs of the widest tile, pairs computed) of one causal call of the CPU kernel."""
    rows, price = _tile(length, halves)
    pairs = sum(
        min(rows, length - start) * min(length, -(-min(start + rows, length) // KEYS) * KEYS)
        for start in range(0, length, rows)
    )
    return pairs * price, pairs


def _tile(queries: int, halves: bool) -> tuple[int, float]:
    """(queries at once, price of a pair)."""
    return next((rows, price[halves]) for least, rows, price in TILES if queries >= least)


def _packed_cost(sizes, shape, window: int, head_dim: int, wide: int, most: int) -> tuple[float, float]:
    batch, length, _ = shape
    inner = sum(size * (size + 1) // 2 for size in sizes)
    near = batch * length * min(window, length)
    dense = causal_pairs(batch, length)
    time = inner * (wide if most > 1 else head_dim) / head_dim + near * wide / head_dim + PER_TOKEN[0] * sum(sizes)
    return time / dense, (inner + near) / dense
