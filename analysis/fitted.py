"""Fitted numbers on disk: one safetensors file, and a JSON note of how they were made beside it. No pickle."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from .errors import BadSetting, NotFitted
from .files import clear, locked, write_bytes

FORMAT = 1
# Of a model's fitted state.
FOLDER = "methods"


@dataclass
class Fitted:
    """The numbers of one method for one model; `about` says how they were made."""

    method: str
    tensors: dict[str, Tensor]
    about: dict = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def to(self, device: torch.device | str) -> "Fitted":
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
        content = read(path, about=dict)
        if content is None:
            raise BadSetting(
                f"The numbers fitted for {path.stem} or their .json are damaged or of another version (this one reads "
                f"format {FORMAT}): run `fit-method {path.stem}` again."
            )
        return cls(path.stem, *content)


def write(path: Path, tensors: dict[str, Tensor], **note: object) -> Path:
    """Write numbers to `path` and the note to the .json beside it; returns `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    put(path, data, {"format": FORMAT} | note)
    return path


def put(path: Path, data: bytes, note: dict) -> None:
    """Write data to `path` and the note to the .json beside it, which names the data by its SHA-256. The data that the
    former note names stay beside them until the new one stands: whenever the program ends, one pair can be read."""
    note = {"sha256": hashlib.sha256(data).hexdigest()} | note
    text = json.dumps(note, indent=1, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n"
    with locked(path.with_name(f".{path.name}.lock"), lambda: None):
        if (former := pair(path)) is not None:
            write_bytes(_former(path), former[0])
        write_bytes(path, data)
        write_bytes(path.with_suffix(".json"), text.encode())
        clear(_former(path))


def pair(path: Path) -> tuple[bytes, dict] | None:
    """The data and the note that `put` wrote, of one writing; None where they are not there or damaged."""
    # They may be written anew between reading the one and the other.
    for _ in range(2):
        try:
            note = json.loads(path.with_suffix(".json").read_bytes())
            for place in (path, _former(path)):
                data = place.read_bytes()
                if note["sha256"] == hashlib.sha256(data).hexdigest():
                    return data, note
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def _former(path: Path) -> Path:
    return path.with_name(f".{path.name}.former")


def read(path: Path, **parts: Callable) -> tuple | None:
    """The numbers at `path`, then each named part of the note, made by its function; None where a file is damaged, of
    another format, or holds numbers that are none."""
    if (stored := pair(path)) is None:
        return None
    data, note = stored
    try:
        tensors = load(data)
        values = [make(note[name]) for name, make in parts.items()]
    except (ValueError, KeyError, TypeError, SafetensorError):
        return None
    sound = note.get("format") == FORMAT and all(bool(tensor.isfinite().all()) for tensor in tensors.values())
    return (tensors, *values) if sound else None


def check_shapes(fitted: Fitted, wanted: dict[str, tuple]) -> None:
    """Refuse numbers that were fitted on a model of another shape; None in `wanted` is any size. Errors: BadSetting."""
    for name, shape in wanted.items():
        actual = tuple(fitted.tensors[name].shape) if name in fitted.tensors else ()
        if len(actual) != len(shape) or any(b is not None and a != b for a, b in zip(actual, shape, strict=True)):
            raise BadSetting(
                f"What was fitted for {fitted.method} has {name} of shape {list(actual)} and this model needs "
                f"{['any' if size is None else size for size in shape]}: fit it on this model."
            )
