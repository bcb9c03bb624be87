"""Does training with groups from the first step cost anything? Small models at equal tokens (Focus, section 3.4)."""

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.claims import Claim, Comparison
from analysis.corpus import token_stream
from analysis.groups.fit import fit_without_training
from analysis.models import Model, load_model
from analysis.seam.attention import apply
from analysis.statistics import attention_inputs
from analysis.studies.stored.comparisons import (
    difference,
    holm_corrected,
    interval_caveat,
    lowest_highest,
    multiplicity_note,
    scope_of_claim,
)
from analysis.studies.stored.measured import DENSE, READINGS, Arm, Bench, drawn_arms, trained_arm, window_arm
from analysis.studies.stored.panels import of_rows, panel, presented, printed, series
from analysis.studies.stored.runner import Seeds, Setting, Study, Windows, option
from analysis.studies.stored.trained import Read, Trainer, by_seed
from analysis.studies.text.held_out import chosen, ids_hash, make_folder, sample_windows, spread_windows
from analysis.training.checkpoints import read_log
from analysis.training.mitigations import Control
from analysis.training.pretrain import Recipe, train, training_method
from analysis.training.settings import RouterTraining
from lab.harness.pairs import equal_pairs_window

SMALL = {"layers": 4, "width": 128, "heads": 4, "kv_heads": 2, "intermediate": 384}
ROWS = {"dense": "dense", "focus": "focus", "random groups": "dense"}  # trained with -> its recipe's attention
KEPT_EVERY = 60.0  # seconds between checkpoints
CALIBRATION = 32  # training windows on which balances are frozen
SAID = {  # kept name -> what a reader calls it
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
AGAINST = {"against_dense": ("dense", "dense"), "against_random": ("random groups", "random groups")}


@dataclass(frozen=True)
class Sizes(Seeds, Windows):
    """What the study can be asked for; the model lends its tokenizer alone."""

    length: int = option(512, "context, and tokens in a window of text")
    steps: int = option(600, "steps of each training")
    tokens_per_step: int = option(2048, "tokens in one step of each training")
    rows: str | None = option(None, "some of dense, focus, random groups, separated by commas (default: all)")


def measure(at: Setting) -> dict:
    """A small model pretrained with dense attention, with Focus and with random groups, at equal tokens.

    Every model is read dense and sparse: a window, random groups, groups (Focus: the trained ones, hard, literal and
    soft; dense: k-means of its own states), a window of equal pairs.
    `rows`: `trained reading loss perplexity pairs_share largest_share`; `against_dense` and `against_random` against
    dense training read dense and random groups read with random groups, paired, with `_low` and `_high`; of these and
    of `perplexity` the seeds' `_lowest` and `_highest`; `curves` (training losses). Errors: BadSetting, BadText.
    """
    lm, sizes, names = at.lm, at.sizes, chosen(at.sizes.rows, list(ROWS))
    read = {"steps": sizes.steps, "context": sizes.length, "tokens_per_step": sizes.tokens_per_step}
    made = Recipe(**read, warm_up=min(100, sizes.steps // 4), seed=sizes.seed, **SMALL)
    recipes = {(name, one): replace(made, attention=ROWS[name], seed=one) for name in names for one in sizes.every_seed}
    trainer = Trainer.of(at, expected=len(recipes))
    found = {}
    for (name, one), recipe in recipes.items():
        decides = [lm.revision, trainer.texts, ids_hash(trainer.windows), name, asdict(recipe)]
        place, make = f"pretraining-{name.replace(' ', '-')}", partial(_one, trainer, name, recipe)
        found[name, one] = trainer.part(place, decides, make)
    told = {"steps": sizes.steps, "training_text": trainer.texts, "seeds": sizes.seeds}
    told |= {"training_tokens": sizes.steps * sizes.tokens_per_step, "kernel": "bfloat16 in training, exact kernels"}
    return {
        "rows": pool(found, names, sizes.length, trainer.units),
        "curves": [
            {"trained": name, "seed": one, **point} for (name, one), kept in found.items() for point in kept["curve"]
        ],
        "recipe": asdict(made),
        "trained_with": names,
        "windows": len(trainer.windows),
        "protocol": at.about(trainer.windows, **told),
    }


def shown(numbers: dict) -> dict:
    """How the study is told and drawn."""
    drawn = panels(numbers["rows"], numbers["curves"])
    said = sentence(numbers["rows"], numbers["protocol"]["seeds"])
    return presented("pretraining", said, drawn, interval_caveat(numbers["protocol"]))


def sample(at: Setting, numbers: dict) -> dict[str, list[float]]:
    """Mean training loss of a run of four steps on the bundled samples."""
    made = Recipe(**numbers["recipe"])
    ids = np.append(sample_windows(at.lm, made.context, 4).reshape(-1), 0)
    found = {}
    for name in numbers["trained_with"]:
        recipe = replace(made, attention=ROWS[name], steps=4, warm_up=1)
        with tempfile.TemporaryDirectory() as folder:
            _train(at.lm, name, recipe, ids, ids, Path(folder))
            found[name] = [read_log(Path(folder))[-1]["loss"]]
    return found


def part(at: Setting, numbers: dict) -> dict:
    """The training loss of dense attention at the first step that is stored, from the first weights on."""
    recipe, first = Recipe(**numbers["recipe"]), min(point["step"] for point in numbers["curves"])
    ids = token_stream(at.lm.tokenizer, at.texts[0])
    with tempfile.TemporaryDirectory() as folder:
        _train(at.lm, "dense", recipe, ids, at.windows.reshape(-1), Path(folder), stop_at=first)
        losses = [row["loss"] for row in read_log(Path(folder)) if row["step"] == first and "loss" in row]
    curves = [{"trained": "dense", "seed": recipe.seed, "step": first, "loss": loss} for loss in losses]
    return {"curves": curves, "protocol": {"text": ids_hash(at.windows)}}


def _train(
    lm: Model,
    name: str,
    recipe: Recipe,
    ids: np.ndarray,
    valid: np.ndarray,
    work: Path,
    report: Callable[[float, str], None] | None = None,
    stop_at: int | None = None,
) -> tuple:
    """One training on one domain; returns the transformers model and the method it was trained with."""
    text = lm.tokenizer.decode(valid[:4096], skip_special_tokens=True)
    size = {"tokens": len(valid), "bytes": max(1, len(text.encode()) * len(valid) // len(valid[:4096]))}
    about = {"vocabulary": len(lm.tokenizer), "domains": {"text": {"share": 1.0, "valid": size}}}
    make_folder(work)
    more = {"stop_at": stop_at} | ({"report": report} if report else {})
    more |= {"made_with": _control} if name == "random groups" else {}
    device = str(lm.device)
    return train(recipe, {"text": ids}, {"text": valid}, about, work, device, checkpoint_seconds=KEPT_EVERY, **more)


def _control(recipe: Recipe, device: str) -> Control:
    """Random groups in the place of the router that Focus would train."""
    like = training_method(replace(recipe, attention="focus"), device)
    plan = RouterTraining(phase=2, reading="drawn", seed=recipe.seed)
    return Control.build(like.router, reading="hard", membership="literal", plan=plan)


def _one(trainer: Trainer, name: str, recipe: Recipe, work: Path) -> dict:
    """Train one model and read it: `readings` {name: means, pairs, shares} and `curve` of the training."""
    lm, ids, valid, told = trainer.lm, trainer.ids, trainer.windows, trainer.told(f"{name}, seed {recipe.seed}")
    trained, method = _train(
        lm, name, recipe, ids, valid.reshape(-1), work, lambda done, _: told(0.9 * done, "training")
    )
    own = load_model(trained.eval().requires_grad_(False), tokenizer=lm.tokenizer)
    length, window = recipe.context, recipe.context // 16
    told(0.9, "freezing the balance")
    calibration = spread_windows(ids, length, CALIBRATION).reshape(-1, length)
    if name == "focus":
        router = method.router.requires_grad_(False)
        with apply(own, method, kernels=True):
            inputs = attention_inputs(own, list(calibration))
        router.cpu().fit_potential(inputs)
        groups = [trained_arm(one, router, window) for one in READINGS]
    else:
        inputs = attention_inputs(own, list(calibration))
        router = fit_without_training(inputs, groups=8, window=window, seed=recipe.seed)
        groups = [Arm("k-means", {"window": window}, router)] if name == "dense" else []
    chance = drawn_arms(router, window, recipe.seed)
    arms = [DENSE, window_arm(window), *groups, *chance]
    where = trainer.within(f"{name}, seed {recipe.seed}", 0.1, 0.9)
    bench = Bench(own, router, valid, 0, None, where, expected=len(arms) + 1)
    reads = {arm.name: Read.of(bench.measure(arm)) for arm in arms}
    reads["random groups"] = Read.pool([reads.pop(arm.name) for arm in chance])
    reads["window"] = reads.pop(f"window {window}")
    sparse = {"focus": "trained", "dense": "k-means"}.get(name, "random groups")
    wide = window_arm(equal_pairs_window(reads[sparse].pairs, length))
    reads["window of equal pairs"] = Read.of(bench.measure(wide))
    curve = [{"step": row["step"], "loss": row["loss"]} for row in read_log(work) if "loss" in row]
    return {"readings": {one: read.plain() for one, read in reads.items()}, "curve": curve}


def pool(found: dict[tuple[str, int], dict], names: list[str], length: int, documents: np.ndarray) -> list[dict]:
    """One row for each model and reading, all seeds together; `found` {(trained with, seed): its part}."""
    parts = {name: [kept["readings"] for (one, _), kept in found.items() if one == name] for name in names}
    there = [(name, reading) for name in names for reading in SAID if reading in parts[name][0]]
    each = {(name, reading): [Read.kept(part[reading]) for part in parts[name]] for name, reading in there}
    rows = []
    for (name, reading), seeds in each.items():
        mean = Read.pool(seeds)
        row = {"trained": name, "reading": SAID[reading], "loss": mean.loss, "perplexity": mean.perplexity}
        row |= lowest_highest("perplexity", [one.perplexity for one in seeds])
        row |= {"pairs_share": mean.pairs / (length * (length + 1) // 2)}
        row |= {"largest_share": max(mean.shares) if reading.startswith(("trained", "k-means")) else None}
        for key, other in AGAINST.items():
            if other in each:
                row |= difference(key, by_seed(seeds), by_seed(each[other]), documents)
        rows.append(row)
    return rows


def panels(rows: list[dict], points: list[dict]) -> list[dict]:
    """Perplexity and loss by reading, a line for each way to train; the training's losses; the paper's model."""
    readings = [label for label in SAID.values() if any(row["reading"] == label for row in rows)]
    names = list(dict.fromkeys(row["trained"] for row in rows))
    table = {(row["trained"], row["reading"]): row for row in rows}
    made = []
    for key, title, unit in (
        ("perplexity", "Perplexity, held out", "perplexity"),
        ("against_dense", "Loss above dense training read dense", "nats per token"),
    ):
        lines = [of_rows(f"trained: {one}", [table.get((one, label), {}) for label in readings], key) for one in names]
        made.append(panel(title, "reading", "read with", readings, unit, lines))
    curves = pd.DataFrame(points).pivot(index="step", columns=["trained", "seed"], values="loss").dropna()
    lines = [series(f"trained: {name}", curves[name].mean(axis=1)) for name in names]
    made.append(panel("Training, as each model reads", "step", "steps", curves.index.tolist(), "nats per token", lines))
    paper = ("7B from scratch, full attention", "7B from scratch, Focus (K=4)")
    line = series("7B, paper", [printed("section 3.4", row, "PPL") for row in paper], paper=True)
    drawn = ("trained", "trained with", ["dense", "focus"], "perplexity", [line])
    return [*made, panel("Section 3.4: 7B from scratch", *drawn)]


def sentence(rows: list[dict], seeds: int) -> str:
    """What training with groups costs or brings, each model read as it was trained, whichever way it came out."""
    as_trained = {"focus": "trained groups, hard", "random groups": "random groups"}
    ways = [(name, how) for name, reading in as_trained.items() for how in (reading, "dense")]
    mine = [row for row in rows if (row["trained"], row["reading"]) in ways]
    random = [f"against_random{end}" for end in ("_low", "_p")]  # judged of the trained groups alone
    mine = holm_corrected(
        [row if row["reading"] == as_trained["focus"] else row | dict.fromkeys(random) for row in mine], *AGAINST
    )
    table = {(row["trained"], row["reading"]): row for row in [*rows, *mine]}
    if ("dense", "dense") not in table:
        return "Without dense training there is nothing to compare with."
    said = []
    for name, how in ways:
        if row := table.get((name, how)):
            subject = f"trained with {name} and read with {how}"
            said.append(Claim(Comparison.of(row, "against_dense"), subject, "lower", "higher").text())
    focus = table.get(("focus", as_trained["focus"]), {})
    if "against_random" in focus:
        subject = "trained groups against groups that were random from the first step"
        said.append(Claim(Comparison.of(focus, "against_random"), subject, "lower", "higher").text())
    start = f"Held-out loss against dense training read dense (perplexity {table['dense', 'dense']['perplexity']:.2f})"
    return f"{start}: {'; '.join(said)}.{multiplicity_note(mine, *AGAINST)}{scope_of_claim(seeds, 'model')}"


pretraining = Study("pretraining", __doc__, Sizes, measure, shown, sample, tables=("rows", "curves"), part=part)
