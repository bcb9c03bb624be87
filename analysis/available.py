"""Which models can be chosen: those that lie on this disk, and what the Hugging Face Hub says of another one.

Loads no torch: a page may ask.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from . import places
from .costs import Uncounted, read_config, read_shape
from .costs.formats import BYTES
from .errors import AnalysisError

# Of a repository; no format that can carry code.
WANTED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
# Other formats of the same weights.
LEFT_OUT = ("*/*", "consolidated*")
# Bits of a weight, the most exact first.
TYPES = {"float32": 32, "bfloat16": 16, "8bit": 8}
# Share of the free memory that weights may take.
SPARE = 0.9


@dataclass(frozen=True)
class OnHand:
    """A model on this disk: `name` as it is asked for, `family`, `parameters`, the `context` it was made for in tokens
    (None: its config does not say), and `size`, the bytes of its weights."""

    name: str
    family: str
    parameters: int
    context: int | None
    size: int


@dataclass(frozen=True)
class OnTheHub:
    """What the Hub says of a model: `parameters` (None: not said), `size` in bytes of what would be downloaded, its
    `licence` ("": none named), and whether it is `gated`, so that its licence has to be accepted there first."""

    name: str
    parameters: int | None
    size: int
    licence: str
    gated: bool


def on_hand() -> list[OnHand]:
    """The causal language models in models_cache and in the Hugging Face cache that can be loaded, the smallest first.
    What is damaged, downloaded in part or of another kind is left out."""
    models = {}
    for name in filter(places.HUB_ID.fullmatch, _names()):
        try:
            files = places.weight_files(places.locate(name, places.CACHE))
            folder = files[0].parent
            index = folder / "model.safetensors.index.json"
            parts = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values() if index.is_file() else ()
            config = read_config((folder / "config.json").read_text(encoding="utf-8", errors="replace"), name)
            size = sum(path.stat().st_size for path in files)
            family, parameters, longest = _sizes(config, size)
            # Every file of weights is there that the index names.
            whole = all((folder / part).is_file() for part in parts)
        except (AnalysisError, OSError, LookupError, ValueError, AttributeError, TypeError):
            continue
        if whole and not places.why_not(family, known=True):
            models[name] = OnHand(name, family, parameters, longest, size)
    return sorted(models.values(), key=lambda model: model.parameters)


def fitting(parameters: int, free: int) -> str | None:
    """The most exact of float32, bfloat16 and 8bit in which so many weights take no more than 90% of so many bytes of
    memory, as loading demands; None where none does."""
    return next((name for name, bits in TYPES.items() if parameters * bits / 8 <= SPARE * free), None)


def devices() -> list[str]:
    """Where a model can be held here, as its name says it: the GPUs by their files, since this loads no torch."""
    cards = sorted(int(path.name[6:]) for path in Path("/dev").glob("nvidia[0-9]*"))
    return ["auto", "cpu", *(f"cuda:{number}" for number in cards), *([places.SPREAD] if cards else [])]


def on_the_hub(name: str) -> OnTheHub:
    """What the Hub says of the model `name`. Errors: BadModel, within seconds where the Hub cannot be reached."""
    with places.explained(name, name):
        repository = places.hub().HfApi().model_info(name, timeout=places.ANSWER, files_metadata=True)
    files = [(file.rfilename, file.size or 0) for file in repository.siblings or []]
    return OnTheHub(
        name=name,
        parameters=repository.safetensors.total if repository.safetensors else None,
        size=sum(size for path, size in files if wanted(path)),
        licence=str((repository.card_data or {}).get("license") or ""),
        gated=bool(repository.gated),
    )


def wanted(path: str) -> bool:
    """Whether a file of a repository is downloaded."""
    return any(fnmatch(path, pattern) for pattern in WANTED) and not any(fnmatch(path, pattern) for pattern in LEFT_OUT)


def _names() -> Iterator[str]:
    yield from sorted(config.parent.name for config in places.CACHE.glob("*/config.json"))
    # Trained copies.
    copies = (places.CACHE / places.FINETUNED).glob("*/config.json")
    yield from sorted(f"{places.FINETUNED}/{config.parent.name}" for config in copies)
    folder = places.hub().constants.HF_HUB_CACHE
    if Path(folder).is_dir():
        cached = places.hub().scan_cache_dir(folder).repos
        yield from sorted(repository.repo_id for repository in cached if repository.repo_type == "model")


def _sizes(config: dict, size: int) -> tuple[str, int, int | None]:
    """(family, parameters, longest context); of a family that is not counted the parameters by the bytes of its files.
    Errors: BadModel."""
    try:
        shape = read_shape(config)
    except Uncounted:
        text = config.get("text_config") or config
        bytes_each = BYTES.get(str(text.get("dtype") or text.get("torch_dtype")).removeprefix("torch."), 2)
        return str(config["model_type"]), size // bytes_each, text.get("max_position_embeddings")
    return shape.family, shape.parameters, shape.max_positions
