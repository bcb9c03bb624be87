"""Training a Focus router for a model, and what it costs in perplexity: literal and causal membership side by side."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from pandas import DataFrame

from ...answer import Answer, doc, plain, record
from ...commands import commandline
from ...commands.groups import TrainRouter
from ...corpus import text_hash, token_stream
from ...errors import BadSetting
from ...files import clear, folder_whole
from ...groups.controls import random_centroids
from ...groups.dominance import largest_share
from ...groups.router import FocusRouter
from ...methods import METHODS
from ...metrics.intervals import over_units
from ...metrics.quality import perplexity
from ...models import CACHE, Model, load_model
from ...places import FINETUNED
from ...runs.brought import corpus_folder
from ...statistics import attention_inputs
from ...training.checkpoints import one_training
from ...training.focus import finetune, train_router
from ...training.settings import RouterTraining
from ..context import Context, protocol
from ..groups.routers import FOLDER, memberships, perplexity_of_arms, router_path, save, trained_router
from ..stored.runner import table
from ..text.held_out import HELD_OUT_WINDOWS, check_range, corpus_hash, held_out_windows, make_folder, storing, texts_of

# Points of a curve that is drawn while it grows.
SHOWN = 300


@record
class Gain:
    """Nats per token by which one arm predicts better than another, paired by document."""

    mean: float
    low: float | None = doc("95% interval over documents")
    high: float | None
    units: int = doc("documents")
    method: str = doc("how the interval was made")
    unit: str
    state: str = doc("what it rests on, in words")
    points: list[float] | None = doc("the gain of each document, where they are too few for an interval")


@record
class RouterMeasures:
    """A router on documents it never saw, with hard groups and its window."""

    perplexity_dense: float
    perplexity_literal: float = doc("groups balanced over the whole text: it reads the future")
    perplexity_causal: float = doc("balance frozen on training windows")
    perplexity_random: float = doc("random centroids")
    gain_over_random: Gain = doc("of the router's causal groups over random centroids")
    dominance: list[float | None] = doc("largest group's share of the tokens, per layer; null without groups")


@record
class ShareRow:
    """The largest group of a layer at one look."""

    step: int
    layer: int
    share: float = doc("of the tokens of the windows that are looked at")


@record
class TrainedRouter(RouterMeasures, Answer):
    """A trained router or, of phase 2, a model that was trained with one."""

    path: str = doc("the router's file, or the model's folder")
    notes: list[str] = doc("runs of an earlier router of this name that went to the trash")
    log: DataFrame = doc("one row per step, as `training.focus.train_router` says")
    shares: DataFrame = doc("one row per look and layer", row=ShareRow)
    perplexity_before: float | None = doc("of the model before phase 2, dense", default=None)
    before: dict[str, str] | None = doc("model and router that phase 2 began with", default=None)


def train_focus_router(request: TrainRouter, *, context: Context) -> TrainedRouter:
    """Train a router on a folder of texts, the model frozen, and measure it on documents it never saw.

    Resumes from its checkpoint when stopped. Phase 2 starts from the trained router of this name, whose settings count,
    and trains a copy of the model with it (`reading` soft) or under its mask (hard); the copy, of which the numbers
    are, is a model folder with the router in its `focus/`: `output`, else `finetuned/ROUTER` in the state, or of a
    browser in `models_cache/finetuned`.
    """
    # Every field of a training that the command has, too.
    settings = {setting.name for setting in fields(RouterTraining)} & set(request.arguments)
    chosen = {name: getattr(request, name) for name in settings}
    if not request.corpus:
        raise BadSetting("Training needs a corpus: name a folder of .txt, .md or .py files.")
    if context.browser and request.output:
        raise BadSetting("In a browser no folder can be named for the result: leave the output out.")
    source = corpus_folder(context.store, request.corpus) if context.browser else Path(request.corpus)
    lm = context.model(request.model)
    # The usual length is cut to what a model reads; one that was chosen is not.
    if request.length != TrainRouter.length:
        check_range("The length of a sequence", request.length, 2, lm.max_positions)
    heads = lm.num_kv_heads if request.per_head else 1
    plan = RouterTraining(**chosen | {"grouped_layers": _places(lm, request.grouped_layers), "heads": heads})
    name = f"k{request.groups}-top{request.top}{f'-{request.label}' if request.label else ''}"
    # Refuses a name that cannot be.
    path = router_path(context, lm, name)
    start = trained_router(context, lm, name) if request.phase == 2 else None
    if start is None:
        place = path = Path(request.output) / path.name if request.output else path
    else:
        plan = plan.after(start)
        place = _model_folder(context, lm, name, request.output)
        path = place / FOLDER / f"{name}.safetensors"
    # Two pages may ask for one name with other settings, and each goes on with its own checkpoint.
    own_end = f".{text_hash(f'{request.corpus} {plan}')}" if context.browser else ""
    checkpoint = path.with_suffix(f"{own_end}.checkpoint")
    make_folder(path.parent)
    with one_training(place):
        train, held_out = texts_of(source, context)
        context.progress(0.0, "reading the corpus")
        length, train_ids = min(plan.length, lm.max_positions), token_stream(lm.tokenizer, train)
        windows, documents = held_out_windows(lm, held_out, length, HELD_OUT_WINDOWS, fewest=1)
        options: dict[str, Any] = {
            "progress": context.within(0.0, 0.9).progress,
            "watch": lambda log: context.show(curve(log)),
        }
        earlier: dict[str, Any] = {}
        if start is None:
            router, inputs, log = train_router(lm, train_ids, plan, checkpoint, **options)
        else:
            earlier["perplexity_before"] = perplexity(lm, windows.reshape(-1), length).perplexity
            tuned, router, inputs, log = finetune(lm, start, train_ids, plan, checkpoint, **options)
            earlier["before"] = {"model": lm.name, "router": name}
            with storing("model", place), folder_whole(place) as draft:
                tuned.lm.save_pretrained(draft)
                tuned.tokenizer.save_pretrained(draft)
            # What is measured is what is kept.
            lm = load_model(str(place), context.device)
        control = random_centroids(router, inputs, request.seed)
        measures = measure(lm, router, control, windows, documents, context)
        about = {
            "corpus": f"{source.name}, {len(train)} documents",
            "corpus_hash": corpus_hash(train),
            "kind": "trained",
            "steps": request.steps,
            "tokens": request.steps * max(1, request.tokens_per_step // length) * length,
            "rate": request.rate,
            "training": asdict(plan),
            "hard_losses": [[row["step"] + 1, row["hard"]] for row in log if "hard" in row],
            "evaluated_on": f"{len(held_out)} held-out documents",
            "evaluated_tokens": windows.size,
            "evaluated_window": length,
            **plain(measures),
            **earlier,
        }
        again = {"corpus": "DIR", "output": None} | {name: getattr(plan, name) for name in settings}
        again |= {"grouped_layers": plan.grouped_layers and [lm.layer_numbers[place] for place in plan.grouped_layers]}
        made_with = protocol(
            "train-router",
            lm,
            about["corpus_hash"],
            windows.size,
            window=length,
            seed=request.seed,
            steps=request.steps,
            command=commandline("train-router", request.arguments | again),
        )
        notes = save(context, lm, router, control, path, **about, protocol=made_with)
        for finished in path.parent.glob(f"{path.stem}.*checkpoint"):
            # It would stand in the way of a run with other settings.
            clear(finished)
    return TrainedRouter(
        **vars(measures),
        **earlier,
        log=table(log),
        shares=DataFrame(looks(log)),
        path=str(place),
        notes=notes,
        protocol=made_with,
    )


def _places(lm: Model, numbers: list[int] | None) -> list[int] | None:
    """The places of layers among those with softmax attention. Errors: BadSetting for a layer that is none of them."""
    places = {number: place for place, number in enumerate(lm.layer_numbers)}
    if missing := [number for number in numbers or () if number not in places]:
        raise BadSetting(
            f"{lm.name} has no layer {missing[0]} of attention to group: choose among "
            f"{', '.join(map(str, places))}, or leave the layers out for all."
        )
    return None if numbers is None else sorted({places[number] for number in numbers})


def _model_folder(context: Context, lm: Model, router: str, output: str | None) -> Path:
    """Where phase 2 leaves its copy of the model."""
    if output:
        return Path(output)
    if context.browser:
        return CACHE / FINETUNED / f"{lm.slug}-{router}"
    return context.state_dirs(lm)[0] / "finetuned" / router


def curve(log: list[dict]) -> dict[str, Any]:
    """The columns `step loss hard` of a run's rows, thinned to about SHOWN, where rows with a hard loss all stay; and
    as `looks` those of `looks`, as many."""
    stride = 1 + len(log) // SHOWN
    rows = [row for number, row in enumerate(log) if number % stride == 0 or "hard" in row]
    columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in ("step", "loss", "hard")}
    return columns | {"looks": looks(log, SHOWN)}


def looks(log: list[dict], most: int | None = None) -> dict[str, list]:
    """The columns of `ShareRow`: the largest group of every layer at each look, thinned to about `most` looks."""
    points = [(0, row["start"]) for row in log[:1] if "start" in row] + [
        (row["step"] + 1, row) for row in log if "shares" in row
    ]
    stride = 1 + len(points) // most if most else 1
    layers = ((step, enumerate(look["shares"])) for step, look in points[::stride])
    rows = [(step, layer, share) for step, shares in layers for layer, share in shares if share is not None]
    return {name: [row[place] for row in rows] for place, name in enumerate(("step", "layer", "share"))}


def measure(
    model: Model, router: FocusRouter, control: FocusRouter, ids: np.ndarray, documents: np.ndarray, context: Context
) -> RouterMeasures:
    """A router and its control on held-out windows [n, T] of `documents` [n]."""
    focus = METHODS["focus"].build
    arms = {"dense": METHODS["dense"](), "literal": focus(router, membership="literal")}
    arms |= {"causal": focus(router), "random": focus(control)}
    part = context.within(0.95, 0.05)
    quality = perplexity_of_arms(model, arms, ids.reshape(-1), ids.shape[1], part, kernels=True)
    gain, points = over_units(quality["random"].losses.mean(1) - quality["causal"].losses.mean(1), documents)
    soft, _ = memberships(router, attention_inputs(model, list(ids), make=router.project))  # [L, T, K]
    few = points.tolist() if gain.low is None else None
    return RouterMeasures(
        **{f"perplexity_{arm}": measured.perplexity for arm, measured in quality.items()},
        gain_over_random=Gain(**gain._asdict(), unit="documents", state=gain.state, points=few),
        dominance=[
            max(largest_share(of_head, router.K) for of_head in labels) if layer in router.grouped else None
            for layer, labels in enumerate(soft.argmax(-1).reshape(*soft.shape[:2], -1).mT.numpy())
        ],
    )
