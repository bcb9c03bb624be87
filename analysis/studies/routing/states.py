"""Which fitted buckets and routers a study or a method uses: the stored ones, or some fitted on the bundled samples."""

import math
from typing import Any

from analysis.corpus import sample_texts, text_hash
from analysis.errors import AnalysisError, BadSetting, NotFitted
from analysis.models import Model
from analysis.routers.buckets import buckets_for
from analysis.routers.state import FOLDER, RoutingSettings, RoutingState, stack
from analysis.studies.context import Context, protocol
from analysis.studies.routing.cells import RAW, SINKS, Cell
from analysis.studies.routing.fit import calibrate
from analysis.studies.routing.passes import rotated_layers
from analysis.studies.routing.texts import Prompt, heads_of, prompts_of, tokens_needed

DISTANCE = 64  # of the routers that are fitted on the samples


def stored_states(context: Context, model: Model) -> list[RoutingState]:
    """The usable ones of this very model, those without sinks first; each file is read once while it stays the same."""
    found = {}
    for path in context.stored(model, f"{FOLDER}/c*-d*-s*.safetensors"):
        if path.name in found:
            continue
        key, stamp = f"routing {path}", path.stat().st_mtime_ns
        if context.kept.get(key, (None,))[0] != stamp:
            context.kept[key] = (stamp, RoutingState.load(path))
        state = context.kept[key][1]
        if state.about.get("revision") == model.revision:
            found[path.name] = state
    return sorted(found.values(), key=lambda state: (state.settings.sinks == 0, state.settings.name))


def state_at(context: Context, model: Model, min_distance: int, sinks: int) -> RoutingState:
    """The stored state of a minimum distance and number of sinks. Errors: BadSetting, naming what there is."""
    states = stored_states(context, model)
    for state in states:
        if (state.settings.min_distance, state.settings.sinks) == (min_distance, sinks):
            return state
    there = ", ".join(f"{s.settings.min_distance} with {s.settings.sinks} sinks left out" for s in states) or "none"
    raise BadSetting(
        f"{model.name} has no stored routers for a minimum distance of {min_distance} with {sinks} sinks left out; "
        f"there are: {there}."
    )


def state_near(context: Context, model: Model, min_distance: int, sinks: int) -> RoutingState:
    """The stored state fitted for this distance and these sinks, else for the same sinks, if there is one, and the
    nearest distance. Errors: NotFitted where nothing is stored."""
    states = stored_states(context, model)
    if not states:
        raise NotFitted(f"{model.name} has no stored routers: run `route --store` on some texts first.")

    def apart(state: RoutingState) -> tuple[bool, float]:
        made = state.settings
        return made.sinks != sinks, abs(math.log(made.min_distance / min_distance))

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
    samples = {name: text for name, (_, text) in sample_texts().items() if name != "story"}
    length = min(model.max_positions, 2048)
    prompts = prompts_of(model, list(samples.values()), length, len(samples), 2)
    keys = text_hash(" ".join(map(text_hash, samples.values())))
    tokens = sum(len(prompt.ids) for prompt in prompts)
    about = protocol("route", model, keys, tokens, window=length, seed=seed, texts="bundled samples without the story")
    state = fit_prompts(context, model, prompts, length, max(4, buckets_for(length)), seed, protocol=about)
    folder = context.state_dirs(model)[0] / FOLDER
    try:
        state.save(folder)
    except OSError as error:
        raise BadSetting(f"The routers cannot be stored in {folder} ({error.strerror}): name another one.") from error
    return state


def fit_prompts(
    context: Context, model: Model, prompts: list[Prompt], length: int, buckets: int, seed: int, **about: Any
) -> RoutingState:
    """Buckets and closed-form routers from prompts of at most `length` tokens, for keys at least DISTANCE tokens back
    and without the sinks where the prompts are long enough; nothing is stored. `about` is kept with them."""
    shortest = min(len(prompt.ids) for prompt in prompts)
    distance = max(1, min(DISTANCE, shortest // 4))
    sinks = SINKS if tokens_needed(distance, SINKS) <= shortest // 2 else 0
    cell = Cell(distance, sinks)
    fitted = calibrate(
        context, model, prompts, heads_of(model, "all"), rotated_layers(model), [cell], buckets, seed, mlp=False
    )
    settings = RoutingSettings(buckets, distance, sinks, length, seed, fitted.rotated)
    routers = [fitted.routers[cell][layer] for layer in fitted.heads]
    centroids = [fitted.partitions[RAW].centroids[layer] for layer in fitted.heads]
    return stack(routers, centroids, settings, model=model.name, revision=model.revision, **about)
