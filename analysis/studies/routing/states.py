"""What is stored of routing on a model: buckets and routers (some are fitted on the bundled samples where there are
none), and the curves that a slider reads, so that no budget needs a pass."""

import json
import math
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ...answer import plain
from ...corpus import FITTED_ON, fitting_samples, text_hash
from ...errors import AnalysisError, BadSetting, NotFitted
from ...fitted import pair, put
from ...models import Model
from ...routers import ROUTERS
from ...routers.buckets import buckets_for
from ...routers.routing_state import FOLDER, RoutingSettings, RoutingState, stack
from ..context import Context, protocol
from ..text.held_out import storing
from .cells import RAW, SINKS, Cell
from .fit import ABLATIONS, Fitted, calibrate
from .passes import rotated_layers
from .results import Beside
from .score import BucketBalance, Curves, RouterTiming
from .texts import Prompt, heads_of, prompts_of

# Of the routers that are fitted on the samples.
DISTANCE = 64
NAME = "curves.safetensors"


def stored_states(context: Context, model: Model) -> list[RoutingState]:
    """The usable ones of this very model, those without sinks first; each file is read once while it stays the same."""
    by_file = {}
    for path in context.stored(model, f"{FOLDER}/c*-d*-s*.safetensors"):
        if path.name not in by_file:
            state = context.once(f"routing {path}", path.stat().st_mtime_ns, partial(RoutingState.load, path))
            if state.about.get("revision") == model.revision:
                by_file[path.name] = state
    return sorted(by_file.values(), key=lambda state: (state.settings.sinks == 0, state.settings.name))


def state_near(context: Context, model: Model, cell: Cell) -> RoutingState:
    """The stored state fitted for this distance and these sinks, else for the same sinks, if there is one, and the
    nearest distance; where nothing is stored, one that is fitted on the bundled samples."""
    states = stored_states(context, model) or [fit_on_samples(context, model)]

    # Distances are compared by their ratio: 16 is as near to 32 as 512 to 1,024.
    def apart(state: RoutingState) -> tuple[bool, float]:
        settings = state.settings
        return settings.sinks != cell.sinks, abs(math.log(settings.min_distance / cell.min_distance))

    return min(states, key=apart)


def state_for(context: Context, model: Model) -> RoutingState:
    """The stored state that the method takes, made for keys without the sinks if there is one; the first time for a
    model it is fitted on the bundled samples, without the learned router, and stored."""
    try:
        states = stored_states(context, model)
    except AnalysisError:
        states = []
    return states[0] if states else fit_on_samples(context, model)


def fit_on_samples(context: Context, model: Model, seed: int = 0) -> RoutingState:
    """Buckets and closed-form routers from the bundled samples except the story, stored in the model's state."""
    samples = fitting_samples()
    length = min(model.max_positions, 2048)
    prompts = prompts_of(model, list(samples.values()), length, len(samples), 2)
    tokens = sum(len(prompt.ids) for prompt in prompts)
    texts_hash = text_hash(" ".join(map(text_hash, samples.values())))
    about = protocol("route", model, texts_hash, tokens, window=length, seed=seed, texts=FITTED_ON)
    state = fit_prompts(context, model, prompts, length, max(4, buckets_for(length)), seed, protocol=about)
    folder = context.state_dirs(model)[0] / FOLDER
    with storing("routers", folder):
        state.save(folder)
    return state


def calibrated_on(state: RoutingState) -> tuple[str, ...]:
    """The hashes of the texts that a state was fitted on, as far as it names them."""
    about = state.about.get("protocol", {})
    if about.get("texts") == FITTED_ON:
        return tuple(map(text_hash, fitting_samples().values()))
    return tuple(about.get("keys", ()))


