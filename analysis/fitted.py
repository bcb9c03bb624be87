"""What a method keeps of a calibration: numbers in one safetensors file, and a note of how they were made beside it."""

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from analysis.errors import BadSetting, NotFitted

FORMAT = 1
FOLDER = "methods"  # of a model's fitted state


@dataclass
class Fitted:
    """The numbers of one method for one model; `about` says how they were made."""

    method: str
    tensors: dict[str, Tensor]
    about: dict = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def to(self, device) -> "Fitted":
        """Move all numbers to a device; returns self."""
        self.tensors = {name: tensor.to(device) for name, tensor in self.tensors.items()}
        return self

    def save(self, folder: Path) -> Path:
        """Write METHOD.safetensors and METHOD.json into a folder, each put in place whole; returns the former."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.method}.safetensors"
        data = save({name: tensor.detach().float().cpu().contiguous() for name, tensor in self.tensors.items()})
        note = {"format": FORMAT, "sha256": hashlib.sha256(data).hexdigest(), "about": self.about}
        text = json.dumps(note, indent=1, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n"
        for target, content in ((path, data), (path.with_suffix(".json"), text.encode())):
            partial = target.with_name(f".{target.name}.{os.getpid()}.part")
            partial.write_bytes(content)
            os.replace(partial, target)
        return path

    @classmethod
    def load(cls, path: Path) -> "Fitted":
        """Read both files. Errors: NotFitted when they are absent, BadSetting when they are damaged."""
        if not path.is_file():
            raise NotFitted(f"Nothing was fitted for {path.stem} in {path.parent.name}: run `fit-method {path.stem}`.")
        try:
            data = path.read_bytes()
            note = json.loads(path.with_suffix(".json").read_bytes())
            tensors, about = load(data), dict(note["about"])
            whole = note["format"] == FORMAT and note["sha256"] == hashlib.sha256(data).hexdigest()
            whole = whole and all(bool(tensor.isfinite().all()) for tensor in tensors.values())
        except (OSError, ValueError, KeyError, TypeError, SafetensorError):
            whole = False
        if not whole:
            raise BadSetting(
                f"The numbers fitted for {path.stem} or their .json are damaged or of another version (this one reads "
                f"format {FORMAT}): run `fit-method {path.stem}` again."
            )
        return cls(path.stem, tensors, about)


def check_shapes(fitted: Fitted, wanted: dict[str, tuple]) -> None:
    """Refuse numbers that were fitted on a model of another shape; None in `wanted` is any size. Errors: BadSetting."""
    for name, shape in wanted.items():
        found = tuple(fitted.tensors[name].shape) if name in fitted.tensors else ()
        if len(found) != len(shape) or any(b is not None and a != b for a, b in zip(found, shape, strict=True)):
            raise BadSetting(
                f"What was fitted for {fitted.method} has {name} of shape {list(found)} and this model needs "
                f"{['any' if size is None else size for size in shape]}: fit it on this model."
            )
