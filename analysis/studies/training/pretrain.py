"""Pretraining the bundled model: a folder of texts in, a Hugging Face folder with its model card out."""

import contextlib
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from ...answer import Answer, doc, record
from ...commands.training import Pretrain
from ...errors import BadSetting
from ...files import folder_whole, write_text
from ...methods.base import Method
from ...seam.attention import apply
from ...training.bundle import card, export
from ...training.checkpoints import LOG, lines, one_training, read_log
from ...training.mixture import build, known, read_shards
from ...training.pretrain import train
from ...training.recipe import Recipe
from ...training.yardsticks import bits_by_domain, context_gain
from ..context import Context, made_on

SIZES: dict[str, dict[str, int]] = {  # what a family changes in the recipe; gpt2 is the smaller, other architecture
    "llama": {},
    "llama_plain": {},
    "gpt2": {"layers": 4, "width": 192, "heads": 6, "kv_heads": 6, "intermediate": 768},
}
NAMED = ("layers", "width", "heads", "kv_heads", "intermediate")


@record
class Pretrained(Answer):
    """A model that was trained from its first step, and how well it predicts."""

    parameters: int
    tokens: int = doc("tokens that were read")
    seconds: float = doc("of training, pauses left out")
    epochs: dict[str, float] = doc("domain -> how often its texts were read")
    bits_per_byte: dict[str, float] = doc("domain -> on its whole valid split, at the final length")
    context_gain: dict[str, Any] = doc("nats that far context gives, its interval, windows and domain")
    weight_bytes: int
    path: str = doc("the model's folder")


def pretrain(request: Pretrain, *, context: Context) -> Pretrained:
    """Train a model on the mixture in a corpus and write it; asked again, it continues where it stopped. The folder of
    the work keeps shards, checkpoint and log. Errors: BadSetting, BadText."""
    if request.family not in SIZES:
        raise BadSetting(f"The family is {' or '.join(SIZES)}, not {request.family!r}.")
    recipe = recipe_of(request)
    device, path = context.torch_device(), Path(request.output)
    work = Path(request.work or f"{path}.work")
    with one_training(path, work):
        context.progress(0.0, "tokenising the corpus")
        tokenizer = Path(request.tokenizer) if request.tokenizer else None
        wanted: dict[str, Any] = {name: getattr(request, name) for name in ("vocabulary", "seed", "shares")}
        about = build(Path(request.corpus), work / "tokens", tokenizer=tokenizer, **wanted)
        most = known(tokenizer).get_vocab_size() if tokenizer else request.vocabulary
        if about["vocabulary"] > most or about["seed"] != request.seed:
            raise BadSetting(f"{work} holds shards of another vocabulary or seed; choose another work folder.")
        shards = {split: read_shards(work / "tokens", about, split) for split in ("train", "valid")}
        model, method = train(recipe, shards["train"], shards["valid"], about, work, device, report=context.progress)
        log = read_log(work)
        tokens = recipe.steps * recipe.tokens_per_step
        read = {name: tokens * part["share"] / part["train"]["tokens"] for name, part in about["domains"].items()}
        numbers: dict[str, Any] = {
            "parameters": sum(p.numel() for p in model.parameters()),
            "tokens": tokens,
            "seconds": log[-1]["seconds"],
            "epochs": {name: round(times, 2) for name, times in read.items()},
        }
        context.progress(1.0, "measuring on the whole valid texts")
        numbers |= measure(model, method, shards["valid"], about, recipe)
        with folder_whole(path) as place:
            numbers["weight_bytes"] = export(model, method, work, place, recipe)
            write_text(place / LOG, lines(log))
            write_text(place / "README.md", card(recipe, about, log, numbers))
            description = {"recipe": asdict(recipe), "mixture": about} | numbers
            write_text(place / "pretrain.json", json.dumps(description, indent=1) + "\n")
    made_with = made_on(verb="pretrain", device=device, seed=request.seed, window=request.length)
    return Pretrained(**numbers, path=str(path), protocol=made_with)


def recipe_of(request: Pretrain) -> Recipe:
    """The recipe that a request means: the family's sizes where none are named, and of named ones what follows from
    them. Errors: BadSetting."""
    same = [
        declared.name
        for declared in fields(Recipe)
        if declared.name in Pretrain.defaults and declared.name not in NAMED
    ]
    settings: dict[str, Any] = {name: getattr(request, name) for name in same} | SIZES[request.family]
    named = {name: getattr(request, name) for name in NAMED if getattr(request, name) is not None}
    if "heads" in named:
        gpt2 = request.family == "gpt2"
        settings["kv_heads"] = named["heads"] if gpt2 or named["heads"] % 2 else named["heads"] // 2
    if "width" in named:
        settings["intermediate"] = named["width"] * (4 if request.family == "gpt2" else 3)
    if settings["warm_up"] is None:
        settings["warm_up"] = min(100, request.steps // 4)
    return Recipe(context=request.length, **settings | named)


def measure(model: torch.nn.Module, method: Method | None, valid: dict, about: dict, recipe: Recipe) -> dict:
    """Bits per byte on each whole valid split and the gain of context on the first domain, with weights as shipped."""
    with torch.no_grad():
        for p in model.parameters():
            # What is measured is what is shipped.
            p.copy_(p.bfloat16())
    model.eval()
    with apply(model, method) if method else contextlib.nullcontext():
        bits = bits_by_domain(model, valid, about, recipe.context)
        first = next(iter(valid))
        gain = context_gain(model, valid[first], recipe.context, recipe.context // 16, recipe.context * 3 // 8)
    return {"bits_per_byte": bits, "context_gain": gain | {"domain": first}}
