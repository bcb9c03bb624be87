"""How much memory a computation holds: the storages that live at once, of tensors that have numbers or shapes alone."""

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Bytes in which a GPU's memory is given out.
UNIT = 512


class Held(TorchDispatchMode):
    """Inside, what torch makes on devices of this kind counts while it lives: bytes `now`, and at the `peak`."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.now, self.peak = kind, 0, 0
        self._living: dict[int, weakref.ref] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        before = {self._key(tensor) for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.device.type == self.kind and self._key(tensor) not in before:
                self._count(tensor.untyped_storage())
        return result

    @staticmethod
    def _key(tensor: Tensor) -> int:
        return tensor.untyped_storage()._cdata

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, -(-storage.nbytes() // UNIT) * UNIT
        if key in self._living:
            return

        def freed(_: Any) -> None:
            del self._living[key]
            self.now -= size

        self._living[key] = weakref.ref(storage, freed)
        self.now += size
        self.peak = max(self.peak, self.now)