def fit_prompts(
    context: Context, model: Model, prompts: list[Prompt], length: int, buckets: int, seed: int, **about: Any
) -> RoutingState:
    """Buckets and closed-form routers from prompts of at most `length` tokens, for keys at least DISTANCE tokens back
    and without the sinks where the prompts are long enough; nothing is stored. `about` is kept with them."""
    shortest = min(len(prompt.ids) for prompt in prompts)
    cell = Cell(max(1, min(DISTANCE, shortest // 4)), SINKS)
    if cell.tokens_needed > shortest // 2:
        cell = Cell(cell.min_distance, 0)
    fitted = calibrate(context, model, prompts, heads_of(model), rotated_layers(model), [cell], buckets, seed, False)
    return state_of(model, fitted, cell, length, seed, **about)


def state_of(model: Model, fitted: Fitted, cell: Cell, length: int, seed: int, **about: Any) -> RoutingState:
    """The buckets of the raw keys and the routers of a cell, `about` kept with them."""
    routers = [
        {kind: router for kind, router in of_layer.items() if kind not in ABLATIONS}
        for of_layer in fitted.routers[cell].values()
    ]
    centroids = list(fitted.partitions[RAW].centroids.values())
    settings = RoutingSettings(centroids[0].shape[1], cell.min_distance, cell.sinks, length, seed, fitted.rotated)
    return stack(routers, centroids, settings, model=model.name, revision=model.revision, **about)


@dataclass(frozen=True)
class Kept:
    """Curves, the protocol that they were measured with, and what was found beside them."""

    curves: Curves
    about: dict
    beside: Beside

    @property
    def key(self) -> tuple:
        """What they belong to: the weights and the texts."""
        return self.about["revision"], self.about["text"]


def keep(folder: Path, stored: Kept) -> None:
    """Write the curves into a folder, in 16 bits."""
    curves, tensors = stored.curves, {}
    cells = list(curves.recall)
    for number, cell in enumerate(cells):
        tensors[f"{number}.queries"] = curves.queries[cell].astype(np.int64)
        for name in ("recall", "selectivity"):
            for kind, values in getattr(curves, name)[cell].items():
                tensors[f"{number}.{name}.{kind}"] = values.astype(np.float16)
    note = {"heads": curves.heads, "points": curves.points, "buckets": curves.buckets, "about": stored.about}
    note |= {"more": plain(stored.beside), "cells": [asdict(cell) for cell in cells]}
    put(folder / NAME, save(tensors), note)


def stored_curves(context: Context, lm: Model) -> Kept:
    """The curves in the fitted state of a model; the last ones read stay in memory. Errors: NotFitted, BadSetting."""
    for path in context.stored(lm, f"{FOLDER}/{NAME}"):
        stamp = (str(path), path.stat().st_mtime_ns)
        stored = context.once("routing curves", stamp, partial(read_curves, path))
        if stored.about["revision"] == lm.revision:
            return stored
    raise NotFitted(f"{lm.name} has no stored routing curves: run `route --store` on some texts first.")


def read_curves(path: Path) -> Kept:
    """What `keep` wrote. Errors: BadSetting."""
    try:
        stored = pair(path)
        if stored is None:
            # Curves from before notes named their data, such as those that come with the program.
            stored = path.read_bytes(), json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            if "sha256" in stored[1]:
                raise ValueError("the data are not those of the note")
        tensors, note = load(stored[0]), stored[1]
        curves = Curves([tuple(head) for head in note["heads"]], note["points"], note["buckets"], {}, {}, {})
        for number, cell in enumerate(Cell(**cell) for cell in note["cells"]):
            curves.queries[cell] = tensors[f"{number}.queries"].astype(float)
            for name in ("recall", "selectivity"):
                named = ((kind, tensors.get(f"{number}.{name}.{kind}")) for kind in ROUTERS)
                getattr(curves, name)[cell] = {kind: x.astype(np.float32) for kind, x in named if x is not None}
        more = note["more"]
        balance = [BucketBalance(**row) for row in more.get("balance", ())]
        timings = [RouterTiming(**row) for row in more.get("timings", ())]
        return Kept(curves, dict(note["about"]), Beside(balance, timings, list(more.get("notes", ()))))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise BadSetting(f"The routing curves in {path.parent.name} are damaged: store them again.") from error
