"""How the weights of a model are held: the type of number, or 8 or 4 bits by a library that is installed."""

import importlib.util
from typing import Any

import psutil
import torch

from ..errors import BadSetting
from ..places import PRECISIONS
from .arithmetic import bfloat16_gain, quick_type

# Parameters from which the quicker type is taken on a processor.
LARGE = 100_000_000
BITS = {"8bit": 8, "4bit": 4}
LIBRARIES = ("torchao", "bitsandbytes")


def weight_type(config: Any, device: str, precision: str, parameters: int) -> torch.dtype:
    """The type that weights are loaded in. `auto`: the checkpoint's own on an accelerator; on a processor float32, and
    of a large model what the processor multiplies fastest in. Errors: BadSetting."""
    if precision not in ("auto", *PRECISIONS):
        raise BadSetting(f"The weights cannot be in {precision[:40]!r}: choose auto, {', '.join(PRECISIONS)}.")
    if precision in BITS:
        # what the products are in
        return torch.bfloat16 if device != "cpu" else quick_type(device)
    if precision != "auto":
        return getattr(torch, precision)
    if device == "cpu":
        return quick_type(device) if parameters > LARGE else torch.float32
    return getattr(config, "dtype", None) or torch.float32


def why_type(device: str, precision: str, parameters: int) -> str:
    """Why `auto` took the type of a large model on a processor, with what was measured; empty where nothing was."""
    if precision != "auto" or device != "cpu" or parameters <= LARGE:
        return ""
    gain = bfloat16_gain()
    times, word = (gain, "fast") if gain >= 1 else (1 / gain, "slowly")
    speed = f"{times:,.{1 if times < 10 else 0}f} times as {word}"
    kind = str(quick_type(device)).removeprefix("torch.")
    return f"This processor multiplies {speed} in bfloat16 as in float32 (measured), so auto took {kind}."


def weight_bytes(parameters: int, kind: torch.dtype, precision: str) -> int:
    """Bytes that so many weights take."""
    return parameters * BITS[precision] // 8 if precision in BITS else parameters * kind.itemsize


def few_bits(precision: str, device: str) -> dict:
    """What loading is told so that weights become 8 or 4 bits; nothing for a plain type. Errors: BadSetting where no
    library is installed that can."""
    if precision not in BITS:
        return {}
    bits, library = BITS[precision], next(filter(importlib.util.find_spec, LIBRARIES), None)
    if library is None or bits == 4 and device == "cpu":
        why = "need torchao or bitsandbytes, and neither is installed" if library is None else "need a GPU"
        instead = "pip install torchao, or choose bfloat16" if library is None else "choose 8bit or bfloat16"
        raise BadSetting(f"{bits}-bit weights {why}: {instead}.")
    from transformers import BitsAndBytesConfig, TorchAoConfig

    if library == "bitsandbytes":
        return {"quantization_config": BitsAndBytesConfig(**{f"load_in_{bits}bit": True})}
    from torchao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig

    return {"quantization_config": TorchAoConfig(Int8WeightOnlyConfig() if bits == 8 else Int4WeightOnlyConfig())}


def held_bytes(parameter: torch.Tensor) -> int:
    """Bytes of one parameter in memory, those of its parts where a library keeps it in a form of its own."""
    if hasattr(parameter, "__tensor_flatten__"):
        return sum(getattr(parameter, name).nbytes for name in parameter.__tensor_flatten__()[0])
    return parameter.nbytes


def free_bytes(device: torch.device | str) -> int:
    """Memory that is free on a device."""
    cuda = str(device).startswith("cuda")
    return torch.cuda.mem_get_info(device)[0] if cuda else psutil.virtual_memory().available
