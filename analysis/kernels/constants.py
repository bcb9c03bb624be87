"""What predictions of attention's time are made of, for a device: as `calibrate-machine` measured it here, else as it
was on the machines that this was written on."""

from dataclasses import dataclass, fields
from typing import Any

import torch

from ..runs import machine


@dataclass(frozen=True)
class Host:
    """A processor, in pairs of a long dense call of torch: `pair` of the compiled kernel; `packed`, there laying out
    keys and values of one membership, or of one token for the window; `per_token`, by torch's kernels sorting,
    gathering and merging one membership; `masked` dense attention, as a multiple of dense."""

    pair: float = 1.0
    packed: float = 40.0
    per_token: float = 120.0
    masked: float = 1.5


@dataclass(frozen=True)
class Accelerator:
    """A GPU: seconds before a dense call and a sparse one have begun; floating-point operations a second of dense
    attention and of the window; bytes a second that are gathered. The defaults are those of an H200."""

    call: float = 1e-4
    sparse_call: float = 8e-4
    dense_rate: float = 6.2e14
    window_rate: float = 1.5e14
    copy_rate: float = 1.5e12


# Of float32 and of 16 bits.
HOSTS = {"float32": Host(), "half": Host(per_token=300.0, masked=1.8)}


def host(halves: bool) -> Host:
    """Those of this processor, for float32 or 16 bits."""
    kind = "half" if halves else "float32"
    return _of(HOSTS[kind], machine.constants("cpu").get(kind, {}))


def accelerator(device: torch.device) -> Accelerator:
    """Those of a GPU."""
    return _of(Accelerator(), measured(device).get("attention", {}))


def measured(device: torch.device) -> dict[str, Any]:
    """All that `calibrate-machine` keeps of a device; {} where it was not run."""
    chip = torch.cuda.get_device_name(device) if device.type == "cuda" and torch.cuda.is_available() else None
    return machine.constants(device.type, chip)


def _of(usual: Any, own: dict[str, float]) -> Any:
    """The usual constants, with those that were measured in their place."""
    return type(usual)(**{one.name: own.get(one.name, getattr(usual, one.name)) for one in fields(usual)})
