"""Training a Focus router for a model, and what it costs in perplexity: literal and causal membership side by side."""

import inspect
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.commandline import commandline
from analysis.corpus import text_hash, token_stream
from analysis.errors import BadSetting
from analysis.files import clear, folder_whole
from analysis.groups.controls import random_centroids
from analysis.groups.dominance import largest_share
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.metrics.intervals import over_units
from analysis.metrics.quality import perplexity
from analysis.models import CACHE, Model, load_model
from analysis.runs import Result
from analysis.runs.corpora import corpus_folder
from analysis.seam.attention import apply
from analysis.statistics import attention_inputs
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.groups.routers import FOLDER, check_settings, memberships, router_path, save, trained_router
from analysis.studies.stored.runner import table
from analysis.studies.text.held_out import HELD_OUT_WINDOWS, corpus_hash, held_out_windows, make_folder, texts_of
from analysis.training.checkpoints import one_training
from analysis.training.focus import finetune, train_router
from analysis.training.run import team
from analysis.training.settings import RouterTraining

SHOWN = 300  # points of a curve that is drawn while it grows


def train_focus_router(
    model: str = "demo",
    corpus: str = "",
    steps: int = 300,
    groups: int = 8,
    top: int = 1,
    window: int = 16,
    n_sink: int = 4,
    rate: float = 1e-3,
    tokens_per_step: int = 2048,
    seed: int = 0,
    output: str | None = None,
    phase: int = 1,
    base_rate: float = 1e-4,
    reading: str = "soft",
    gate: str = "log",
    balance: str = "sinkhorn",
    temperature: float = 0.1,
    iterations: int = 10,
    d_s: int = 16,
    similarity: str = "dot",
    label: str = "",
    *,
    context: Context,
) -> Result:
    """Train a router on a folder of texts, the model frozen, and measure it on documents it never saw.

    Resumes from its checkpoint when stopped. `output`: folder for the router (default: the model's own state). `label`
    ends its name, as in k8-top1-LABEL, so that it stands beside others of its size. Asked for in a browser, `corpus`
    is what `runs.corpora` allows and there is no `output`: phase 2 leaves its copy in `models_cache/finetuned`.
    `phase` 2 starts from the trained router of this name, whose settings count, and trains a copy of the model with it
    (`reading` soft) or under its mask (hard); the copy goes to `output` (default `finetuned/ROUTER` in the state) as a
    model folder with the router in its `focus/`, and the numbers are the copy's, beside `perplexity_before`.
    numbers: `dominance` (largest group's share per layer), `perplexity_dense`, `_literal` (balance over the whole
    text: it reads the future), `_causal` (frozen balance), `_random` (random centroids), all with hard groups and this
    window; `gain_over_random`, with its interval; `path`. tables: `log` (one row per step, as `train_router` says) and
    `shares` (`step layer share`).
    """
    check_seed(seed)
    check_settings(groups=groups, top=top, window=window, n_sink=n_sink)
    chosen = {"groups": groups, "top": top, "window": window, "n_sink": n_sink, "d_s": d_s, "gate": gate}
    chosen |= {"temperature": temperature, "iterations": iterations, "balance": balance, "similarity": similarity}
    plan = RouterTraining(
        **chosen,
        steps=steps,
        tokens_per_step=tokens_per_step,
        rate=rate,
        seed=seed,
        phase=phase,
        base_rate=base_rate,
        reading=reading,
    )
    if not corpus:
        raise BadSetting("Training needs a corpus: name a folder of .txt, .md or .py files.")
    if context.browser and output:
        raise BadSetting("In a browser no folder can be named for the result: leave the output out.")
    source = corpus_folder(context.store, corpus) if context.browser else Path(corpus)
    processes = team(context.device)
    lm = context.model(model)
    name = f"k{groups}-top{top}{f'-{label}' if label else ''}"
    router_path(context, lm, name)  # refuses a name that cannot be
    start = trained_router(context, lm, name) if phase == 2 else None
    if phase == 2:
        plan = plan.after(start)
        own_place = CACHE if context.browser else context.state_dirs(lm)[0]
        folder = Path(output) if output else own_place / "finetuned" / (f"{lm.slug}-" * context.browser + name)
        path = folder / FOLDER / f"{name}.safetensors"
    else:
        path = Path(output) / f"{name}.safetensors" if output else router_path(context, lm, name)
    own_end = f".{text_hash(f'{corpus} {plan}')}" if context.browser else ""  # a page's request goes on with its own
    checkpoint = path.with_suffix(f"{own_end}.checkpoint")
    make_folder(path.parent)
    with one_training(folder if phase == 2 else path) if processes.is_main_process else nullcontext():
        train, held_out = texts_of(source, context)
        context.progress(0.0, "reading the corpus")
        length, train_ids = min(plan.length, lm.max_positions), token_stream(lm.tokenizer, train)
        windows, documents = held_out_windows(lm, held_out, length, HELD_OUT_WINDOWS, least=1)
        test_ids = windows.reshape(-1)

        def progress(done: float, stage: str) -> None:
            if processes.is_main_process:
                context.progress(0.9 * done, stage)

        before, callbacks = {}, {"progress": progress, "watch": lambda log: context.show(curve(log))}
        if phase == 1:
            router, inputs, log = train_router(lm, train_ids, plan, checkpoint, **callbacks)
        else:
            before["perplexity_before"] = perplexity(lm, test_ids, length).perplexity
            tuned, router, inputs, log = finetune(lm, start, train_ids, plan, checkpoint, **callbacks)
        if not processes.is_main_process:
            raise SystemExit(0)  # the first process measures and stores
        if phase == 2:
            before["before"] = {"model": lm.name, "router": name}
            lm = _store(tuned, folder, context)
        control = random_centroids(router, inputs, seed)
        numbers = measure(lm, router, control, windows, documents, context) | before
        about = {
            "corpus": f"{source.name}, {len(train)} documents",
            "corpus_hash": corpus_hash(train),
            "kind": "trained",
            "steps": steps,
            "tokens": steps * max(1, tokens_per_step // length) * length,
            "rate": rate,
            "training": asdict(plan),
            "hard_losses": [[row["step"] + 1, row["hard"]] for row in log if "hard" in row],
            "evaluated_on": f"{len(held_out)} held-out documents",
            "evaluated_tokens": len(test_ids) // length * length,
            "evaluated_window": length,
            **numbers,
        }
        options = [name for name in inspect.signature(train_focus_router).parameters if hasattr(plan, name)]
        request = {"model": model, "corpus": "DIR", "label": label} | {name: getattr(plan, name) for name in options}
        made_with = protocol(
            "train-router",
            lm,
            about["corpus_hash"],
            len(test_ids),
            window=length,
            seed=seed,
            steps=steps,
            command=commandline("train-router", request),
        )
        notes = save(context, lm, router, control, path, **about, protocol=made_with)
        for done in path.parent.glob(f"{path.stem}.*checkpoint"):
            clear(done)  # it would stand in the way of a run with other settings
    where = str(folder if phase == 2 else path)
    return Result({**numbers, "path": where, "notes": notes, "protocol": made_with}, log_tables(log))


def curve(log: list[dict]) -> dict[str, list]:
    """The columns `step loss hard` of a run's rows, thinned to about SHOWN; rows with a hard loss all stay."""
    stride = 1 + len(log) // SHOWN
    rows = [row for number, row in enumerate(log) if number % stride == 0 or "hard" in row]
    return {name: [row.get(name) for row in rows] for name in ("step", "loss", "hard")}


def log_tables(log: list[dict]) -> dict[str, pd.DataFrame]:
    """The rows of a training run as tables: `log`, and `shares` with one row per look and layer."""
    looks = [(0, row["start"]) for row in log[:1]] + [(row["step"] + 1, row) for row in log if "shares" in row]
    shares = [(step, layer, share) for step, look in looks for layer, share in enumerate(look["shares"])]
    return {"log": table(log), "shares": pd.DataFrame(shares, columns=["step", "layer", "share"])}


def _store(tuned: Model, folder: Path, context: Context) -> Model:
    """Write a fine-tuned copy as a model folder and load it from there, so that what is measured is what is kept."""
    try:
        with folder_whole(folder) as place:
            tuned.lm.save_pretrained(place)
            tuned.tokenizer.save_pretrained(place)
    except OSError as error:
        raise BadSetting(f"The model cannot be stored in {folder} ({error.strerror}): name another folder.") from error
    return load_model(str(folder), context.device)


def measure(
    model: Model, router: FocusRouter, control: FocusRouter, ids: np.ndarray, documents: np.ndarray, context: Context
) -> dict:
    """Perplexity of held-out windows [n, T] of `documents` [n]: dense, and hard groups of the router and its control.

    `gain_over_random`: nats per token by which the router's causal groups predict better than random centroids, paired:
    `mean low high units` with the 95% interval over documents, `unit state`, and the `points` of each document where
    they are too few for one. `dominance`: largest group's share per layer.
    """
    focus, quality_of = METHODS["focus"].build, {}
    arms = {"dense": METHODS["dense"](), "literal": focus(router, membership="literal")}
    arms |= {"causal": focus(router), "random": focus(control)}
    for arm, method in arms.items():
        context.progress(0.95, f"perplexity, {arm}")
        with apply(model, method, kernels=True):
            quality_of[arm] = perplexity(model, ids.reshape(-1), ids.shape[1])
    gain, points = over_units(quality_of["random"].losses.mean(1) - quality_of["causal"].losses.mean(1), documents)
    soft, _ = memberships(router, attention_inputs(model, list(ids), make=router.project))  # [L, T, K]
    return {f"perplexity_{arm}": quality.perplexity for arm, quality in quality_of.items()} | {
        "gain_over_random": gain._asdict()
        | {"unit": "documents", "state": gain.state, "points": points.tolist() if gain.low is None else None},
        "dominance": [largest_share(layer.argmax(-1).numpy(), router.K) for layer in soft],
    }
