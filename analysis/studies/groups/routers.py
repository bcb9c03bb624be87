"""Which router a study uses: the stored one by name, or one fitted without training on the bundled samples."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...answer import Answer, doc, record
from ...commands import commandline
from ...commands.groups import FitRouter
from ...corpus import FITTED_ON, fitting_samples, sample_texts, text_hash, tokenize
from ...errors import AnalysisError, BadSetting
from ...groups.controls import random_centroids
from ...groups.fit import fit_without_training
from ...groups.gates import top_groups
from ...groups.router import FocusRouter, RouterSettings
from ...methods import METHODS
from ...methods.base import Method
from ...metrics.quality import Quality, perplexity
from ...models import Model
from ...seam.attention import apply
from ...statistics import attention_inputs
from ..context import Context, protocol
from ..text.held_out import storing

# The end: a name of its own, beside others.
NAME = re.compile(r"k(\d{1,3})-top(\d{1,2})(?:-[a-z0-9]{1,16})?")
# Of a model's fitted state.
FOLDER = "focus"
# Tokens of each calibration text that a router is fitted on.
CALIBRATION = 1024


def router_path(context: Context, model: Model, name: str) -> Path:
    """Where the router `k8-top1` of a model is stored when it is made now."""
    if not NAME.fullmatch(name):
        raise BadSetting(f"{name[:40]!r} names no router: write it like k8-top1 (8 groups, each token in 1).")
    return context.state_dirs(model)[0] / FOLDER / f"{name}.safetensors"


def stored_routers(context: Context, model: Model) -> list[dict]:
    """The routers stored for a model, as plain data: name, settings, how they were made, or why one is unusable."""
    by_name: dict[str, dict] = {}
    for path in context.stored(model, f"{FOLDER}/k*-top*.safetensors"):
        if not NAME.fullmatch(path.stem) or path.stem in by_name:
            continue
        try:
            by_name[path.stem] = router_facts(path.stem, FocusRouter.load(path, model.num_layers, model.width))
        except AnalysisError as error:
            by_name[path.stem] = {"name": path.stem, "kind": "damaged", "error": str(error)}
    return list(by_name.values())


def router_facts(name: str, router: FocusRouter) -> dict:
    """What every page says of a router: its name and sizes, and how it was made."""
    sizes = {"groups": router.K, "top": router.top, "window": router.window, "n_sink": router.n_sink}
    return {"name": name, **sizes, **router.about}


def shared_router(context: Context, model: Model, name: str) -> tuple[FocusRouter, FocusRouter]:
    """As `router_for`, where groups are looked at that all heads share: of a router with groups of every key-value head
    those of the first, which `heads_note` says."""
    router, control = router_for(context, model, name)
    return (router.of_head(0), control.of_head(0)) if router.heads > 1 else (router, control)


def heads_note(router: FocusRouter) -> list[str]:
    """The sentence beside the groups of one head, where `shared_router` gives them."""
    heads = router.about.get("heads")
    return (
        [f"Each of {heads} key-value heads has groups of its own: those of the first are read here."] if heads else []
    )


def router_for(context: Context, model: Model, name: str = "k8-top1") -> tuple[FocusRouter, FocusRouter]:
    """The stored router of this name and its control (random centroids, balanced on the same calibration text).

    When there is none for this very model, one is fitted without training and stored. Errors: BadSetting.
    """
    path = router_path(context, model, name)
    for stored in context.stored(model, f"{FOLDER}/{path.name}"):
        # A router without its control was not stored by this program.
        if control_path(stored).is_file():
            router = FocusRouter.load(stored, model.num_layers, model.width)
            if router.about.get("revision") == model.revision:
                return router, FocusRouter.load(control_path(stored), model.num_layers, model.width)
    if path.is_file():
        raise BadSetting(
            f"The router {name} in {path.parent} was made for other weights than those of {model.name} now: fit or "
            "train it again, or name another folder for fitted state."
        )
    groups, top = (int(number) for number in re.findall(r"\d+", name)[:2])
    if name != f"k{groups}-top{top}":
        raise BadSetting(f"{model.name} has no router {name} here: train it first, or choose another one.")
    sizes: dict[str, Any] = {"model": model.name, "groups": groups, "top": top}
    fit_router(FitRouter(**sizes), context=context)
    return FocusRouter.load(path), FocusRouter.load(control_path(path))


def trained_router(context: Context, model: Model, name: str) -> FocusRouter:
    """The stored router of this name, refused when nobody trained it."""
    kinds = {facts["name"]: facts["kind"] for facts in stored_routers(context, model)}
    if kinds.get(name) != "trained":
        raise BadSetting(
            f"The router {name[:40]!r} of {model.name} is {kinds.get(name, 'not there')} and a trained one is needed: "
            f"train it first, or name one of {', '.join(n for n in kinds if kinds[n] == 'trained') or 'none'}."
        )
    return router_for(context, model, name)[0]


def control_path(path: Path) -> Path:
    """Where the control of a stored router lies: beside it."""
    return path.with_name(f"random-{path.name}")


def save(
    context: Context, model: Model, router: FocusRouter, control: FocusRouter, path: Path, **about: Any
) -> list[str]:
    """Store a router of a model and its control; runs that used an earlier one of this name go to the trash. Returns
    sentences that say so."""
    # The control says of which texts it is, and not how the router was trained.
    about = {"model": model.name, "revision": model.revision, **about}
    with storing("router", path):
        router.save(path, **about)
        control.save(control_path(path), **{key: about[key] for key in ("model", "revision", "corpus")})
    return context.forget("router", path.stem, model)


def memberships(router: FocusRouter, vectors: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal assignment of tokens from their routing vectors L x [T, d_s]: soft and hard, both [L, T, K]."""
    pairs = [assigned(router, layer, of_layer) for layer, of_layer in enumerate(vectors)]
    return torch.stack([soft for soft, _ in pairs]), torch.stack([hard for _, hard in pairs])


