"""The type of number that a machine multiplies fastest in: measured once."""

import time
from functools import cache

import torch

# Times as fast as float32 that bfloat16 must be to be taken.
WORTH = 1.2


def quick_type(device: str | torch.device) -> torch.dtype:
    """bfloat16 where the hardware multiplies in it faster, else float32: a CPU without (AVX2 only) takes many times as
    long for a product in bfloat16 as for one in float32."""
    quick = torch.device(device).type != "cpu" or bfloat16_gain() > WORTH
    return torch.bfloat16 if quick else torch.float32


@cache
def bfloat16_gain() -> float:
    """How many times as fast this machine's processor multiplies in bfloat16 as in float32: the shortest of ten
    products of [128, 512] by [512, 512], under a second in all, once in a process."""
    took = {}
    for kind in (torch.float32, torch.bfloat16):
        left, right = torch.ones(128, 512, dtype=kind), torch.ones(512, 512, dtype=kind)
        # a busy machine interrupts some
        times = []
        for _ in range(10):
            began = time.perf_counter()
            torch.mm(left, right)
            times.append(time.perf_counter() - began)
        took[kind] = min(times)
    return took[torch.float32] / took[torch.bfloat16]


def quick(device: str | torch.device, kind: torch.dtype | None = None) -> torch.autocast:
    """Inside, products are in `quick_type`, or in the type that a training was begun with."""
    kind = quick_type(device) if kind is None else kind
    return torch.autocast(torch.device(device).type, torch.bfloat16, enabled=kind == torch.bfloat16)
