"""Memory of what is timed: what a call takes, and what is said of it before, so that what does not fit is refused."""

import ctypes
import gc
from collections.abc import Callable, Collection

import torch

from ..errors import TooLarge
from ..kernels.pool import AT_ONCE, accelerated
from ..methods.base import Method
from ..models import Model
from ..models.weights import free_bytes
from ..seam.calls import MASKED
from ..seam.layers import has_sinks

# Most memory of a measurement, in multiples of q, k, v and out: on a processor, in float32 whatever the type; on a GPU
# in its type for each membership of a token, beside the states themselves (1.9 measured with one, at 65,536 tokens).
TIMES_HELD = 4
# Blocks of scores that a softmax with a learned sink holds besides: a column more is a copy.
SINKS = 2.0
# Bytes beside a model: blocks of scores, and what a library keeps.
SPARE = 128 << 20


def peak_bytes(run: Callable[[], object], device: torch.device) -> int | None:
    """Most memory one call holds beyond what was held before it, in bytes; None where the system does not say."""
    if accelerated(device):
        memory = torch.get_device_module(device)
        # what waits to be collected would be given back while it runs, and hide as much of what it takes
        gc.collect()
        memory.synchronize()
        memory.reset_peak_memory_stats()
        before = memory.memory_allocated()
        run()
        return memory.max_memory_allocated() - before
    try:
        # what is free but kept would hide what the call takes
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as file:
            # the highest mark begins anew
            file.write("5")
        before = _resident("VmRSS")
        run()
        return _resident("VmHWM") - before
    except (OSError, AttributeError):
        return None


def _resident(mark: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(mark))


def check_memory(
    length: int, batch: int, heads: int, kv_heads: int, head_dim: int, device: str, dtype: str, top: int = 1
) -> None:
    """Refuse a length that does not fit, with the numbers, before anything is made. Errors: TooLarge."""
    times = (1 + top) * getattr(torch, dtype).itemsize if accelerated(torch.device(device)) else 4 * TIMES_HELD
    of_token = times * batch * head_dim * (2 * heads + 2 * kv_heads)
    _check_room(length, of_token, 0, f"({batch} x {heads} heads of {head_dim}, {dtype})", device)


def check_model_memory(model: Model, length: int, new_tokens: int, top: int) -> None:
    """Refuse a prompt that does not fit into memory, with the numbers, before anything runs. Errors: TooLarge."""
    # both caches have room to grow
    of_token = _token_bytes(model, 1.5 * (1 + top))
    _check_room(length, of_token, SPARE + new_tokens * of_token, f"of {model.name}", model.device)


def model_bytes(model: Model, tokens: int, method: Method | type[Method], kernels: Collection[str]) -> int:
    """Predicted bytes beside the weights of so many tokens in one pass of a method on an accelerator, run by these
    kernels: the KV cache, a layer's states, and the scores that it holds at its peak."""
    scores = method.masked_scores if MASKED in kernels else method.kernel_scores
    if MASKED in kernels and has_sinks(model.lm):
        scores += SINKS
    return round(tokens * _token_bytes(model, 1) + scores * AT_ONCE)


def _token_bytes(model: Model, caches: float) -> float:
    """Of a token in so many KV caches, and in what one layer holds at once."""
    cache = 2 * model.num_layers * model.num_kv_heads * model.head_dim
    states = (model.num_heads + model.num_kv_heads) * model.head_dim
    return (caches * cache + 4 * model.width + max(3 * model.inner, 6 * states)) * model.dtype.itemsize


def _check_room(length: int, of_token: float, beside: float, what: str, device: str | torch.device) -> None:
    needed, free = length * of_token + beside, free_bytes(device)
    if needed > 0.9 * free:
        most = max(0, int((0.9 * free - beside) / of_token))
        raise TooLarge(
            f"{length:,} tokens {what} need about {needed / 1e9:,.1f} GB and {free / 1e9:,.1f} GB are free on "
            f"{device}: choose at most {most:,} tokens."
        )