@torch.no_grad()
def assigned(router: FocusRouter, layer: int, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal assignment of one layer's tokens from their routing vectors [T, d_s]: soft and hard, both [T, K]."""
    soft = router.causal(layer, vectors)
    return soft, top_groups(soft, router.top)


@record
class FittedRouter(Answer):
    """A router that was fitted without training, and where it is stored."""

    path: str
    tokens: int = doc("tokens that it was fitted on")
    notes: list[str] = doc("runs of an earlier router of this name that went to the trash")
    perplexity_dense: float | None = doc("on the third sample, where it was measured", default=None)
    perplexity_fitted: float | None = doc("with the router's hard groups", default=None)
    perplexity_random: float | None = doc("with random centroids, same settings", default=None)


def fit_router(request: FitRouter, *, context: Context) -> FittedRouter:
    """Fit a router without training on the first 1,024 tokens of two bundled samples, read once, and store it.
    `measure`: compare it with random groups and dense attention on the third sample, which the fit never saw."""
    sizes: dict[str, Any] = {"groups": request.groups, "top": request.top, "window": request.window}
    # Refuses a router that cannot be before a model reads anything for it.
    RouterSettings(**sizes)
    lm = context.model(request.model)
    samples = fitting_samples()
    path = router_path(context, lm, f"k{request.groups}-top{request.top}")
    room = min(lm.max_positions, CALIBRATION)
    pieces = [tokenize(lm.tokenizer, text, room, -(-CALIBRATION // room)) for text in samples.values()]
    windows = [tokens.ids[a:b] for tokens in pieces for a, b in tokens.spans]
    inputs = attention_inputs(lm, windows, lambda done: context.progress(done / 2, "reading the calibration texts"))
    fit = context.within(0.5, 0.3 if request.measure else 0.5)
    router = fit_without_training(inputs, **sizes, seed=request.seed, progress=fit.progress)
    control = random_centroids(router, inputs, request.seed)
    tokens = len(inputs[0])
    about = {"corpus": FITTED_ON, "calibration": [text_hash(text) for text in samples.values()], "tokens": tokens}
    read: dict[str, Any] = {"text": None, "tokens": tokens, "window": max(map(len, windows))}
    perplexities: dict[str, float] = {}
    if request.measure:
        text = sample_texts()["story"][1]
        ids = tokenize(lm.tokenizer, text, lm.max_positions).ids
        window = min(lm.max_positions, len(ids))
        read = {"text": text_hash(text), "tokens": len(ids) // window * window, "window": window}
        focus = METHODS["focus"].build
        methods = {"dense": METHODS["dense"](), "fitted": focus(router), "random": focus(control)}
        measured = perplexity_of_arms(lm, methods, ids, window, context.within(0.8, 0.2))
        perplexities = {f"perplexity_{name}": quality.perplexity for name, quality in measured.items()}
        about |= {"evaluated_on": "bundled story", "evaluated_tokens": read["tokens"], "evaluated_window": window}
        about |= perplexities
    command = commandline("fit-router", request.arguments | {"model": lm.name})
    made_with = protocol("fit-router", lm, seed=request.seed, command=command, **read)
    notes = save(context, lm, router, control, path, **about, protocol=made_with)
    return FittedRouter(path=str(path), tokens=tokens, notes=notes, protocol=made_with, **perplexities)


def perplexity_of_arms(
    lm: Model, methods: dict[str, Method], ids: np.ndarray, window: int, context: Context, kernels: bool = False
) -> dict[str, Quality]:
    """How a model that reads by each of the methods predicts a text, in whole windows."""
    measured = {}
    for place, (name, method) in enumerate(methods.items()):
        context.progress(place / len(methods), f"perplexity, {name}")
        with apply(lm, method, kernels=kernels):
            measured[name] = perplexity(lm, ids, window)
    return measured
