"""`python -m lab.far.run CORPUS WORK --begin FOLDER`: begin or continue the training of the model that
reads far, from the model with normed queries and keys in FOLDER.

`--decay TOKENS --from CHECKPOINT --output FOLDER` instead branches off: the rate falls over so many more tokens, and
the result is written as a Hugging Face folder.

`--more TOKENS --begin FOLDER --output FOLDER` reads on from such a folder, with half of the rows recall documents, at a
rate that falls again; `--measure FOLDER` measures one and writes its card anew. Training can be stopped at any time and
asked for again.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from analysis.corpus import sample_texts
from analysis.files import folder_whole, write_text
from analysis.places import CACHE
from analysis.training.bundle import card, export
from analysis.training.checkpoints import LOG, one_training, read_log
from analysis.training.mixture import build, known, read_shards
from analysis.training.yardsticks import bits_by_domain, context_gain
from lab.far.looking_back import copy_losses
from lab.far.measures import RANDOM, Measures, circuit_scores, cost_of_window, tasks
from lab.far.recall import Source
from lab.far.recipe import MORE, MORE_OF, FarRecipe
from lab.far.targets import targets
from lab.far.training import branch, train_far
from lab.far.unnormed import without_norms

KEEP = (1, 2, 3, 4, 6, 8, 10, 12, 16, *range(20, 121, 5))  # million tokens after which a checkpoint stays


def main() -> None:
    """Read the arguments, make the shards, train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--begin", type=Path, help="the Hugging Face folder whose weights it begins with")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=FarRecipe.tokens)
    parser.add_argument("--decay", type=int, help="branch off: tokens over which the rate falls to 0")
    parser.add_argument("--more", type=int, help="read on from a folder that is done: tokens, most at a falling rate")
    parser.add_argument("--from", dest="checkpoint", type=Path, help="branch off: from here, not from the newest")
    parser.add_argument("--output", type=Path, help="branch off: the Hugging Face folder")
    parser.add_argument("--measure", type=Path, help="measure this finished folder, and train nothing")
    parser.add_argument("--no-dear", action="store_true", help="measure no needles and no gain of context")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    bundled = CACHE / "demo" / "tokenizer.json"
    about = build(args.corpus, args.work / "tokens", tokenizer=bundled)
    shards = {split: read_shards(args.work / "tokens", about, split) for split in ("train", "valid")}
    if args.measure:
        stored = json.loads((args.measure / "pretrain.json").read_text(encoding="utf-8"))["recipe"]
        measure(args.measure, recipe_from(stored), about, shards["valid"])
        return
    source = Source(known(args.work / "tokens" / "tokenizer.json"), shards["train"])
    text = sample_texts()["story"][1]
    measures = Measures(shards["valid"], about, AutoTokenizer.from_pretrained(CACHE / "demo"), text)
    measures.dear_every = 10**9 if args.no_dear else measures.dear_every
    recipe, work, start = FarRecipe(tokens=args.tokens), args.work, None
    if args.begin:
        start = AutoModelForCausalLM.from_pretrained(args.begin, dtype=torch.float32)
        before = json.loads((args.begin / "pretrain.json").read_text(encoding="utf-8"))
        if args.more:
            recipe = reading_on(args.more, before)
        else:
            start = without_norms(start, usual(shards["train"]))
            recipe = replace(recipe, read_before=before["tokens"])
    if args.decay:
        checkpoint = args.checkpoint or work / "checkpoint.safetensors"
        recipe = recipe_of(checkpoint)
        tokens, work = work / "tokens", Path(f"{args.output}.work")
        if (work / "checkpoint.safetensors").exists():
            recipe = recipe_of(work / "checkpoint.safetensors")
        else:
            recipe = branch(checkpoint, work, recipe, args.decay)
            (work / "tokens").symlink_to(tokens.resolve())
    keep = tuple(1_000_000 * n for n in KEEP) if not args.decay else ()
    every_steps = 40 if args.more else 200
    with one_training(work, *filter(None, [args.output])):
        model = train_far(recipe, source, about, work, "cpu", start, measures, every_steps, keep_at=keep, report=tell)
        if args.output:
            finish(model, recipe, about, shards["valid"], work, args.output)


