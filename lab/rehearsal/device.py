"""An accelerator that computes shapes alone: whole models run on it in seconds, on a build of torch for processors.

A backend of torch's for Python code, under FakeTensorMode. What a real one would punish is an error here, with its
line: tensors that lie on two devices, and every question to the device (`.item()`, `.tolist()`, `bool(tensor)`, boolean
indexing, `nonzero`). `analysis.kernels.pool.on_host` alone may ask; it is answered from `ANSWERS`, and counted.
"""

import collections
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.nn.attention.flex_attention import AuxOutput
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from analysis.kernels import blocks, gpu, grouped
from analysis.kernels.pool import on_host
from lab.rehearsal.held import Held

NAME = "fakegpu"
# Of transformers; they begin with tensors made of lists, which need a real device.
CACHES = (DynamicLayer, DynamicSlidingWindowLayer)


class _Backend(backend_registration._DummyBackendModule):
    """What `torch.cuda` is of a GPU, as far as it is asked."""

    held: Held

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]

    def synchronize(self) -> None:
        """Nothing runs."""

    empty_cache = synchronize

    def reset_peak_memory_stats(self) -> None:
        self.held.peak = self.held.now

    def memory_allocated(self) -> int:
        return self.held.now

    def max_memory_allocated(self) -> int:
        return self.held.peak

    def get_device_name(self, device: object = None) -> str:
        return NAME


BACKEND = _Backend()


@cache
def _registered() -> None:
    backend_registration._setup_privateuseone_for_python_backend(NAME, BACKEND)


def _begin(layer: DynamicLayer, keys: Tensor, values: Tensor) -> None:
    """In the place of `lazy_initialization` of CACHES."""
    layer.device, layer.is_initialized = keys.device, True
    layer.keys, layer.values = keys[:, :, :0], values[:, :, :0]
    if isinstance(layer, DynamicSlidingWindowLayer):
        layer._sliding_window_tensor = keys.new_full((), layer.sliding_window - 1, dtype=torch.long)


def even(shape: tuple[int, ...], total: int) -> list:
    """`total` shared out evenly over numbers of this shape."""
    count = max(1, math.prod(shape))
    shares = np.full(count, total // count)
    shares[: total % count] += 1
    return shares.reshape(shape).tolist()


def _flex(q: Tensor, k: Tensor, v: Tensor, **about: Any) -> tuple[Tensor, AuxOutput]:
    """FlexAttention is compiled for devices that torch knows."""
    return torch.empty_like(q), AuxOutput(lse=torch.empty(q.shape[:3], device=q.device))


# What the host is told by name, of numbers of these shapes and a text of so many tokens.
ANSWERS: dict[str, Callable[[tuple[int, ...], int], Any]] = {
    "first tokens": lambda shape, tokens: [0] * shape[0],
    "fewest and most kept keys": lambda shape, tokens: [tokens // 4, tokens // 2],
    "finite": lambda shape, tokens: True,
    "kept keys of heads": lambda shape, tokens: [tokens] * shape[0],
    "kept blocks": lambda shape, tokens: 64.0,
    "numbers in the mask": lambda shape, tokens: False,
    "same scores": lambda shape, tokens: True,
    "sums of statistics": lambda shape, tokens: np.ones(shape).tolist(),
    "sizes of groups": lambda shape, tokens: [*even((shape[0] - 1,), tokens), 1],
    "sizes of groups, fewest and most of a token": lambda shape, tokens: [*even((shape[0] - 2,), tokens), 1, 1],
}


def _strangers(q: Tensor, *about: Any) -> tuple[Tensor, Tensor]:
    """The kernel of the window is compiled where Triton is."""
    return torch.empty_like(q), torch.empty(q.shape[:3], device=q.device)


def _fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Torch's attention is one kernel on a GPU; on a device that it does not know it would hold all scores."""
    places = {x.device for x in (q, k, v, attn_mask) if x is not None}
    if len(places) > 1 or {k.dtype, v.dtype} != {q.dtype}:
        raise RuntimeError(f"attention over tensors on {places} of {q.dtype}, {k.dtype}, {v.dtype}")
    if k.shape[:3] != v.shape[:3] or q.shape[1] % k.shape[1] or (q.shape[1] != k.shape[1] and not enable_gqa):
        raise RuntimeError(f"attention of {tuple(q.shape)} over {tuple(k.shape)} and {tuple(v.shape)}")
    if attn_mask is not None:
        torch.broadcast_shapes(attn_mask.shape, (*q.shape[:3], k.shape[2]))
    return q.new_empty(*q.shape[:3], v.shape[-1])


class Crossings(TorchDispatchMode):
    """Refuses copies between the host and the device: each waits as long as a question does."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
            wanted = kwargs.get("device") or (args[0] if func is torch.ops.aten._to_copy.default else args[1]).device
            kinds = {args[0].device.type, torch.device(wanted).type}
            if kinds == {"cpu", NAME}:
                raise RuntimeError(f"a copy between {' and '.join(sorted(kinds))}")
        return func(*args, **kwargs)


class Device:
    """Counts what is asked, and inside `held` memory; `tokens` of the text."""

    def __init__(self) -> None:
        self.tokens, self.asked, self.held = 0, collections.Counter[str](), Held(NAME)

    def read(self, numbers: Tensor, name: str) -> Any:
        """In the place of `on_host`."""
        assert numbers.device.type == NAME, f"{name} lies on {numbers.device}"
        self.asked[name] += 1
        return ANSWERS[name](tuple(numbers.shape), self.tokens)


@contextmanager
def fake_device(at_once: int | None = None) -> Iterator[Device]:
    """Inside, tensors on `NAME` have shapes and no numbers. `at_once`: bytes of scores at once, in the place of
    `pool.AT_ONCE`."""
    _registered()
    device, modules = Device(), list(sys.modules.values())
    replaced: list[tuple[Any, str, Any]] = [(kind, "lazy_initialization", _begin) for kind in CACHES]
    replaced += [(gpu, "has_triton", lambda: True), (gpu, "strangers", _strangers), (blocks, "_flex", lambda: _flex)]
    replaced += [(grouped, "DEVICES", (*grouped.DEVICES, NAME)), (functional, "scaled_dot_product_attention", _fused)]
    asking = (module for module in modules if getattr(module, "on_host", None) is on_host)
    replaced += [(module, "on_host", device.read) for module in asking if module is not sys.modules[__name__]]
    if at_once is not None:
        replaced += [(module, "AT_ONCE", at_once) for module in modules if hasattr(module, "AT_ONCE")]
    with ExitStack() as undone:
        for place, name, value in replaced:
            undone.enter_context(patch.object(place, name, value))
        undone.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        undone.enter_context(torch.no_grad())
        BACKEND.held = device.held
        yield device
