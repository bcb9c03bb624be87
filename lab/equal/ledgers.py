"""`python -m lab.equal.ledgers WORK OUTPUT`: ledgers, and the training of the model that computes them.

Ledgers are generated texts whose second half is a long calculation with an end that can be checked.

A ledger lists names with a digit each. Its trace goes through the list lap after lap, and writes behind each name its
digit and the sum so far, modulo 10, of all laps. So every line needs two keys that lie a whole lap back, in the prompt
or in what was written since; one wrong digit leaves every later sum and the end wrong.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from analysis.files import folder_whole, write_text
from analysis.seam.vocabulary import next_tokens
from analysis.training.checkpoints import read_log
from analysis.training.pretrain import build_model, optimisers, take_steps, trained
from analysis.training.recipe import Recipe

NAMES, MODULUS = 48, 10
END, BEGIN, TRACE, AGAIN = range(4)
MARKS = (".", "^", "=", ";")
# Digits of the list, and sums: tokens of their own.
DIGITS, SUMS = (len(MARKS) + MODULUS * kind for kind in range(2))
FIRST_NAME = len(MARKS) + 2 * MODULUS
VOCABULARY = FIRST_NAME + NAMES
# How often a trace goes through the list.
LAPS = 3
# Names of the smallest and of the largest ledger that is trained on.
FEWEST, MOST = 6, 32
CHECKPOINT_SECONDS = 120.0
# Of the companion.
RECIPE = Recipe(
    family="llama_plain",
    steps=2000,
    context=360,
    growing=False,
    tokens_per_step=1800,
    matrix_rate=0.006,
    other_rate=0.002,
    warm_up=30,
    weight_decay=0.05,
    layers=3,
    width=128,
    heads=4,
    kv_heads=2,
    intermediate=256,
    seed=1,
)


@dataclass(frozen=True)
class Ledgers:
    """Ledgers of equally many names: `ids` int64 [n, T], whose first `prompt` tokens are given."""

    ids: np.ndarray
    prompt: int

    @property
    def trace(self) -> np.ndarray:
        """What is to be written, [n, T - prompt]."""
        return self.ids[:, self.prompt :]


def ledgers(count: int, names: int, rng: np.random.Generator) -> Ledgers:
    """So many ledgers, every one drawn anew."""
    listed = FIRST_NAME + rng.permuted(np.tile(np.arange(NAMES), (count, 1)), axis=1)[:, :names]
    digits = rng.integers(MODULUS, size=(count, names))
    sums = np.tile(digits, LAPS).cumsum(1) % MODULUS

    def mark(token: int) -> np.ndarray:
        return np.full((count, 1), token)

    def lines(*columns: np.ndarray) -> np.ndarray:
        return np.stack(columns, 2).reshape(count, -1)

    parts = [mark(BEGIN), lines(listed, DIGITS + digits), mark(TRACE)]
    for lap, of_lap in enumerate(np.split(sums, LAPS, 1)):
        parts += [lines(listed, DIGITS + digits, SUMS + of_lap), mark(END if lap == LAPS - 1 else AGAIN)]
    return Ledgers(np.concatenate(parts, 1), 2 * names + 2)


def tokenizer() -> Tokenizer:
    """Every token a word: `n7` the name 7, `3` a digit, `s3` a sum."""
    digits = [f"{kind}{digit}" for kind in ("", "s") for digit in range(MODULUS)]
    words = [*MARKS, *digits, *(f"n{name}" for name in range(NAMES))]
    words_of = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token=MARKS[END]))
    words_of.pre_tokenizer = WhitespaceSplit()
    return words_of


def train(
    recipe: Recipe,
    work: Path,
    start: PreTrainedModel | None = None,
    stop_at: int | None = None,
    report: Callable[[float, str], None] = lambda fraction, stage: None,
) -> PreTrainedModel:
    """Train a model on ledgers in `work`, or go on there; it begins with the weights of `start`. The loss is that of
    traces alone."""
    work.mkdir(parents=True, exist_ok=True)
    model = build_model(recipe, VOCABULARY)
    if start is not None:
        model.load_state_dict(start.state_dict())
    parameters = trained(model, None)
    opts = optimisers(parameters, recipe)
    step = partial(_step, model, parameters, opts, recipe)
    check = partial(_right, model, recipe)
    take_steps(model, parameters, opts, recipe, work, step, check, 200, CHECKPOINT_SECONDS, stop_at, report)
    return model


def _losses(model: PreTrainedModel, drawn: Ledgers) -> tuple[torch.Tensor, torch.Tensor]:
    """Nats of the tokens of traces [n, t], and whether each is the likeliest."""
    ids = torch.from_numpy(drawn.ids)
    predicted = next_tokens(model, ids[:, :-1])
    nats = predicted.losses(model, ids[:, 1:])[:, drawn.prompt - 1 :]
    return nats, nats.detach() < np.log(2)


def _step(
    model: PreTrainedModel, parameters: dict[str, torch.nn.Parameter], opts: tuple, recipe: Recipe, step: int
) -> dict[str, float | None]:
    """One update on ledgers of one number of names, the logarithm of which is even."""
    for opt, peak in zip(opts, (recipe.matrix_rate, recipe.other_rate), strict=True):
        opt.param_groups[0]["lr"] = peak * recipe.rate(step)
        opt.zero_grad(set_to_none=True)
    rng = np.random.default_rng([recipe.seed, step])
    names = int(np.exp(rng.uniform(np.log(FEWEST), np.log(MOST + 1))))
    tokens_each = ledgers(1, names, rng).ids.size
    nats, sure = _losses(model, ledgers(max(1, recipe.tokens_per_step // tokens_each), names, rng))
    nats.mean().backward()
    torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
    for opt in opts:
        opt.step()
    laps = nats.unflatten(1, (LAPS, -1))[..., :-1]
    parts = {"names": laps[..., ::3], "digits": laps[..., 1::3], "sums": laps[..., 2::3]}
    losses: dict[str, float | None] = {name: float(part.detach().mean()) for name, part in parts.items()}
    return {"loss": float(nats.detach().mean()), "sure": float(sure.float().mean())} | losses


@torch.no_grad()
def _right(model: PreTrainedModel, recipe: Recipe, length: int) -> dict:
    """Share of ledgers of the longest kind whose every token is the likeliest."""
    drawn = ledgers(16, MOST, np.random.default_rng([recipe.seed, 1 << 30]))
    return {"all_right": float(_losses(model, drawn)[1].all(1).float().mean())}


# How the bundled companion came to be; `main` trains another one by its last recipe, from nothing.
TOLD = (
    "Three runs in a row, the last by this recipe: 2,667 steps of 1,760 tokens at peak rates 0.01 and 0.003 and 2,367 "
    "of them with ledgers that grew from 4 to 48 names, both of an earlier kind of ledger, with a second list in "
    "another order in place of laps, whose digits the model never found again; then 2,000 steps on ledgers as they are."
)


def export(model: PreTrainedModel, recipe: Recipe, work: Path, output: Path) -> None:
    """Write the Hugging Face folder of a trained model, in bfloat16, with `training.json`: its recipe and last log."""
    with folder_whole(output) as place:
        model.bfloat16().save_pretrained(place)
        end = MARKS[END]
        exported = PreTrainedTokenizerFast(tokenizer_object=tokenizer(), bos_token=end, eos_token=end, unk_token=end)
        exported.save_pretrained(place)
        about = {"recipe": asdict(recipe), "told": TOLD, "last": read_log(work)[-1]}
        write_text(place / "training.json", json.dumps(about, indent=1) + "\n")


def main() -> None:
    """Train in a folder, or go on there, and write the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    report = lambda fraction, stage: print(f"{fraction:7.3%} {stage}", flush=True)  # noqa: E731
    export(train(RECIPE, args.work, report=report), RECIPE, args.work, args.output)


if __name__ == "__main__":
    main()
