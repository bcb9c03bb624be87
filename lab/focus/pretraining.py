"""Does training with groups from the first step cost anything? Small models at equal tokens (Focus, section 3.4)."""

import tempfile
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analysis.corpus import token_stream
from analysis.groups.fit import fit_without_training
from analysis.methods.focus import Focus
from analysis.models import Model, load_model
from analysis.seam.attention import apply
from analysis.statistics import attention_inputs
from analysis.studies.stored.comparisons import interval_caveat, lowest_highest
from analysis.studies.stored.measured import DENSE, READINGS, Arm, Bench, drawn_arms, trained_arm, window_arm
from analysis.studies.stored.panels import panel, presented, printed, series
from analysis.studies.stored.runner import Seeds, Setting, Windows, option
from analysis.studies.stored.trained import TRAINED, Read, Trainer
from analysis.studies.text.held_out import chosen, ids_hash, make_folder, sample_windows, spread_windows
from analysis.training.checkpoints import read_log
from analysis.training.mitigations import Control
from analysis.training.pretrain import training_method
from analysis.training.recipe import Recipe
from analysis.training.settings import RouterTraining
from lab.harness.routed import Reads, equal_pairs_window, pairs_share
from lab.harness.small import pretrained
from lab.harness.telling import concluded, distinct, lines_of, training_panel

SMALL = Recipe(layers=4, width=128, heads=4, kv_heads=2, intermediate=384)
# Trained with -> its recipe's attention.
ROWS = {"dense": "dense", "focus": "focus", "random groups": "dense"}
# Training windows on which balances are frozen.
CALIBRATION = 32
LABELS = {  # how a model is read -> what a reader calls it
    "dense": "dense",
    "trained": "trained groups, hard",
    "trained, literal": "trained groups, literal",
    "trained, soft": "soft gate",
    "trained, soft literal": "soft gate, literal",
    "k-means": "k-means groups",
    "random groups": "random groups",
    "window": "window alone",
    "window of equal pairs": "window of equal pairs",
}
# Both read as they were trained.
AGAINST = {"against_dense": "dense", "against_random": "random groups"}
CONTROLS = {key: f"training with {name} read so" for key, name in AGAINST.items()}
CLAIMED = {("focus", LABELS["trained"]), ("focus", "dense"), ("random groups", "random groups")}
# How each is read sparsely.
SPARSE = {"focus": "trained", "dense": "k-means", "random groups": "random groups"}
PAPER = ("7B from scratch, full attention", "7B from scratch, Focus (K=4)")


