"""Training the arms of the studies of Focal Attention, resumably, and reading them at shares of their tokens."""

import shutil
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from analysis.corpus import text_hash, token_stream
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.temperature.arms import WIDTH, Arm, Fixed, checked, gains, read, trained_to
from analysis.studies.text.held_out import (
    check_range,
    corpus_hash,
    held_out_windows,
    ids_hash,
    make_folder,
    places,
    read_part,
    texts_of,
    write,
)
from analysis.studies.text.sizes import command
from analysis.training.checkpoints import read_log, save_checkpoint
from analysis.training.pretrain import build_model, optimisers, trained

SEEDS = 2
SHARES = (0.25, 0.5, 0.75, 1.0)  # of the training tokens, at which a model is measured


@dataclass
class Trainer:
    """Trains arms on `documents` and reads held-out `windows` [n, T]: arms of a shorter context the same ones, cut;
    arms of a longer one `longer`, others of as many tokens. What is done lies in `work`, named by a hash of all that
    decides it, and is not done again. A training that was stopped goes on from its checkpoint."""

    lm: Model
    documents: list[str]
    windows: np.ndarray
    longer: np.ndarray | None
    steps: int
    tokens_per_step: int
    work: Path
    context: Context
    expected: int
    done: int = 0

    @cached_property
    def texts(self) -> str:
        """Twelve digits that name the training texts."""
        return corpus_hash(self.documents)

    @cached_property
    def ids(self) -> np.ndarray:
        """The training texts as one run of tokens; made when something has to be trained."""
        self.context.progress(min(1.0, self.done / self.expected), "tokenising the training texts")
        return token_stream(self.lm.tokenizer, self.documents)

    def recipe(self, arm: Arm, seed: int) -> Fixed:
        """How an arm is trained here."""
        return arm.recipe(self.steps, self.tokens_per_step, self.windows.shape[1], seed)

    def read_by(self, arm: Arm) -> np.ndarray:
        """The windows that an arm reads, at the study's context or its own longer one [n, T]."""
        return self.windows if (arm.context or 0) <= self.windows.shape[1] else self.longer

    def measure(self, arm: Arm, seed: int) -> dict:
        """`parameters`; `checkpoints`, after every share of the steps `tokens` seen and `means`, nats per token of each
        window; `curve` of the training (`step loss`); `gains` of the norms of queries and keys, multiplied, mean over
        layers (None without); `temperature` of each layer beside dense attention where it is learned, else None."""
        recipe = self.recipe(arm, seed)
        part = self._place(arm, recipe)
        found = read_part(part)
        if found is None or (_kept(arm) and not part.with_suffix(".safetensors").is_file()):
            found = self._train(arm, recipe, seed, part)
            write(part, found)
            shutil.rmtree(part.with_suffix(""), ignore_errors=True)
        self.done += 1
        return found

    def _place(self, arm: Arm, recipe: Fixed) -> Path:
        told = [self.lm.revision, self.texts, ids_hash(self.read_by(arm)), asdict(recipe), arm.key]
        told += [self.steps] if arm.further else []
        return self.work / f"focal-{text_hash(repr(told))}.json"

    def _train(self, arm: Arm, recipe: Fixed, seed: int, part: Path) -> dict:
        folder, before = part.with_suffix(""), self.steps if arm.further else 0
        make_folder(folder)
        if arm.further and not (folder / "checkpoint.safetensors").exists():
            self._begin(arm, recipe, seed, folder)
        measured = read_part(folder / "measured.json") or {}
        for share in (1.0,) if arm.further else SHARES:
            if share < 1 and f"{share:g}" in measured:
                continue
            stop = round(share * recipe.steps)
            name = f"{arm.name}, seed {seed}"
            model, method = trained_to(self.lm, arm, recipe, self.ids, folder, stop, self._told(name))
            means, temperature = read(self.lm, model, method, self.read_by(arm).reshape(-1, recipe.context))
            measured[f"{share:g}"] = {"tokens": (before + stop) * recipe.tokens_per_step, "means": means}
            write(folder / "measured.json", measured)
        if _kept(arm):
            weights = {name: p.detach().contiguous() for name, p in model.named_parameters()}
            save_file(weights, part.with_suffix(".safetensors"))
        return {
            "parameters": sum(p.numel() for p in model.parameters()),
            "checkpoints": list(measured.values()),
            "curve": [{"step": row["step"], "loss": row["loss"]} for row in read_log(folder) if "loss" in row],
            "gains": gains(model),
            "temperature": temperature,
            "seconds": read_log(folder)[-1]["seconds"],
        }

    def _begin(self, arm: Arm, recipe: Fixed, seed: int, folder: Path) -> None:
        """The checkpoint from which an adapted model starts: weights of dense training, optimisers that are new."""
        base = replace(arm.dense, name="dense", further=False)
        self.done -= 1
        self.measure(base, seed)
        weights = load_file(self._place(base, self.recipe(base, seed)).with_suffix(".safetensors"))
        model = build_model(recipe, len(self.lm.tokenizer))
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(weights[name])
        parameters = trained(model, arm.method(recipe, "cpu"))
        opts = optimisers(parameters, recipe)
        save_checkpoint(folder / "checkpoint.safetensors", parameters, opts, asdict(recipe), step=0, seconds=0.0)

    def _told(self, name: str):
        def told(done: float, stage: str) -> None:
            self.context.progress(min(1.0, (self.done + done) / self.expected), f"{name}, {stage}")

        return told


