"""Does training with groups from the first step cost anything? Small models at equal tokens (Focus, section 3.4)."""

import shutil
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.attention import apply
from analysis.corpus import text_hash, token_stream
from analysis.groups.fit import fit_without_training
from analysis.models import Model, load_model
from analysis.runs import Result
from analysis.statistics import attention_inputs
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.grids.pretraining_shown import columns, panels, pool, sentence
from analysis.studies.stored.measured import DENSE, READINGS, Arm, Bench, drawn_arm, window_arm
from analysis.studies.stored.panels import how_sure
from analysis.studies.stored.recovery import equal_pairs_window
from analysis.studies.stored.trained import Read
from analysis.studies.text.held_out import (
    corpus_hash,
    held_out_windows,
    ids_hash,
    make_folder,
    places,
    read_part,
    sample_windows,
    spread_windows,
    texts_of,
    write,
)
from analysis.studies.text.sizes import check_sizes, chosen, command
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


def pretraining(
    corpus: str = "",
    model: str = "demo",
    length: int = 512,
    windows: int = 64,
    steps: int = 600,
    tokens_per_step: int = 4096,
    rows: str | None = None,
    seed: int = 0,
    output: str | None = None,
    work: str | None = None,
    *,
    context: Context,
) -> Result:
    """Pretrain a small model with dense attention, with Focus and with random groups, at equal tokens and two seeds.

    `model` lends its tokenizer alone; the context is `length`, `rows` names some of the three. A training that was
    stopped goes on from its checkpoint in `work`. Every model is read dense and sparse: a window, random groups, groups
    (Focus: the trained ones, hard, literal and soft; dense: k-means of its own states), a window of equal pairs.
    numbers: `rows` (`trained reading loss perplexity first second pairs_share largest_share`, `first` and `second` the
    seeds' perplexities; `against_dense` and `against_random` against dense training read dense and random groups read
    with random groups, paired, with `_low` and `_high`), `curves`
    (training losses), `columns`, `panels`, `sentence`, `notes`, `path`. tables: `rows`, `curves`.
    Errors: BadSetting, BadText.
    """
    check_seed(seed)
    lm = context.model(model)
    check_sizes(lm, length, windows, None, None)
    names = chosen(rows, list(ROWS))
    made = Recipe(
        steps=steps, context=length, tokens_per_step=tokens_per_step, warm_up=min(100, steps // 4), seed=seed, **SMALL
    )
    recipes = {
        (name, one): replace(made, attention="focus" if name == "focus" else "dense", seed=one)
        for name in names
        for one in range(seed, seed + SEEDS)
    }
    documents, held_out = texts_of(corpus, context)
    path, folder = places(context, lm, "pretraining", output, work)
    ids = held_out_windows(lm, held_out, length, windows)
    key = [lm.revision, corpus_hash(documents), ids_hash(ids)]
    tokens: list[np.ndarray] = []
    found = {}
    for index, ((name, one), recipe) in enumerate(recipes.items()):

        def told(done: float, stage: str, index=index, said=f"{name}, seed {one}"):
            context.progress((index + done) / len(recipes), f"{said}, {stage}")

        part = folder / f"pretraining-{name.replace(' ', '-')}-{text_hash(repr([*key, name, asdict(recipe)]))}.json"
        if (kept := read_part(part)) is None:
            told(0.0, "tokenising the training texts")
            tokens = tokens or [token_stream(lm.tokenizer, documents)]
            kept = _one(lm, name, recipe, tokens[0], ids, part.with_suffix(""), told)
            write(part, kept)
            shutil.rmtree(part.with_suffix(""), ignore_errors=True)
        found[name, one] = kept
    pooled = pool(found, names, length)
    numbers = {
        "sentence": sentence(pooled),
        "rows": pooled,
        "curves": [
            {"trained": name, "seed": one, **point} for (name, one), kept in found.items() for point in kept["curve"]
        ],
        "columns": columns(),
        "panels": panels(pooled, found),
        "recipe": asdict(made),
        "trained_with": names,
        "notes": [READ_AS, how_sure(len(ids))],
        "protocol": protocol(
            "study pretraining", lm, ids_hash(ids), ids.size, window=length, seed=seed, steps=steps,
            training_text=key[1], training_tokens=steps * tokens_per_step, kernel="bfloat16 in training, exact kernels",
            corpus=f"{Path(corpus).name}, {len(documents)} training and {len(held_out)} held-out documents",
            command=command(
                "pretraining", lm, length=length, windows_count=windows, steps=steps, tokens_per_step=tokens_per_step,
                rows=rows, seed=seed,
            ),
        ),
    }  # fmt: skip
    write(path, numbers | {"check": sample_losses(lm, names, made)})
    tables = {"rows": pd.DataFrame(pooled), "curves": pd.DataFrame(numbers["curves"])}
    return Result(numbers | {"path": str(path)}, tables)


def sample_losses(lm: Model, names: list[str], made: Recipe) -> dict[str, list[float]]:
    """Mean training loss of a run of four steps on the bundled samples: what can be computed without the corpus."""
    ids = np.append(sample_windows(lm, made.context, 4).reshape(-1), 0)
    found = {}
    for name in names:
        recipe = replace(made, attention="focus" if name == "focus" else "dense", steps=4, warm_up=1)
        with tempfile.TemporaryDirectory() as folder:
            _train(lm, name, recipe, ids, ids, Path(folder))
            found[name] = [read_log(Path(folder))[-1]["loss"]]
    return found


def recheck(stored: dict, *, context: Context) -> dict[str, tuple]:
    """The `check` of a stored study, what was trained with -> (what is stored, what comes out now)."""
    lm = context.model(stored["protocol"]["model"])
    again = sample_losses(lm, stored["trained_with"], Recipe(**stored["recipe"]))
    return {name: (losses, again[name]) for name, losses in stored["check"].items()}


def _train(lm: Model, name: str, recipe: Recipe, ids: np.ndarray, valid: np.ndarray, work: Path, report=None):
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
    return Control.of(like.router, reading="hard", membership="literal", plan=plan)


def _one(lm: Model, name: str, recipe: Recipe, ids: np.ndarray, valid: np.ndarray, work: Path, told) -> dict:
    """Train one model and read it: `readings` {name: means, pairs, shares} and `curve` of the training."""
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
    where = Context(progress=lambda done, stage: told(0.9 + 0.1 * done, stage))
    bench = Bench(own, router, valid, 0, None, where, expected=len(arms) + 1)
    reads = {arm.name: Read.of(bench.measure(arm)) for arm in arms}
    reads["random groups"] = Read.pool([reads.pop(arm.name) for arm in chance])
    reads["window"] = reads.pop(f"window {window}")
    sparse = {"focus": "trained", "dense": "k-means"}.get(name, "random groups")
    wide = window_arm(equal_pairs_window(reads[sparse].pairs, length))
    reads["window of equal pairs"] = Read.of(bench.measure(wide))
    curve = [{"step": row["step"], "loss": row["loss"]} for row in read_log(work) if "loss" in row]
    return {"readings": {one: read.plain() for one, read in reads.items()}, "curve": curve}