def reading_on(tokens: int, before: dict) -> FarRecipe:
    """The recipe with which a model that is done reads on; `before` is its folder's pretrain.json."""
    settings = {"seed": before["recipe"]["seed"] + 1, "warm_up": 10, "tokens": tokens, "decay": tokens * 9 // 10}
    settings |= {"marks": MORE, "last_share": MORE[-1].recall, "kinds": tuple(MORE_OF.items())}
    recipe = recipe_from(before["recipe"])
    read = {"read_before": before["tokens"], "natural_before": recipe.natural(), "told_before": recipe.told()}
    return FarRecipe(**settings, **read)


def usual(train: dict) -> torch.Tensor:
    """Four places of 512 tokens of every domain, ids [12, 512], on which the lengths of queries and keys are taken."""
    rows = [ids[at : at + 512] for ids in train.values() for at in range(1000, len(ids) - 512, len(ids) // 4)]
    return torch.from_numpy(np.stack(rows).astype(np.int64))


def finish(model: PreTrainedModel, recipe: FarRecipe, about: dict, valid: dict, work: Path, output: Path) -> dict:
    """Write the folder of a trained model with its card: measured on the whole valid texts, weights as shipped."""
    with folder_whole(output) as place:
        export(model, None, work, place, recipe)
        write_text(place / LOG, (work / LOG).read_text(encoding="utf-8"))
        return measure(place, recipe, about, valid)


def measure(folder: Path, recipe: FarRecipe, about: dict, valid: dict) -> dict:
    """Measure a finished folder on the whole valid texts and write its card and `pretrain.json`."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer, text = AutoTokenizer.from_pretrained(folder), sample_texts()["story"][1]
    name, log = next(iter(valid)), read_log(folder)
    previous, induction = circuit_scores(model)
    context, read = recipe.context, recipe.natural()
    numbers = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens": recipe.read_before + recipe.seen(recipe.steps),
        "seconds": log[-1]["seconds"],
        "epochs": {n: round(read * part["share"] / part["train"]["tokens"], 2) for n, part in about["domains"].items()},
        "bits_per_byte": bits_by_domain(model, valid, about, context),
        "gains": {n: context_gain(model, valid[n], context, context // 16, context * 3 // 8) for n in valid},
        "circuit": {"previous_token": previous.round(3).tolist(), "induction": induction.round(3).tolist()},
        "second_copy": copy_losses(model, RANDOM, 16, about["vocabulary"])[1],
        "tasks": tasks(model, tokenizer, text, min(1024, context)),
        "cost_of_window": cost_of_window(
            model, tokenizer, valid, {n: part["share"] for n, part in about["domains"].items()}
        ),
        "weight_bytes": (folder / "model.safetensors").stat().st_size,
    }
    numbers["context_gain"] = numbers["gains"][name] | {"domain": name}
    write_text(folder / "README.md", card(recipe, about, log, numbers, targets(numbers)))
    report = {"recipe": asdict(recipe), "mixture": about} | numbers
    write_text(folder / "pretrain.json", json.dumps(report, indent=1) + "\n")
    return numbers


def recipe_of(checkpoint: Path) -> FarRecipe:
    """The recipe that a checkpoint was made with."""
    with safe_open(checkpoint, "pt") as file:
        return recipe_from(json.loads(file.metadata()["recipe"]))


def recipe_from(stored: dict) -> FarRecipe:
    """A recipe as a checkpoint and pretrain.json keep it."""
    return FarRecipe(**{name: value for name, value in stored.items() if name != "steps"})


def tell(fraction: float, stage: str) -> None:
    """A line for whoever looks."""
    print(f"{fraction:7.3%} {stage}", flush=True)


if __name__ == "__main__":
    main()
