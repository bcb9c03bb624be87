"""A router on disk: `<name>.safetensors` with the numbers and `<name>.json` that says how they were made. No pickle."""

import math
from pathlib import Path

import torch
from torch import Tensor

from analysis import fitted
from analysis.errors import BadSetting, NotFitted

NAMES = {"projection": 3, "centroids": 3, "potential": 2}  # tensor -> dimensions


def tensors_path(path: str | Path) -> Path:
    """`path` with the suffix .safetensors, whether it came with .safetensors, .json or neither."""
    path = Path(path)
    return path if path.suffix == ".safetensors" else path.with_name(path.name.removesuffix(".json") + ".safetensors")


def write(path: str | Path, tensors: dict[str, Tensor], settings: dict, about: dict) -> Path:
    """Both files, each put in place whole; the JSON carries the other's SHA-256, so a mixed pair is noticed."""
    kept = {name: tensor.float() for name, tensor in tensors.items()}
    return fitted.write(tensors_path(path), kept, settings=settings, about=about)


def read(path: str | Path) -> tuple[dict[str, Tensor], dict, dict]:
    """Tensors, settings and the note of a stored router. Errors: NotFitted when absent, BadSetting when damaged."""
    path = tensors_path(path)
    if not path.is_file():
        raise NotFitted(
            f"There is no router {path.stem!r} in {path.parent.name or '.'}; fit one without training or train one."
        )
    found = fitted.read(path, settings=dict, about=dict)
    if found is None or not _whole(found[0]):
        raise BadSetting(
            f"The router file {path.name} or its .json is damaged or of another version (this one reads format "
            f"{fitted.FORMAT}); fit or train it again."
        )
    return found


def _whole(tensors: dict[str, Tensor]) -> bool:
    sizes = {name: tensor.dim() for name, tensor in tensors.items()}
    return sizes == NAMES and all(
        tensor.dtype == torch.float32 and math.prod(tensor.shape) > 0 for tensor in tensors.values()
    )
