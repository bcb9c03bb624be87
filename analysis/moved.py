"""Where modules went that other people's code may import by their former names; each import says so."""

import importlib
import importlib.util
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = __name__.rpartition(".")[0]
MOVED = {
    **{name: f"seam.{name}" for name in ("arguments", "attention", "cache", "calls", "layers", "parity", "sound")},
    **{name: f"models.{name}" for name in ("arithmetic", "tokenizer", "weights")},
    "inference": "timing.inference",
}


class MovedModules:
    """Finds `analysis.attention` and the like, at the end of `sys.meta_path`; the module is the one that moved."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module that moved, None for all others."""
        package, _, module = name.rpartition(".")
        if package != PACKAGE or module not in MOVED:
            return None
        warnings.warn(
            f"{name} is {PACKAGE}.{MOVED[module]} now, and its former name goes with the next version.",
            DeprecationWarning,
            stacklevel=2,
        )
        return importlib.util.spec_from_loader(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself, under both names."""
        module = importlib.import_module(f"{PACKAGE}.{MOVED[spec.name.rpartition('.')[2]]}")
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to run; the import machinery put the former name into the module's spec."""
        module.__spec__ = self._spec
