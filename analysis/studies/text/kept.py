"""What a pass over a text gave, kept on disk for the next page; when space is short, what was used longest ago goes."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ...files import clear, write_whole
from ...models import Model
from ..context import Context

# Of an installation's state.
FOLDER = "readings"
# Of all readings together.
KEPT_BYTES = 512 << 20
# Raise it when a pass gives other numbers than before.
VERSION = 3

Tensors = dict[str, Tensor]


class Readings:
    """What passes of a model over a text's windows of token ids gave: named tensors, by what they are (`kind`) and what
    else `decides` over their numbers, as tensors or plain values.

    The last one of each kind stays in memory; with a store all lie in its folder `readings`, KEPT_BYTES of them.
    """

    def __init__(self, context: Context, model: Model, windows: Sequence[np.ndarray]) -> None:
        self._context, self._model, self._windows = context, model, windows
        about = (VERSION, model.revision, str(model.dtype), str(model.device), model.lm.get_memory_footprint())
        self._digest = _hashed(hashlib.sha256(repr(about).encode()), windows)

    def beginnings(self) -> Iterator[tuple[int, "Readings"]]:
        """(how many windows, what was kept of them alone) of the beginnings of this text, the longest first: a pass
        that finds one goes on behind it."""
        for count in range(len(self._windows) - 1, 0, -1):
            yield count, Readings(self._context, self._model, self._windows[:count])

    def made(self, kind: str, decides: list, make: Callable[[], Tensors]) -> Tensors:
        """What was kept, else what `make()` gives, which is kept."""
        tensors = self.find(kind, decides)
        return self.keep(kind, decides, make()) if tensors is None else tensors

    def find(self, kind: str, decides: list) -> Tensors | None:
        """What was kept, or None."""
        key = self._key(kind, decides)
        held_key, tensors = self._context.kept.get(kind, (None, None))
        if held_key == key:
            return tensors
        path = self._path(key)
        if path is not None:
            # Not there, being replaced, or damaged.
            with contextlib.suppress(OSError, SafetensorError):
                tensors_of_file = load_file(path)
                # The time of the file says when it was used last; `_bound` removes the oldest.
                os.utime(path)
                self._context.kept[kind] = key, tensors_of_file
                return tensors_of_file
        return None

    def keep(self, kind: str, decides: list, tensors: Tensors) -> Tensors:
        """Keep tensors, and return them."""
        key = self._key(kind, decides)
        self._context.kept[kind] = key, tensors
        path = self._path(key)
        if path is not None:
            # A full disk costs the next page its time and nothing else.
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                with write_whole(path) as place:
                    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, place)
                _bound(path.parent)
        return tensors

    def drop(self, kind: str, decides: list) -> None:
        """Remove what is no longer looked for."""
        if (path := self._path(self._key(kind, decides))) is not None:
            clear(path)

    def _key(self, kind: str, decides: list) -> str:
        digest = self._digest.copy()
        digest.update(kind.encode())
        return _hashed(digest, decides).hexdigest()[:24]

    def _path(self, key: str) -> Path | None:
        store = self._context.store
        return store.root / FOLDER / f"{key}.safetensors" if store else None


def _hashed(digest: "hashlib._Hash", values: Iterable) -> "hashlib._Hash":
    """The digest, with arrays, tensors and plain values added."""
    for value in values:
        value = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        array = isinstance(value, np.ndarray)
        digest.update(repr((value.shape, value.dtype.str) if array else value).encode())
        digest.update(np.ascontiguousarray(value).tobytes() if array else b"")
    return digest


def _bound(folder: Path) -> None:
    """Remove the readings that were used longest ago until the rest holds KEPT_BYTES."""
    files = sorted(
        ((path.stat(), path) for path in folder.glob("*.safetensors")), key=lambda entry: -entry[0].st_mtime_ns
    )
    total = 0
    for facts, path in files:
        total += facts.st_size
        if total > KEPT_BYTES:
            clear(path)
