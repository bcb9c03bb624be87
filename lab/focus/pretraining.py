"""Does training with groups from the first step cost anything? Small models at equal tokens (Focus, section 3.4)."""

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.corpus import token_stream
from analysis.groups.fit import fit_without_training
from analysis.models import Model, load_model
from analysis.seam.attention import apply
from analysis.statistics import attention_inputs
from analysis.studies.stored.comparisons import difference, interval_caveat, lowest_highest
from analysis.studies.stored.measured import DENSE, READINGS, Arm, Bench, drawn_arms, trained_arm, window_arm
from analysis.studies.stored.panels import of_rows, panel, presented, printed, series
from analysis.studies.stored.runner import Seeds, Setting, Study, Windows, option
from analysis.studies.stored.trained import Read, Trainer, by_seed
from analysis.studies.text.held_out import chosen, ids_hash, make_folder, sample_windows, spread_windows
from analysis.training.checkpoints import read_log
from analysis.training.mitigations import Control
from analysis.training.pretrain import Recipe, train, training_method
from analysis.training.settings import RouterTraining
from lab.harness.pairs import equal_pairs_window, pairs_share
from lab.harness.telling import concluded

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
CONTROLS = {
    "against_dense": "dense training read dense",
    "against_random": "training with random groups, read with them",
}
SPARSE = {"focus": "trained", "dense": "k-means", "random groups": "random groups"}  # how each is read sparsely


@dataclass(frozen=True)
class Sizes(Seeds, Windows):
    """Small models of one shape; the model that is named lends its tokenizer alone."""

    length: int = option(512, "context, and tokens in a window of text")
    steps: int = option(600, "steps of each training")
    tokens_per_step: int = option(2048, "tokens in one step of each training")
    rows: str | None = option(None, "some of dense, focus, random groups, separated by commas (default: all)")


