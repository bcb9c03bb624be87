"""`grouped_attention`, the one name behind which the backends stand, and its plan: which kernel runs and why. It is the
cheaper of the sparse one and masked dense, predicted from the group sizes."""

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from ..errors import BadSetting
from . import gpu, packed, reference
from .constants import Host, accelerator, host, measured
from .dense import HALVES
from .members import MOST_GROUPS, causal_pairs, kept_pairs
from .merge import read_sinks, with_sink_logits
from .native import compiled
from .parts import part
from .pool import accelerated, on_host

BACKENDS = ("auto", "reference", "compiled", "torch", "flash_attn")
# Where torch's kernels run.
DEVICES = ("cpu", "cuda")
# Queries of a block of the window; the price of a pair under its bias, in pairs of a processor's long dense call.
BAND_ROWS, BIASED = (32, 64), 1.15
# Torch's kernel takes keys in stretches of so many: a short causal call computes up to twice what it keeps.
KEYS = 512
# It takes fewer queries at once in shorter calls: from so many queries on, the price of a pair.
TILES = ((768, (1.0, 1.0)), (192, (1.15, 1.3)), (1, (1.6, 2.2)))


def grouped_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    members: Tensor,
    window: int,
    scale: float | None = None,
    backend: str = "auto",
    n_sink: int = 0,
    sink_logits: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Exact attention to the tokens before that share a group, lie less than `window` tokens back, or are among the
    first `n_sink`.

    q [B, H, T, D], k and v [B, G, T, D] with G a divisor of H; members bool [B, T, K], or [T, K] for all texts alike:
    a token may be in no group, one or several, groups may be empty. `scale` is 1/sqrt(D) unless given.
    `sink_logits` [H]: learned sinks, one more term of every sum, in the unit of the scaled scores. Runs what `plan`
    says. Returns (out [B, H, T, D], lse [B, H, T] float32, the logsumexp of the scaled scores).
    `backend`: auto, reference (the definition, differentiable, any precision, its lse in float64 for float64), compiled
    (on the CPU, where a C++ compiler is at hand: float32, and bfloat16 with AMX), torch, flash_attn (that package, on
    CUDA in 16 bits). Errors: BadSetting for wrong
    shapes and types, values that are no numbers, and for what the backend cannot do. Source: Focus, appendix D; several
    groups per token: see `packed`.
    """
    members, scale = _checked(q, k, v, members, window, scale)
    chosen = plan(members, window, q.shape[1], q.shape[-1], q.dtype, q.device, backend)
    return planned_attention(chosen, q, k, v, scale, n_sink, sink_logits)


def planned_attention(
    chosen: "Plan", q: Tensor, k: Tensor, v: Tensor, scale: float, n_sink: int = 0, sink_logits: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What `grouped_attention` computes, by a plan that was made for these states: planning costs a look at all
    memberships. q [B, H, T, D], k and v [B, G, T, D] -> (out [B, H, T, D], lse [B, H, T])."""
    members, window = chosen.members, chosen.window
    # the kernels read whole rows
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    reads_sinks = chosen.backend == "compiled" and n_sink <= compiled.MOST_SINKS
    if chosen.backend == "reference":
        out, lse = reference.attention(q, k, v, members, window, scale)
    elif torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (q, k, v, sink_logits)):
        raise BadSetting(
            f"The logsumexp of the backend {chosen.backend} has no gradient: use the backend reference, or "
            "torch.no_grad() where no gradient is needed."
        )
    elif chosen.backend == "compiled":
        out, lse = compiled.groups(q, k, v, members, window, scale, n_sink if reads_sinks else 0, sink_logits)
    elif chosen.kernel in ("masked", "causal"):
        out, lse = packed.dense(q, k, v, members, window, scale, chosen.kernel == "causal")
    else:
        by_package = chosen.backend == "flash_attn"
        out, lse = packed.grouped(q, k, v, members, window, scale, by_package, chosen.sizes)
    # An accelerator would be waited for: what is no number there leaves the model's last layer, which is looked at.
    if not accelerated(lse) and not bool(lse.isfinite().all()):
        _explain(q, k)
    if n_sink and not reads_sinks:
        with part("set_b"):
            out, lse = read_sinks(out, lse, q, k, v, members, window, n_sink, scale)
    if sink_logits is not None and chosen.backend != "compiled":
        out, lse = with_sink_logits(out, lse, sink_logits)
    return out, lse


