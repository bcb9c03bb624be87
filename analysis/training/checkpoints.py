"""What a pretraining run keeps to be continued: one file of weights and optimiser state, and a log. No pickle."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from analysis.errors import BadSetting


def save_checkpoint(path: Path, parameters: dict, opts: tuple, recipe, step: int, seconds: float) -> None:
    """Weights, optimiser state and step in one safetensors file, replaced atomically."""
    tensors = {name: p.detach() for name, p in parameters.items()}
    for n, opt in enumerate(opts):
        for i, state in opt.state_dict()["state"].items():
            tensors |= {f"optimiser{n}.{i}.{key}": value for key, value in state.items()}
    about = {"step": str(step), "seconds": str(seconds), "recipe": json.dumps(asdict(recipe))}
    part = path.with_suffix(".part")
    save_file({name: t.contiguous().cpu() for name, t in tensors.items()}, part, about)
    os.replace(part, path)


def load_checkpoint(path: Path, parameters: dict, opts: tuple, recipe) -> tuple[int, float]:
    """Put a checkpoint back; returns (step, seconds). BadSetting if it belongs to another recipe."""
    try:
        with safe_open(path, "pt") as file:
            about = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        there = json.loads(about["recipe"])
    except (SafetensorError, KeyError, TypeError):
        raise BadSetting(f"The checkpoint {path} is damaged; take it away to start again.") from None
    if other := [key for key, value in asdict(recipe).items() if there.get(key) != value]:
        raise BadSetting(f"{path} was made with another {', '.join(other)}; choose another work folder.")
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(tensors[name])
    for n, opt in enumerate(opts):
        state: dict = {}
        for name, value in tensors.items():
            if name.startswith(f"optimiser{n}."):
                _, i, key = name.split(".", 2)
                state.setdefault(int(i), {})[key] = value
        opt.load_state_dict({"state": state, "param_groups": opt.state_dict()["param_groups"]})
    return int(about["step"]), float(about["seconds"])


def read_log(work: Path) -> list[dict]:
    """The entries of `work/log.jsonl`; a last line cut short by a crash is left out."""
    log = Path(work) / "log.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]