def _kept(arm: Arm) -> bool:
    """Whether the weights stay, because another arm begins with them."""
    return arm == replace(arm.dense, further=False, width=WIDTH, context=None)


@dataclass
class Asked:
    """What a study of Focal Attention was asked for, as its arguments name it."""

    name: str
    corpus: str
    model: str
    length: int
    windows: int
    steps: int
    tokens_per_step: int
    rows: str | None
    seed: int
    output: str | None
    work: str | None

    def run(self, arms: list[Arm], context: Context) -> "Trained":
        """Train and read every arm at both seeds. Errors: BadSetting, BadText."""
        check_seed(self.seed)
        lm = context.model(self.model)
        check_range("A window of text", self.length, 16, lm.max_positions)
        check_range("The number of windows of text", self.windows, 2, 4096)
        seeds = range(self.seed, self.seed + SEEDS)
        for arm in arms:
            arm.recipe(self.steps, self.tokens_per_step, self.length, self.seed)
        documents, held_out = texts_of(self.corpus, context)
        path, folder = places(context, lm, self.name, self.output, self.work)
        ids = held_out_windows(lm, held_out, self.length, self.windows)
        longest, longer = max((arm.context or 0) for arm in arms), None
        if longest > self.length:
            longer = held_out_windows(lm, held_out, longest, max(2, self.windows * self.length // longest))
        trainer = Trainer(
            lm, documents, ids, longer, self.steps, self.tokens_per_step, folder, context, len(arms) * len(seeds)
        )
        found = {arm: [trainer.measure(arm, seed) for seed in seeds] for arm in arms}
        held = f"{Path(self.corpus).name}, {len(documents)} training and {len(held_out)} held-out documents"
        return Trained(self, trainer, found, held, path)


@dataclass
class Trained:
    """Arms that were trained: `found`, their parts as `Trainer.measure` gives them, one for each seed."""

    asked: Asked
    trainer: Trainer
    found: dict[Arm, list[dict]]
    corpus: str
    path: Path

    def result(self, numbers: dict, tables: dict, checking: list[Arm]) -> Result:
        """Store the study and return it; the arms of `checking` can be tried again without the corpus."""
        asked, lm, ids = self.asked, self.trainer.lm, self.trainer.windows
        numbers = numbers | {
            "protocol": protocol(
                f"study {asked.name}", lm, ids_hash(ids), ids.size, window=asked.length, seed=asked.seed,
                steps=asked.steps, training_text=self.trainer.texts, corpus=self.corpus,
                training_tokens=asked.steps * asked.tokens_per_step,
                kernel="bfloat16 in training, torch dense on sharpened queries",
                command=command(
                    asked.name, lm, length=asked.length, windows_count=asked.windows, steps=asked.steps,
                    tokens_per_step=asked.tokens_per_step, rows=asked.rows, seed=asked.seed,
                ),
            ),
        }  # fmt: skip
        recipes = [self.trainer.recipe(arm, asked.seed) for arm in checking]
        write(self.path, numbers | checked(lm, checking, recipes))
        return Result(numbers | {"path": str(self.path)}, tables)
