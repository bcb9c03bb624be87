"""A router on disk: `<name>.safetensors` with the numbers and `<name>.json` that says how they were made. No pickle."""

import hashlib
import json
import math
import os
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from analysis.errors import BadSetting, NotFitted

FORMAT = 1
NAMES = {"projection": 3, "centroids": 3, "potential": 2}  # tensor -> dimensions


def tensors_path(path: str | Path) -> Path:
    """`path` with the suffix .safetensors, whether it came with .safetensors, .json or neither."""
    path = Path(path)
    return path if path.suffix == ".safetensors" else path.with_name(path.name.removesuffix(".json") + ".safetensors")


def write(path: str | Path, tensors: dict[str, Tensor], settings: dict, about: dict) -> Path:
    """Both files, each put in place whole; the JSON carries the other's SHA-256, so a mixed pair is noticed."""
    path = tensors_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = save({name: tensor.detach().float().cpu().contiguous() for name, tensor in tensors.items()})
    note = {"format": FORMAT, "sha256": hashlib.sha256(data).hexdigest(), "settings": settings, "about": about}
    text = json.dumps(note, indent=1, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n"
    for target, content in ((path, data), (path.with_suffix(".json"), text.encode())):
        partial = target.with_name(f".{target.name}.{os.getpid()}.part")
        partial.write_bytes(content)
        os.replace(partial, target)
    return path


def read(path: str | Path) -> tuple[dict[str, Tensor], dict, dict]:
    """Tensors, settings and the note of a stored router. Errors: NotFitted when absent, BadSetting when damaged."""
    path = tensors_path(path)
    if not path.is_file():
        raise NotFitted(
            f"There is no router {path.stem!r} in {path.parent.name or '.'}; fit one without training or train one."
        )
    try:
        data = path.read_bytes()
        note = json.loads(path.with_suffix(".json").read_bytes())
        tensors = load(data)
        settings, about = dict(note["settings"]), dict(note["about"])
        known = note["format"] == FORMAT and note["sha256"] == hashlib.sha256(data).hexdigest()
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        known = False
    if not known or not _whole(tensors):
        raise BadSetting(
            f"The router file {path.name} or its .json is damaged or of another version (this one reads format "
            f"{FORMAT}); fit or train it again."
        )
    return tensors, settings, about


def _whole(tensors: dict[str, Tensor]) -> bool:
    sizes = {name: tensor.dim() for name, tensor in tensors.items()}
    return sizes == NAMES and all(
        tensor.dtype == torch.float32 and math.prod(tensor.shape) > 0 and bool(tensor.isfinite().all())
        for tensor in tensors.values()
    )
