"""Norms that keep the scale they once had: what stands between a model's stream and its projections becomes linear."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

ROOTS = (torch.rsqrt, Tensor.rsqrt, torch.sqrt, Tensor.sqrt, torch.linalg.vector_norm, torch.norm, Tensor.norm)
POWERS = (torch.pow, Tensor.pow, Tensor.__pow__)


class Frozen(TorchFunctionMode):
    """Inside, what norms divide by is a constant: `scales` in the order in which they were first computed, which are
    those of the first pass where none are given."""

    def __init__(self, scales: list[Tensor] | None = None) -> None:
        super().__init__()
        self.scales: list[Tensor] = scales or []
        self.given = None if scales is None else iter(scales)

    def again(self) -> "Frozen":
        """The same scales once more, in the same order, whatever the norms see."""
        return Frozen(self.scales)

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func in (F.layer_norm, torch.layer_norm, F.rms_norm, torch.rms_norm):
            return self._norm(func, *args, **kwargs)
        root = func in ROOTS or (func in POWERS and isinstance(args[1], float) and args[1] in (-0.5, 0.5))
        return self._scale(lambda: func(*args, **kwargs)) if root else func(*args, **kwargs)

    def _scale(self, make: Callable[[], Tensor]) -> Tensor:
        if self.given is not None:
            return next(self.given)
        self.scales.append(make().detach())
        return self.scales[-1]

    def _norm(
        self,
        func: Any,
        x: Tensor,
        shape: Any,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float | None = None,
        *enable: Any,
    ) -> Tensor:
        """torch's own norms, written out: a RMSNorm has no bias, and its eps stands in that place."""
        is_rms = func in (F.rms_norm, torch.rms_norm)
        if is_rms and not isinstance(bias, Tensor):
            bias, eps = None, bias if eps is None else eps
        small = torch.finfo(x.dtype).eps if eps is None else eps
        dims = tuple(range(-len(shape), 0))
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        centred = wide if is_rms else wide - wide.mean(dims, keepdim=True)
        scale = self._scale(lambda: (centred.pow(2).mean(dims, keepdim=True) + small) ** -0.5)
        out = (centred * scale).to(x.dtype)
        out = out if weight is None else out * weight
        return out if bias is None else out + bias