def measure(run: Setting) -> dict:
    """A small model pretrained with dense attention, with Focus and with random groups, at equal tokens; each is read
    dense, with a window, with random groups, with groups (Focus: the trained ones; dense: k-means of its own states)
    and with a window of equal pairs. Errors: BadSetting, BadText."""
    lm, sizes, names = run.lm, run.sizes, chosen(run.sizes.rows, list(ROWS))
    read = {"steps": sizes.steps, "context": sizes.length, "tokens_per_step": sizes.tokens_per_step}
    base = Recipe(**read, warm_up=min(100, sizes.steps // 4), seed=sizes.seed, **SMALL)
    trainer = Trainer.of(run, expected=len(names) * sizes.seeds)
    reads: dict[tuple[str, str], list[Read]] = {}
    curves = []
    for name in names:
        for seed in sizes.every_seed:
            recipe = replace(base, attention=ROWS[name], seed=seed)
            decides = [lm.revision, trainer.texts, ids_hash(trainer.windows), name, asdict(recipe)]
            place = f"pretraining-{name.replace(' ', '-')}"
            stored = trainer.part(place, decides, partial(_one, trainer, name, recipe))
            for reading in SAID:
                if reading in stored["readings"]:
                    reads.setdefault((name, reading), []).append(Read.kept(stored["readings"][reading]))
            curves += [{"trained": name, "seed": seed, **point} for point in stored["curve"]]
    rows = []
    for (name, reading), several in reads.items():
        mean = Read.pool(several)
        row = {"trained": name, "reading": SAID[reading], "loss": mean.loss, "perplexity": mean.perplexity}
        row |= lowest_highest("perplexity", [one.perplexity for one in several])
        row |= {"pairs_share": pairs_share(mean.pairs, sizes.length), "largest_share": None}
        if reading.startswith(("trained", "k-means")):
            row["largest_share"] = max(mean.shares)
        for key, other in (("against_dense", "dense"), ("against_random", "random groups")):
            if (other, other) in reads:
                row |= difference(key, by_seed(several), by_seed(reads[other, other]), trainer.units)
        rows.append(row)
    about = {"steps": sizes.steps, "training_text": trainer.texts, "seeds": sizes.seeds}
    about |= {"training_tokens": sizes.steps * sizes.tokens_per_step, "kernel": "bfloat16 in training, exact kernels"}
    return {
        "rows": rows,
        "curves": curves,
        "recipe": asdict(base),
        "trained_with": names,
        "windows": len(trainer.windows),
        "protocol": run.about(trainer.windows, **about),
    }


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
    more: dict = {"stop_at": stop_at} | ({"report": report} if report else {})
    more |= {"made_with": _control} if name == "random groups" else {}
    texts = {"text": ids}, {"text": valid}
    return train(recipe, *texts, about, work, str(lm.device), checkpoint_seconds=KEPT_EVERY, **more)


def _control(recipe: Recipe, device: str) -> Control:
    """Random groups in the place of the router that Focus would train."""
    like = training_method(replace(recipe, attention="focus"), device)
    plan = RouterTraining(phase=2, reading="drawn", seed=recipe.seed)
    return Control.build(like.router, reading="hard", membership="literal", plan=plan)


def _one(trainer: Trainer, name: str, recipe: Recipe, work: Path) -> dict:
    """Train one model and read it: `readings` name -> what was read, and `curve` of the training."""
    lm, label = trainer.lm, f"{name}, seed {recipe.seed}"
    report, valid = trainer.told(label), trainer.windows
    trained, method = _train(
        lm, name, recipe, trainer.ids, valid.reshape(-1), work, lambda done, _: report(0.9 * done, "training")
    )
    small = load_model(trained.eval().requires_grad_(False), tokenizer=lm.tokenizer)
    length, window = recipe.context, recipe.context // 16
    report(0.9, "freezing the balance")
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
    bench = Bench(small, router, valid, 0, None, trainer.within(label, 0.1, 0.9), expected=len(arms) + 1)
    reads = {arm.name: Read.of(bench.measure(arm)) for arm in arms}
    reads["random groups"] = Read.pool([reads.pop(arm.name) for arm in chance])
    reads["window"] = reads.pop(f"window {window}")
    wide = window_arm(equal_pairs_window(reads[SPARSE[name]].pairs, length))
    reads["window of equal pairs"] = Read.of(bench.measure(wide))
    curve = [{"step": row["step"], "loss": row["loss"]} for row in read_log(work) if "loss" in row]
    return {"readings": {reading: read.plain() for reading, read in reads.items()}, "curve": curve}


def sample(run: Setting, numbers: dict) -> dict[str, list[float]]:
    """Mean training loss of a run of four steps on the bundled samples."""
    base, losses = Recipe(**numbers["recipe"]), {}
    ids = np.append(sample_windows(run.lm, base.context, 4).reshape(-1), 0)
    for name in numbers["trained_with"]:
        recipe = replace(base, attention=ROWS[name], steps=4, warm_up=1)
        with tempfile.TemporaryDirectory() as folder:
            _train(run.lm, name, recipe, ids, ids, Path(folder))
            losses[name] = [read_log(Path(folder))[-1]["loss"]]
    return losses


def part(run: Setting, numbers: dict) -> dict:
    """The training loss of dense attention at the first step that is stored, from the first weights on."""
    recipe, first = Recipe(**numbers["recipe"]), min(point["step"] for point in numbers["curves"])
    ids = token_stream(run.lm.tokenizer, run.texts[0])
    with tempfile.TemporaryDirectory() as folder:
        _train(run.lm, "dense", recipe, ids, run.windows.reshape(-1), Path(folder), stop_at=first)
        losses = [row["loss"] for row in read_log(Path(folder)) if row["step"] == first and "loss" in row]
    curves = [{"trained": "dense", "seed": recipe.seed, "step": first, "loss": loss} for loss in losses]
    return {"curves": curves, "protocol": {"text": ids_hash(run.windows)}}


def shown(numbers: dict) -> dict:
    """What training with groups costs or brings, each model read as it was trained and dense."""
    rows, protocol = numbers["rows"], numbers["protocol"]
    table = {(row["trained"], row["reading"]): row for row in rows}
    if ("dense", "dense") in table:
        ways = [("focus", SAID["trained"]), ("focus", "dense"), ("random groups",) * 2, ("random groups", "dense")]
        judged = []
        for way in ways:
            if way in table:  # against random groups the trained ones alone are judged
                without_random = {key: one for key, one in table[way].items() if not key.startswith("against_random")}
                judged.append(table[way] if way == ways[0] else without_random)
        dense = table["dense", "dense"]["perplexity"]
        lead = f"Held-out loss (dense training read dense has a perplexity of {dense:.2f}): "
        names = "trained with {trained} and read with {reading}".format_map
        sentence = concluded(lead, judged, CONTROLS, names, protocol["seeds"], "model")
    else:
        sentence = "Without dense training there is nothing to compare with."
    readings = [label for label in SAID.values() if any(row["reading"] == label for row in rows)]
    names, charts = list(dict.fromkeys(row["trained"] for row in rows)), []
    for key, title, unit in (
        ("perplexity", "Perplexity, held out", "perplexity"),
        ("against_dense", "Loss above dense training read dense", "nats per token"),
    ):
        lines = [of_rows(f"trained: {name}", [table.get((name, one), {}) for one in readings], key) for name in names]
        charts.append(panel(title, "reading", "read with", readings, unit, lines))
    curves = pd.DataFrame(numbers["curves"]).pivot(index="step", columns=["trained", "seed"], values="loss").dropna()
    lines = [series(f"trained: {name}", curves[name].mean(axis=1)) for name in names]
    steps = curves.index.tolist()
    charts.append(panel("Training, as each model reads", "step", "steps", steps, "nats per token", lines))
    paper = ("7B from scratch, full attention", "7B from scratch, Focus (K=4)")
    line = series("7B, paper", [printed("section 3.4", row, "PPL") for row in paper], paper=True)
    axes = ("trained", "trained with", ["dense", "focus"], "perplexity")
    charts.append(panel("Section 3.4: 7B from scratch", *axes, [line]))
    return presented("pretraining", sentence, charts, interval_caveat(protocol))


pretraining = Study("pretraining", __doc__, Sizes, measure, shown, sample, tables=("rows", "curves"), part=part)