@dataclass(frozen=True)
class Plan:
    """What `grouped_attention` runs for these memberships.

    `kernel`: groups (one group per token), lowest shared group (several), masked (sparse cannot win), causal (every
    causal pair is kept). `why`: one sentence. `cost`: predicted time as a multiple of dense attention. Counts are per
    head: `pairs` kept, `retained` their share of the causal pairs (1 / retained bounds any speed-up), `computed` pairs
    the kernel computes, as a multiple of the causal pairs. `sizes` are those of the groups, as the host knows them: to
    run the plan it asks the device nothing.
    """

    kernel: str
    backend: str
    why: str
    cost: float
    computed: float
    members: Tensor = field(repr=False)
    window: int = field(repr=False)
    sizes: packed.Sizes | None = field(default=None, repr=False)

    @cached_property
    def pairs(self) -> int:
        """Pairs kept, counted exactly when first asked for."""
        return kept_pairs(self.members, self.window)

    @property
    def retained(self) -> float:
        """Kept pairs by causal pairs."""
        return self.pairs / causal_pairs(*self.members.shape[:2])


def plan(
    members: Tensor,
    window: int,
    heads: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device | str,
    backend: str = "auto",
) -> Plan:
    """Choose for members bool [B, T, K] or [T, K]; errors: BadSetting for what a backend cannot run."""
    device = torch.device(device)
    backend = _backend(backend, head_dim, dtype, device, members.shape[-1])
    members = members if members.dim() == 3 else members[None]
    length, groups = members.shape[1:]
    of_token = members.sum(-1)
    counted = torch.cat([members.sum(1).flatten(), torch.stack(torch.aminmax(of_token))])
    *sizes, fewest, most = on_host(counted, "sizes of groups, fewest and most of a token")
    several = most > 1

    def made(kernel: str, why: str, cost: float = 1.0, computed: float = 1.0) -> Plan:
        dense = "torch" if backend == "compiled" and kernel in ("masked", "causal") else backend
        return Plan(kernel, dense, why, cost, computed, members, window, packed.Sizes(sizes, most))

    if backend == "reference":
        return made("masked", "The reference computes every causal pair, in blocks of queries.")
    if length <= window:
        return made("causal", f"The window of {window:,} tokens covers all {length:,}: this is dense attention.")
    if 2 * fewest > groups:
        return made("causal", f"Each token is in {fewest} or more of {groups} groups, so any two share one: dense.")
    if all(max(sizes[start : start + groups]) == length for start in range(0, len(sizes), groups)):
        return made("causal", "One group holds every token: this is dense attention.")
    wide = -(-(head_dim + groups) // 8) * 8
    if accelerated(device) and dtype == torch.float32:
        return made("masked", f"{backend} has no sparse kernel in float32 on this device: masked dense attention.")
    if accelerated(device) and wide > packed.MOST_DIMENSIONS:
        most = packed.MOST_DIMENSIONS
        return made("masked", f"{head_dim} head dimensions and {groups} groups exceed the {most} of {backend}.")
    cost, computed = relative_cost(
        members, sizes, window, wide / head_dim, several, backend, dtype, device, heads * head_dim
    )
    instead = host(dtype in HALVES).masked
    # On a GPU masks are never the quicker way, and a short call is dear whatever runs.
    if not accelerated(device) and cost > (1 if several else instead):
        why = f"Sparse cannot win here: it would take {cost:.1f} times dense attention, so masked dense attention runs."
        return made("masked", why, instead)
    whose = "this machine's own constants" if measured(device) else "constants of other machines"
    reason = f"predicted {cost:.2f} of dense attention's time by {whose}"
    kernel = "lowest shared group" if several else "groups"
    return made(kernel, f"{reason}." if cost < 1 else f"{reason}: dense wins at this length.", cost, computed)


def relative_cost(
    members: Tensor,
    sizes: Sequence[int],
    window: int,
    widened: float,
    several: bool,
    backend: str,
    dtype: torch.dtype,
    device: torch.device,
    width: int,
    own: Host | None = None,
) -> tuple[float, float]:
    """(predicted time, computed pairs), both as multiples of dense causal attention, for groups of these `sizes`;
    `widened` times the head size is what a packed call computes with, in the window and, for `several` groups a token,
    in the groups; `width` numbers of all heads of a token; `own`: constants in place of the processor's."""
    batch, length, _ = members.shape
    halves, tokens = dtype in HALVES, batch * length
    own = own or host(halves)
    time: float
    dense: float = batch * _triangle(length, KEYS) * _price(length, halves)
    if backend == "compiled":
        inner = sum(_triangle(size, compiled.BLOCK) for size in sizes)
        near = tokens * min(window + compiled.BLOCK, length)
        time = own.pair * (inner + near) + own.packed * (tokens + sum(sizes))
    elif accelerated(device):
        inner, near = sum(_triangle(size, 1) for size in sizes), tokens * min(window + gpu.ROWS, length)
        in_groups = inner * (widened * gpu.PADDING if several else 1)
        of_gpu = accelerator(device)
        dense = of_gpu.call + 4 * width * causal_pairs(batch, length) / of_gpu.dense_rate
        time = of_gpu.sparse_call + 4 * width * (in_groups / of_gpu.dense_rate + near / of_gpu.window_rate)
        time += 12 * width * sum(sizes) / of_gpu.copy_rate
    else:
        rows = BAND_ROWS[halves]
        inner, near = sum(_triangle(size, KEYS) for size in sizes), tokens * min(window + rows, length)
        in_groups = sum(_triangle(size, KEYS) * _price(size, halves) for size in sizes)
        time = in_groups * (widened if several else 1) + near * widened * BIASED * _price(rows, halves)
        time += own.per_token * sum(sizes)
    return time / dense, (inner + near) / causal_pairs(batch, length)


def _triangle(length: int, beyond: int) -> int:
    """Pairs that a causal call computes which takes keys in stretches of `beyond`."""
    return min(length * (length + beyond) // 2, length * length)


def _price(queries: int, halves: bool) -> float:
    return next((price[halves] for smallest, price in TILES if queries >= smallest), 1.0)


def _checked(
    q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, scale: float | None
) -> tuple[Tensor, float]:
    """Members [B, T, K] on q's device, and the scale. Refuses what does not fit together, with the shapes."""
    shapes = f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"
    if not (q.dim() == k.dim() == v.dim() == 4 and k.shape == v.shape and q.numel() and k.numel()):
        raise BadSetting(f"Attention takes q [B, H, T, D] and k, v [B, G, T, D], none empty, and got {shapes}.")
    if (q.shape[0], *q.shape[2:]) != (k.shape[0], *k.shape[2:]) or q.shape[1] % k.shape[1]:
        raise BadSetting(f"B, T and D of q, k and v must agree and G divide H, and they are {shapes}.")
    if not q.dtype.is_floating_point or not q.dtype == k.dtype == v.dtype:
        raise BadSetting(f"q, k and v must have one floating type, and have {q.dtype}, {k.dtype} and {v.dtype}.")
    batch, length = q.shape[0], q.shape[2]
    fits = members.dtype == torch.bool and members.shape[:-1] in ((length,), (batch, length))
    if not fits or not 1 <= members.shape[-1] <= MOST_GROUPS:
        raise BadSetting(
            f"Members must be bool [{batch}, {length}, K] or [{length}, K] with K from 1 to {MOST_GROUPS}, and are "
            f"{str(members.dtype)[6:]} {list(members.shape)}."
        )
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        raise BadSetting(f"The window is {window!r} and must be a whole number from 1 on: a token reads itself.")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if not 0 < scale < math.inf:
        raise BadSetting(f"The scale is {scale!r} and must be above 0.")
    return members.expand(batch, -1, -1).to(q.device), scale


def _explain(q: Tensor, k: Tensor) -> None:
    """The logsumexp is no number somewhere: say which input is to blame."""
    for name, x in (("q", q), ("k", k)):
        if bad := int((~x.isfinite()).sum()):
            raise BadSetting(f"{bad:,} of the {x.numel():,} values of {name} are NaN or infinite: see what made them.")
    raise BadSetting(f"The scores overflow {str(q.dtype)[6:]}: use a smaller scale, or a wider type.")


def _backend(name: str, head_dim: int, dtype: torch.dtype, device: torch.device, groups: int) -> str:
    """The backend that runs; `auto` takes the compiled kernel where it can, then torch, the reference elsewhere."""
    if name not in BACKENDS:
        raise BadSetting(f"The backend is {str(name)[:40]!r} and must be one of {', '.join(BACKENDS)}.")
    if name == "reference":
        return name
    if name in ("auto", "compiled") and not accelerated(device) and compiled.runs(dtype, groups, head_dim):
        return "compiled"
    kind, why = str(dtype)[6:], None
    if name == "compiled":
        raise BadSetting(
            f"The backend compiled takes float32 on the CPU, and bfloat16 in even heads where the processor multiplies "
            f"tiles of it (AMX), at most {compiled.MOST_GROUPS} groups, and needs a C++ compiler; this is {kind} on "
            f"{device.type} with {groups} groups and heads of {head_dim}: use torch or reference."
        )
    if device.type not in DEVICES:
        why = f"runs on cpu and cuda only, and the tensors are on {device.type}"
    elif dtype not in (torch.float32, *HALVES):
        why = f"takes float32, bfloat16 and float16, not {kind}"
    elif name == "flash_attn" and importlib.util.find_spec("flash_attn") is None:
        why = "needs the package flash-attn, which is not installed"
    elif name == "flash_attn" and not (accelerated(device) and dtype in HALVES):
        why = f"takes bfloat16 and float16 on CUDA, and this is {kind} on {device.type}"
    elif accelerated(device) and dtype in HALVES and (head_dim % 8 or head_dim > packed.MOST_DIMENSIONS):
        most = packed.MOST_DIMENSIONS
        why = f"takes head sizes that are multiples of 8 up to {most}, and this one is {head_dim}"
    if why is not None and name in ("torch", "flash_attn"):
        raise BadSetting(f"The backend {name} {why}: use auto or reference.")
    if why is not None:
        return "reference"
    return "flash_attn" if name == "flash_attn" else "torch"
