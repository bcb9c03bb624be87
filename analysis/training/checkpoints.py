"""What a training run keeps to be continued: one file of weights and optimiser state, and a log. No pickle."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..errors import BadSetting
from ..files import locked, write_whole

LOG = "log.jsonl"
# Begins the names of tensors that are kept beside what is trained.
MORE = "more."


def save_checkpoint(
    path: Path, parameters: dict, opts: tuple, recipe: dict, more: dict[str, Tensor] | None = None, **about: object
) -> None:
    """Parameters, optimiser state and what else the run has to remember (`more` tensors by name, `about` plain data)
    in one safetensors file, written whole or not at all. The type in which an optimiser multiplies goes along."""
    tensors = {name: p.detach() for name, p in parameters.items()}
    tensors |= {MORE + name: tensor for name, tensor in (more or {}).items()}
    for n, opt in enumerate(opts):
        for i, state in opt.state_dict()["state"].items():
            tensors |= {f"optimiser{n}.{i}.{key}": value for key, value in state.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    products = [str(opt.products).removeprefix("torch.") for opt in opts if hasattr(opt, "products")]
    notes = {"recipe": json.dumps(recipe), "about": json.dumps(about), "products": json.dumps(products)}
    with write_whole(path) as place:
        save_file({name: t.contiguous().cpu() for name, t in tensors.items()}, place, notes)


def load_checkpoint(path: Path, parameters: dict, opts: tuple, recipe: dict) -> tuple[dict, dict[str, Tensor]]:
    """Put a checkpoint back; returns (`about`, `more`). BadSetting if it is damaged or belongs to another recipe."""
    try:
        with safe_open(path, "pt") as file:
            notes = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        stored_recipe, about = json.loads(notes["recipe"]), json.loads(notes["about"])
        products = [getattr(torch, name) for name in json.loads(notes.get("products", "[]"))]
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError):
        raise BadSetting(f"The checkpoint {path.name} is damaged: delete it to train from the start.") from None
    # Fields that came later are missing in older checkpoints and count as differing.
    if differing := [key for key, value in recipe.items() if stored_recipe.get(key) != value]:
        raise BadSetting(
            f"The checkpoint {path.name} was made with another {', '.join(differing)}: delete it, or give "
            "another folder."
        )
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(tensors[name])
    for opt, kind in zip((opt for opt in opts if hasattr(opt, "products")), products, strict=False):
        # Measured by the process that began: this one may have measured another.
        opt.products = kind
    states: list[dict] = [{} for _ in opts]
    for name, value in tensors.items():
        if name.startswith("optimiser"):
            n, i, key = name.removeprefix("optimiser").split(".", 2)
            states[int(n)].setdefault(int(i), {})[key] = value
    for opt, state in zip(opts, states, strict=True):
        opt.load_state_dict({"state": state, "param_groups": opt.state_dict()["param_groups"]})
    return about, {name.removeprefix(MORE): value for name, value in tensors.items() if name.startswith(MORE)}


@contextmanager
def one_training(*outputs: Path) -> Iterator[None]:
    """Hold outputs for one training: two would write to one log and go on from each other's checkpoint. Errors:
    BadSetting."""

    def refuse() -> None:
        raise BadSetting(f"Another training writes to {outputs[0]}: wait until it ends, or name another output.")

    with ExitStack() as stack:
        for output in outputs:
            stack.enter_context(locked(output.with_name(f".{output.name}.training"), refuse))
        yield


def read_log(work: Path) -> list[dict]:
    """The entries of the log in `work`; a last line cut short by a crash is left out."""
    log = Path(work) / LOG
    entries = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line) for line in entries if line.endswith("}")]


def lines(entries: list[dict]) -> str:
    """Entries as a log holds them."""
    return "".join(json.dumps(entry) + "\n" for entry in entries)
