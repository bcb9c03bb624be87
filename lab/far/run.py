"""`python -m lab.far.run CORPUS WORK --output FOLDER`: begin or continue the training of a model that reads far, and
write it as a Hugging Face folder.

With `--begin FOLDER` it reads on from such a folder, with half of the rows recall documents, at a rate that falls
again; `--measure FOLDER` measures one and writes its card anew. A training that was stopped goes on when it is
asked for again.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from analysis.files import folder_whole, write_text
from analysis.places import CACHE
from analysis.training.bundle import card, export
from analysis.training.checkpoints import LOG, one_training, read_log
from analysis.training.mixture import build, known, read_shards
from analysis.training.yardsticks import bits_by_domain
from lab.far.measures import measured, targets
from lab.far.recall import Source
from lab.far.recipe import FarRecipe, reading_on, recipe_from
from lab.far.training import train_far

# Tokens of each domain whose bits per byte are logged while it trains.
LOOKED_AT = 8192


def main() -> None:
    """Read the arguments, make the shards, train or measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--output", type=Path, help="the Hugging Face folder to write")
    parser.add_argument("--begin", type=Path, help="the Hugging Face folder that it reads on from")
    parser.add_argument(
        "--tokens", type=int, default=FarRecipe.tokens, help="in all, the last of them at falling rates"
    )
    parser.add_argument("--measure", type=Path, help="measure this finished folder, and train nothing")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tokens = args.work / "tokens"
    about = build(args.corpus, tokens, tokenizer=CACHE / "demo" / "tokenizer.json")
    train, valid = (read_shards(tokens, about, split) for split in ("train", "valid"))
    if args.measure:
        stored = json.loads((args.measure / "pretrain.json").read_text(encoding="utf-8"))["recipe"]
        write_card(args.measure, recipe_from(stored), about, valid)
        return
    recipe, start = FarRecipe(tokens=args.tokens), None
    if args.begin:
        start = AutoModelForCausalLM.from_pretrained(args.begin, dtype=torch.float32)
        recipe = reading_on(args.tokens, json.loads((args.begin / "pretrain.json").read_text(encoding="utf-8")))

    def evaluate(model: PreTrainedModel, length: int) -> dict:
        bits = bits_by_domain(model, valid, about, length, max(1, LOOKED_AT // length))
        return {f"valid_{name}": value for name, value in bits.items()}

    source = Source(known(tokens / "tokenizer.json"), train)
    with one_training(args.work, *filter(None, [args.output])):
        model = train_far(recipe, source, about, args.work, start=start, evaluate=evaluate, report=report)
        if args.output:
            finish(model, recipe, about, valid, args.work, args.output)


def report(fraction: float, stage: str) -> None:
    """A line for whoever looks."""
    print(f"{fraction:7.3%} {stage}", flush=True)


def finish(
    model: PreTrainedModel, recipe: FarRecipe, about: dict, valid: dict[str, np.ndarray], work: Path, output: Path
) -> dict:
    """Write the folder of a trained model with its card: measured on the whole valid texts, weights as shipped."""
    with folder_whole(output) as place:
        export(model, None, work, place, recipe)
        write_text(place / LOG, (work / LOG).read_text(encoding="utf-8"))
        return write_card(place, recipe, about, valid)


def write_card(folder: Path, recipe: FarRecipe, about: dict, valid: dict[str, np.ndarray]) -> dict:
    """Measure a finished folder and write its card and `pretrain.json`; returns the numbers."""
    numbers = measured(folder, recipe, about, valid)
    write_text(folder / "README.md", card(recipe, about, read_log(folder), numbers, targets(numbers)))
    write_text(
        folder / "pretrain.json", json.dumps({"recipe": asdict(recipe), "mixture": about} | numbers, indent=1) + "\n"
    )
    return numbers


if __name__ == "__main__":
    main()
