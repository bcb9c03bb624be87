"""Bytes of all tensors that are alive, followed as operations make them and as the last reference goes."""

import weakref
from collections.abc import Iterable

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Alive(TorchDispatchMode):
    """Inside it, `now` and `most` are the bytes of tensors that operations made, beside the `before` ones.

    It counts what torch allocates for tensors, on any machine alike: not what an allocator keeps, nor what a kernel
    takes for itself.
    """

    def __init__(self, before: Iterable[torch.Tensor] = ()):
        super().__init__()
        self.now = self.most = 0
        self._held = {tensor.untyped_storage()._cdata for tensor in before}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor.untyped_storage())
        return out

    def _see(self, storage: torch.UntypedStorage) -> None:
        place, size = storage._cdata, storage.nbytes()
        if place not in self._held:
            self._held.add(place)
            self.now += size
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self._gone, place, size)

    def _gone(self, place: int, size: int) -> None:
        self._held.discard(place)
        self.now -= size
