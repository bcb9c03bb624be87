"""`python -m analysis.training.far_run CORPUS WORK`: begin or continue the training of the model that reads far.

`--decay TOKENS --from CHECKPOINT --output FOLDER` instead branches off: the rate falls over so many more tokens, and
the result is written as a Hugging Face folder. Both can be stopped at any time and said again.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import AutoTokenizer

from analysis.corpus import sample_texts
from analysis.places import CACHE
from analysis.training.bundle import export
from analysis.training.far import FarRecipe, branch, train_far
from analysis.training.far_measures import Measures
from analysis.training.mixture import build, known, read_shards
from analysis.training.recall import Source

KEEP = (1, 2, 3, 4, 6, 8, 10, 12, 16, *range(20, 121, 5))  # million tokens after which a checkpoint stays


def main() -> None:
    """Read the arguments, make the shards, train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=FarRecipe.tokens)
    parser.add_argument("--decay", type=int, help="branch off: tokens over which the rate falls to 0")
    parser.add_argument("--from", dest="checkpoint", type=Path, help="branch off: from here, not from the newest")
    parser.add_argument("--output", type=Path, help="branch off: the Hugging Face folder")
    parser.add_argument("--no-dear", action="store_true", help="measure no needles and no gain of context")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    bundled = CACHE / "demo" / "tokenizer.json"
    about = build(asked.corpus, asked.work / "tokens", tokenizer=bundled)
    shards = {split: read_shards(asked.work / "tokens", about, split) for split in ("train", "valid")}
    source = Source(known(asked.work / "tokens" / "tokenizer.json"), shards["train"])
    text = sample_texts()["story"][1]
    measures = Measures(shards["valid"], about, AutoTokenizer.from_pretrained(CACHE / "demo"), text)
    measures.dear_every = 10**9 if asked.no_dear else measures.dear_every
    recipe, work = FarRecipe(tokens=asked.tokens), asked.work
    if asked.decay:
        checkpoint = asked.checkpoint or work / "checkpoint.safetensors"
        recipe = recipe_of(checkpoint)
        tokens, work = work / "tokens", Path(f"{asked.output}.work")
        if (work / "checkpoint.safetensors").exists():
            recipe = recipe_of(work / "checkpoint.safetensors")
        else:
            recipe = branch(checkpoint, work, recipe, asked.decay)
            (work / "tokens").symlink_to(tokens.resolve())
    keep = tuple(1_000_000 * n for n in KEEP) if not asked.decay else ()
    model = train_far(recipe, source, about, work, evaluate=measures, keep_at=keep, report=tell)
    if asked.decay:
        export(model, None, work, asked.output, recipe)
        made = {"recipe": asdict(recipe), "mixture": about}
        (asked.output / "pretrain.json").write_text(json.dumps(made, indent=1) + "\n")


def recipe_of(checkpoint: Path) -> FarRecipe:
    """The recipe that a checkpoint was made with."""
    with safe_open(checkpoint, "pt") as file:
        kept = json.loads(file.metadata()["recipe"])
    return FarRecipe(**{name: value for name, value in kept.items() if name != "steps"})


def tell(fraction: float, stage: str) -> None:
    """A line for whoever looks."""
    print(f"{fraction:7.3%} {stage}", flush=True)


if __name__ == "__main__":
    main()
