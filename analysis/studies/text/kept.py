"""What a pass over a text gave, kept on disk for the next page; when space is short, what was used longest ago goes."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from analysis.files import write_whole
from analysis.models import Model
from analysis.studies.context import Context

FOLDER = "readings"  # of an installation's state
KEPT_BYTES = 512 << 20  # of all readings together
VERSION = 1  # raise it when a pass gives other numbers than before


def kept(
    context: Context, kind: str, model: Model, windows: Iterable[np.ndarray], decides: list, make: Callable[[], dict]
) -> dict[str, Tensor]:
    """The tensors of `make()`, a pass of a model over windows of token ids, by name; made once and found again.

    `kind` names what it is; `decides`: what else decides the numbers, as tensors or plain values.
    The last one of each kind stays in memory; with a store all lie in its folder `readings`, KEPT_BYTES of them.
    """
    about = (VERSION, kind, model.revision, str(model.dtype), str(model.device), model.lm.get_memory_footprint())
    digest = hashlib.sha256(repr(about).encode())
    for one in (*windows, *decides):
        one = one.detach().cpu().numpy() if isinstance(one, Tensor) else one
        array = isinstance(one, np.ndarray)
        digest.update(repr((one.shape, one.dtype.str) if array else one).encode())
        digest.update(np.ascontiguousarray(one).tobytes() if array else b"")
    key = digest.hexdigest()[:24]
    if context.store is None:
        return context.once(kind, key, make)
    return context.once(kind, key, lambda: _on_disk(context.store.root / FOLDER, key, make))


def _on_disk(folder: Path, key: str, make: Callable[[], dict]) -> dict[str, Tensor]:
    path = folder / f"{key}.safetensors"
    with contextlib.suppress(OSError, SafetensorError):  # not there, being replaced, or damaged: made anew
        found = load_file(path)
        os.utime(path)  # used last
        return found
    found = make()
    with contextlib.suppress(OSError):  # a full disk costs the next page its time and nothing else
        folder.mkdir(parents=True, exist_ok=True)
        with write_whole(path) as place:
            save_file({name: tensor.contiguous() for name, tensor in found.items()}, place)
        _bound(folder)
    return found


def _bound(folder: Path) -> None:
    """Remove the readings that were used longest ago until the rest holds KEPT_BYTES."""
    files = sorted(((path.stat(), path) for path in folder.glob("*.safetensors")), key=lambda one: -one[0].st_mtime_ns)
    total = 0
    for facts, path in files:
        total += facts.st_size
        if total > KEPT_BYTES:
            path.unlink(missing_ok=True)
