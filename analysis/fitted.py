"""Fitted numbers on disk: one safetensors file, and a JSON note of how they were made beside it. No pickle."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from analysis.errors import BadSetting, NotFitted
from analysis.files import write_whole

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
        """Write METHOD.safetensors and METHOD.json into a folder; returns the former."""
        tensors = {name: tensor.detach().float() for name, tensor in self.tensors.items()}
        return write(folder / f"{self.method}.safetensors", tensors, about=self.about)

    @classmethod
    def load(cls, path: Path) -> "Fitted":
        """Read both files. Errors: NotFitted when they are absent, BadSetting when they are damaged."""
        if not path.is_file():
            raise NotFitted(f"Nothing was fitted for {path.stem} in {path.parent.name}: run `fit-method {path.stem}`.")
        found = read(path, about=dict)
        if found is None:
            raise BadSetting(
                f"The numbers fitted for {path.stem} or their .json are damaged or of another version (this one reads "
                f"format {FORMAT}): run `fit-method {path.stem}` again."
            )
        return cls(path.stem, *found)


def write(path: Path, tensors: dict[str, Tensor], **note: object) -> Path:
    """Write numbers to `path` and the note to the .json beside it, each put in place whole; returns `path`.

    The JSON carries the other's SHA-256, so a mixed pair is noticed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    note = {"format": FORMAT, "sha256": hashlib.sha256(data).hexdigest()} | note
    text = json.dumps(note, indent=1, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n"
    for target, content in ((path, data), (path.with_suffix(".json"), text.encode())):
        with write_whole(target) as place:
            place.write_bytes(content)
    return path


def read(path: Path, **parts: Callable) -> tuple | None:
    """The numbers at `path`, then each named part of the note, made by its function; None where a file is damaged, of
    another format, or holds numbers that are none."""
    try:
        data = path.read_bytes()
        note = json.loads(path.with_suffix(".json").read_bytes())
        tensors = load(data)
        made = [make(note[name]) for name, make in parts.items()]
        whole = note["format"] == FORMAT and note["sha256"] == hashlib.sha256(data).hexdigest()
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        return None
    return (tensors, *made) if whole and all(bool(tensor.isfinite().all()) for tensor in tensors.values()) else None


def check_shapes(fitted: Fitted, wanted: dict[str, tuple]) -> None:
    """Refuse numbers that were fitted on a model of another shape; None in `wanted` is any size. Errors: BadSetting."""
    for name, shape in wanted.items():
        found = tuple(fitted.tensors[name].shape) if name in fitted.tensors else ()
        if len(found) != len(shape) or any(b is not None and a != b for a, b in zip(found, shape, strict=True)):
            raise BadSetting(
                f"What was fitted for {fitted.method} has {name} of shape {list(found)} and this model needs "
                f"{['any' if size is None else size for size in shape]}: fit it on this model."
            )
