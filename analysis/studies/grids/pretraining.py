"""Does training with groups from the first step cost anything? Small models at equal tokens (Focus, section 3.4)."""

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from analysis.attention import apply
from analysis.groups.fit import fit_without_training
from analysis.models import Model, load_model
from analysis.statistics import attention_inputs
from analysis.studies.grids.pretraining_shown import columns, panels, pool, sentence
from analysis.studies.stored.measured import DENSE, READINGS, Arm, Bench, drawn_arm, window_arm
from analysis.studies.stored.panels import how_sure
from analysis.studies.stored.recovery import equal_pairs_window
from analysis.studies.stored.runner import Setting, Study, Windows, option
from analysis.studies.stored.trained import Read
from analysis.studies.stored.trainer import Trainer
from analysis.studies.text.held_out import chosen, ids_hash, make_folder, sample_windows, spread_windows
from analysis.training.checkpoints import read_log
from analysis.training.controls import Control
from analysis.training.pretrain import Recipe, train, training_method
from analysis.training.settings import RouterTraining

SMALL = {"layers": 4, "width": 128, "heads": 4, "kv_heads": 2, "intermediate": 384}
ROWS = ("dense", "focus", "random groups")  # what the models are trained with
SEEDS = 2
DRAWS = 3  # of random tokens
KEPT_EVERY = 60.0  # seconds between checkpoints
CALIBRATION = 32  # training windows on which balances are frozen
READ_AS = (
    "Models of one shape and start see the same tokens in the same order and differ in attention alone. Focus has "
    "8 groups and a window of a 16th of the context, no sinks, the soft gate and literal groups, as `pretrain "
    "--attention focus`; random groups are drawn anew for every text under a hard mask. Held-out losses are of both "
    "seeds' mean, window by window."
)


@dataclass(frozen=True)
class Sizes(Windows):
    """What the study can be asked for; the model lends its tokenizer alone."""

    length: int = option(512, "the context, and tokens of a window of text")
    steps: int = option(600, "of every training")
    tokens_per_step: int = option(2048, "of every training")
    rows: str | None = option(None, "some of dense, focus, random groups, joined by commas (default: all)")


def measure(at: Setting) -> dict:
    """A small model pretrained with dense attention, with Focus and with random groups, at equal tokens and two seeds.

    Every model is read dense and sparse: a window, random groups, groups (Focus: the trained ones, hard, literal and
    soft; dense: k-means of its own states), a window of equal pairs.
    `rows`: `trained reading loss perplexity first second pairs_share largest_share`, `first` and `second` the seeds'
    perplexities; `against_dense` and `against_random` against dense training read dense and random groups read with
    random groups, paired, with `_low` and `_high`; `curves` (training losses). Errors: BadSetting, BadText.
    """
    lm, sizes, names = at.lm, at.sizes, chosen(at.sizes.rows, list(ROWS))
    made = Recipe(
        steps=sizes.steps,
        context=sizes.length,
        tokens_per_step=sizes.tokens_per_step,
        warm_up=min(100, sizes.steps // 4),
        seed=sizes.seed,
        **SMALL,
    )
    recipes = {
        (name, one): replace(made, attention="focus" if name == "focus" else "dense", seed=one)
        for name in names
        for one in range(sizes.seed, sizes.seed + SEEDS)
    }
    about = {"documents": at.texts[0], "windows": at.windows, "expected": len(recipes)}
    trainer = Trainer(lm=lm, work=at.work, context=at.context, **about)
    found = {}
    for (name, one), recipe in recipes.items():
        found[name, one] = trainer.part(
            f"pretraining-{name.replace(' ', '-')}",
            [lm.revision, trainer.texts, ids_hash(trainer.windows), name, asdict(recipe)],
            lambda doing, name=name, recipe=recipe: _one(trainer, name, recipe, doing),
        )
    told = {"steps": sizes.steps, "training_text": trainer.texts}
    told |= {"training_tokens": sizes.steps * sizes.tokens_per_step, "kernel": "bfloat16 in training, exact kernels"}
    return {
        "rows": pool(found, names, sizes.length),
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
    return {
        "sentence": sentence(numbers["rows"]),
        "columns": columns(),
        "panels": panels(numbers["rows"], numbers["curves"]),
        "notes": [READ_AS, how_sure(numbers["windows"])],
    }


def sample(at: Setting, numbers: dict) -> dict[str, list[float]]:
    """Mean training loss of a run of four steps on the bundled samples."""
    made = Recipe(**numbers["recipe"])
    ids = np.append(sample_windows(at.lm, made.context, 4).reshape(-1), 0)
    found = {}
    for name in numbers["trained_with"]:
        recipe = replace(made, attention="focus" if name == "focus" else "dense", steps=4, warm_up=1)
        with tempfile.TemporaryDirectory() as folder:
            _train(at.lm, name, recipe, ids, ids, Path(folder))
            found[name] = [read_log(Path(folder))[-1]["loss"]]
    return found


def _train(
    lm: Model,
    name: str,
    recipe: Recipe,
    ids: np.ndarray,
    valid: np.ndarray,
    work: Path,
    report: Callable[[float, str], None] | None = None,
) -> tuple:
    """One training on one domain; returns the transformers model and the method it was trained with."""
    text = lm.tokenizer.decode(valid[:4096], skip_special_tokens=True)
    size = {"tokens": len(valid), "bytes": max(1, len(text.encode()) * len(valid) // len(valid[:4096]))}
    about = {"vocabulary": len(lm.tokenizer), "domains": {"text": {"share": 1.0, "valid": size}}}
    make_folder(work)
    made_with = _control if name == "random groups" else training_method
    return train(
        recipe, {"text": ids}, {"text": valid}, about, work, str(lm.device), checkpoint_seconds=KEPT_EVERY,
        report=report or (lambda fraction, stage: None), made_with=made_with,
    )  # fmt: skip


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
        groups = [Arm(one, {"window": window, **settings}, router) for one, settings in READINGS.items()]
    else:
        inputs = attention_inputs(own, list(calibration))
        router = fit_without_training(inputs, groups=8, window=window, seed=recipe.seed)
        groups = [Arm("k-means", {"window": window}, router)] if name == "dense" else []
    chance = [drawn_arm(router, window, recipe.seed + more) for more in range(DRAWS)]
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


pretraining = Study("pretraining", __doc__, Sizes, measure, shown, sample, tables=("rows", "curves"))