class Pretraining(Seeds, Windows):
    """A small model pretrained with dense attention, with Focus and with random groups, at equal tokens; each is read
    dense, with a window, with random groups, with groups (Focus: the trained ones; dense: k-means of its own states)
    and with a window of equal pairs."""

    tables = ("rows", "curves")

    length: int = option(512, "context, and tokens in a window of text")
    steps: int = option(600, "steps of each training")
    tokens_per_step: int = option(2048, "tokens in one step of each training")
    rows: str | None = option(None, "some of dense, focus, random groups, separated by commas (default: all)")

    def measure(self, run: Setting) -> dict:
        names, rows, curves = chosen(self.rows, list(ROWS)), [], []
        base = replace(
            SMALL,
            steps=self.steps,
            context=self.length,
            tokens_per_step=self.tokens_per_step,
            warm_up=min(100, self.steps // 4),
            seed=self.seed,
        )
        trainer = Trainer.of(run, expected=len(names) * self.seeds)
        reads = Reads(trainer.units)
        for name in names:
            for seed in self.every_seed:
                recipe = replace(base, attention=ROWS[name], seed=seed)
                decides = [run.lm.revision, trainer.texts, ids_hash(trainer.windows), name, asdict(recipe)]
                make = partial(_train_and_read, trainer, name, recipe)
                stored = trainer.part(f"pretraining-{name.replace(' ', '-')}", decides, make)
                readings = {reading: stored["readings"].get(reading) for reading in LABELS}
                reads.add({(name, reading): Read.stored(part) for reading, part in readings.items() if part})
                curves += [{"trained": name, "seed": seed, **point} for point in stored["curve"]]
        for (name, reading), several in reads.of_seeds.items():
            mean = reads[name, reading]
            row = {"trained": name, "reading": LABELS[reading], "loss": mean.loss, "perplexity": mean.perplexity}
            row |= lowest_highest("perplexity", [read.perplexity for read in several])
            row |= {"pairs_share": pairs_share(mean.pairs, self.length), "largest_share": None}
            if reading.startswith(("trained", "k-means")):
                row["largest_share"] = max(mean.shares)
            ways = {key: ((name, reading), (way, way)) for key, way in AGAINST.items() if (way, way) in reads.of_seeds}
            rows.append(row | reads.differences(ways))
        about = {"training_tokens": self.steps * self.tokens_per_step, "kernel": "bfloat16 in training, exact kernels"}
        return {
            "rows": rows,
            "curves": curves,
            "recipe": asdict(base),
            "trained_with": names,
            "windows": len(trainer.windows),
            "protocol": run.about(trainer.windows, **about),
        }

    def sample(self, run: Setting, numbers: dict) -> dict:
        base, losses = Recipe(**numbers["recipe"]), {}
        ids = np.append(sample_windows(run.lm, base.context, 4).reshape(-1), 0)
        for name in numbers["trained_with"]:
            recipe = replace(base, attention=ROWS[name], steps=4, warm_up=1)
            with tempfile.TemporaryDirectory() as folder:
                _pretrain(run.lm, name, recipe, ids, ids, Path(folder))
                losses[name] = [read_log(Path(folder))[-1]["loss"]]
        return losses

    def part(self, run: Setting, numbers: dict) -> dict:
        recipe, first = Recipe(**numbers["recipe"]), min(point["step"] for point in numbers["curves"])
        ids = token_stream(run.lm.tokenizer, run.texts[0])
        with tempfile.TemporaryDirectory() as folder:
            _pretrain(run.lm, "dense", recipe, ids, run.windows.reshape(-1), Path(folder), stop_at=first)
            losses = [row["loss"] for row in read_log(Path(folder)) if row["step"] == first and "loss" in row]
        curves = [{"trained": "dense", "seed": recipe.seed, "step": first, "loss": loss} for loss in losses]
        return {"curves": curves, "protocol": {"text": ids_hash(run.windows)}}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, protocol, names = numbers["rows"], numbers["protocol"], distinct(numbers["rows"], "trained")
        judged = [row for row in rows if (row["trained"], row["reading"]) in CLAIMED and "against_dense" in row]
        sentence = "Without dense training there is nothing to compare with."
        if judged:
            subject = "trained with {trained}, read with {reading}"
            sentence = concluded("Held-out loss, ", judged, CONTROLS, subject, protocol["seeds"], "model")
        lines = [row | {"line": f"trained: {row['trained']}"} for row in rows]
        # Readings stand in the order of LABELS, whichever of them a model that was trained first has.
        lines.sort(key=lambda row: list(LABELS.values()).index(row["reading"]))
        axes = ("line", "reading", "read with")
        charts = [lines_of("Perplexity, held out", lines, *axes, "perplexity", "perplexity")]
        title = "Loss above dense training read dense"
        charts.append(lines_of(title, lines, *axes, "nats per token", "against_dense"))
        called = {name: f"trained: {name}" for name in names}
        charts.append(training_panel("Training, as each model reads", numbers["curves"], "trained", called))
        line = series("7B, paper", [printed("section 3.4", row, "PPL") for row in PAPER], paper=True)
        x = ["dense", "focus"]
        charts.append(panel("Section 3.4: 7B from scratch", "trained", "trained with", x, "perplexity", [line]))
        return presented("pretraining", sentence, charts, interval_caveat(protocol))


def _pretrain(
    lm: Model, name: str, recipe: Recipe, ids: np.ndarray, valid: np.ndarray, work: Path, **more: Any
) -> tuple[Any, Any]:
    """One training; returns the transformers model and the method it was trained with."""
    make_folder(work)
    more |= {"made_with": _random_groups} if name == "random groups" else {}
    return pretrained(lm, recipe, ids, valid, work, **more)


def _random_groups(recipe: Recipe, device: str) -> Control:
    """Random groups in the place of the router that Focus would train."""
    like = training_method(replace(recipe, attention="focus"), device)
    assert isinstance(like, Focus)
    plan = RouterTraining(phase=2, reading="drawn", seed=recipe.seed)
    return Control.build(like.router, reading="hard", membership="literal", plan=plan)


def _train_and_read(trainer: Trainer, name: str, recipe: Recipe, work: Path) -> dict:
    """Train one model and read it: `readings` name -> what was read, and `curve` of the training."""
    lm, label, valid = trainer.lm, f"{name}, seed {recipe.seed}", trainer.windows
    report = trainer.within(label, TRAINED).progress
    trained, method = _pretrain(lm, name, recipe, trainer.ids, valid.reshape(-1), work, report=report)
    small = load_model(trained.eval().requires_grad_(False), tokenizer=lm.tokenizer)
    length, window = recipe.context, recipe.context // 16
    report(1.0, "freezing the balance")
    calibration = list(spread_windows(trainer.ids, length, CALIBRATION).reshape(-1, length))
    if name == "focus":
        router = method.router.requires_grad_(False)
        with apply(small, method, kernels=True):
            inputs = attention_inputs(small, calibration)
        router.cpu().fit_potential(inputs)
        groups = [trained_arm(reading, router, window) for reading in READINGS]
    else:
        router = fit_without_training(attention_inputs(small, calibration), groups=8, window=window, seed=recipe.seed)
        groups = [Arm("k-means", {"window": window}, router)] if name == "dense" else []
    chance = drawn_arms(router, window, recipe.seed)
    arms = [DENSE, window_arm(window), *groups, *chance]
    context = trainer.within(label, 1 - TRAINED, TRAINED)
    bench = Bench(small, router, valid, 0, None, context, expected=len(arms) + 1)
    reads = {arm.name: Read.of(bench.measure(arm)) for arm in arms}
    reads["random groups"] = Read.pool([reads.pop(arm.name) for arm in chance])
    reads["window"] = reads.pop(f"window {window}")
    wide = window_arm(equal_pairs_window(reads[SPARSE[name]].pairs, length))
    reads["window of equal pairs"] = Read.of(bench.measure(wide))
    curve = [{"step": row["step"], "loss": row["loss"]} for row in read_log(work) if "loss" in row]
    return {"readings": {reading: read.plain() for reading, read in reads.items()}, "curve": curve}
