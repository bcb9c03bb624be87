"""The type of number that training multiplies in."""

import torch


def quick_type(device: str | torch.device) -> torch.dtype:
    """bfloat16 where the hardware multiplies in it, else float32: a CPU without (AVX2 only) takes seven times as long
    for a product in bfloat16 as for one in float32."""
    native = torch.device(device).type != "cpu" or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.bfloat16 if native else torch.float32


def quick(device: str | torch.device) -> torch.autocast:
    """Inside, products are in `quick_type`."""
    kind = quick_type(device)
    return torch.autocast(torch.device(device).type, torch.bfloat16, enabled=kind == torch.bfloat16)
