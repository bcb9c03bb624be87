"""Learned routers that are trained already: kept while a long study runs, so that a stopped one goes on from them."""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from analysis.errors import BadSetting
from analysis.files import write_whole
from analysis.routers.mlp import SaapMLP
from analysis.studies.routing.cells import Cell


@dataclass(frozen=True)
class Parts:
    """One file per setting and layer in `folder`; `stamp` names model, texts and sizes, so that parts of another run
    are never taken for these. Without a folder nothing is kept."""

    folder: Path | None = None
    stamp: str = ""

    def find(self, cell: Cell, layer: int) -> tuple[dict[str, Tensor], float] | None:
        """The weights of a layer's learned router and the seconds it took; None where it is not trained yet."""
        try:
            tensors = load(self._path(cell, layer).read_bytes()) if self.folder else None
            return tensors and ({name: tensors[name] for name in SaapMLP.NAMES}, float(tensors["seconds"]))
        except (OSError, KeyError, ValueError, SafetensorError):
            return None

    def keep(self, cell: Cell, layer: int, router: SaapMLP, seconds: float) -> None:
        """Write a trained router, put in place whole. Errors: BadSetting for a folder that cannot be written."""
        if self.folder is None:
            return
        path = self._path(cell, layer)
        tensors = {name: tensor.cpu().contiguous() for name, tensor in router.tensors().items()}
        try:
            with write_whole(path) as place:
                place.write_bytes(save(tensors | {"seconds": torch.tensor(seconds, dtype=torch.float64)}))
        except OSError as error:
            raise BadSetting(f"{self.folder} cannot be written ({error.strerror}): name another folder.") from error

    def clear(self) -> None:
        """Remove the parts of this run, once it is done."""
        if self.folder is not None:
            for path in self.folder.glob(f"{self._begin}-*.safetensors"):
                path.unlink(missing_ok=True)

    @property
    def _begin(self) -> str:
        return f"routing-{self.stamp}"

    def _path(self, cell: Cell, layer: int) -> Path:
        return self.folder / f"{self._begin}-d{cell.min_distance}-s{cell.sinks}-{layer}.safetensors"
