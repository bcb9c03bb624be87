"""What a method's own kernels gain on a model: prompt and further tokens against dense in turns, at several lengths;
and what each further token takes with bucket routing."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import torch

from ...answer import Answer, Worded, doc, record
from ...claims import speeds
from ...commands.routing import RouteTime
from ...commands.speed import TimeMethod
from ...corpus import sample_texts
from ...errors import BadSetting
from ...methods import METHODS
from ...methods.base import Method
from ...models import Model
from ...seam.attention import apply, ran
from ...seam.calls import MASKED
from ...seam.read_on import read_on
from ...timing import crossover, processor
from ...timing.inference import SPEEDUPS, InferenceTime, time_inference
from ...timing.memory import check_model_memory
from ..context import Context, protocol, read
from ..ready.candidates import FAMILIES, Setting, candidates
from ..routing.rows import NAMES
from ..routing.states import state_for
from ..text.held_out import check_range

# Name of its speed-up -> what is timed.
PHASES = {"prefill": "prompt", "per_token": "token"}
# Likewise -> the phase of `ran`.
RAN = {"prompt": "prefill", "token": "decode"}
PARTS = (4, 2, 1)  # of the longest prompt
# Tokens of the prompt that shows which kernels there are.
TRIED = 64
WHY = "No kernel of this method can run here."


@record
class MethodTimes(Answer, Setting):
    """Speed of a method's own kernels; a masked pass is no speed. Keys: prompt and token, or prefill and per_token."""

    kernels: dict = doc("of prompt and token the kernel's name, or null")
    why: dict = doc("likewise why, in words")
    rows: list[dict] = doc("per length milliseconds of both, dense and sparse")
    speedup: dict = doc("of prefill and per_token: median low high at the whole length, or null")
    longer: dict = doc("likewise (length, speed-up), all measured")
    crossover: dict = doc("likewise the length from which sparse wins, or null")
    length: int = doc("tokens of the longest prompt")
    reads_future: bool = doc("later tokens decide over earlier ones")
    sentence: str = doc("the result in words")
    table: pd.DataFrame = doc("the rows", name="rows")


@record
class RoutedTimes(Worded):
    """Time of one more token with bucket routing, against dense."""

    rows: list[dict] = doc("per side the kernel, prefill_ms and ms_per_token")
    speedup: dict = doc("of prefill and per_token: median low high")
    step_parts: dict = doc("milliseconds of the parts of one token")
    length: int = doc("tokens of the prompt")
    table: pd.DataFrame = doc("the rows", name="rows")


def time_method(request: TimeMethod, *, context: Context) -> MethodTimes:
    """Time the model with a method, as `evaluate` takes one, against dense: the first token of a prompt and each of
    `new_tokens` after it, at a quarter, a half and all of `length` tokens (default: all of the text that fits).
    Errors: BadSetting, NotFitted, TooLarge."""
    lm, new_tokens = context.model(request.model), request.new_tokens
    (chosen,) = candidates(context, lm, [request.method or {"name": "dense"}], FAMILIES)
    ids = read(context, lm, request.text, "first").windows[0]
    room = min(len(ids), lm.max_positions - new_tokens)
    length = room if request.length is None else request.length
    check_range("The length of the prompt", length, 2 * PARTS[0], room)
    check_model_memory(lm, length, new_tokens, 1)
    kernels, why = kernels_of(lm, chosen.method, ids[: min(TRIED, length)])
    timed: list[InferenceTime] = []
    for turn, part in enumerate(PARTS if any(kernels.values()) else ()):
        report = context.within(turn / len(PARTS), 1 / len(PARTS)).progress
        timed.append(time_inference(lm, chosen.method, ids[: length // part], new_tokens, request.repeats, report))
    points: dict[str, list] = {name: [] for name in PHASES}
    spread: dict[str, dict | None] = dict.fromkeys(PHASES)
    for name, phase in PHASES.items():
        if kernels[phase]:
            points[name] = [(run.length, float(getattr(run, name).median)) for run in timed]
            spread[name] = getattr(timed[-1], name).spread()
    rows: list[dict[str, float]] = []
    for run in timed:
        rows.append({"length": run.length})
        for name, phase in PHASES.items():
            rows[-1] |= {f"{phase}_{side.side}_ms": getattr(side, SPEEDUPS[name])["median"] for side in run.sides}
    about = {"kernel": "; ".join(filter(None, kernels.values())) or MASKED, "new_tokens": new_tokens}
    about |= {"dense_kernel": timed[-1].dense.kernel if timed else None, "repeats": request.repeats}
    about["processor"] = processor(str(lm.device))
    return MethodTimes(
        **chosen.setting,
        kernels=kernels,
        why=why,
        rows=rows,
        speedup=spread,
        longer=points,
        crossover={name: crossover(measured) if measured else None for name, measured in points.items()},
        length=length,
        reads_future=chosen.method.reads_future,
        sentence=_sentence(chosen.label, kernels, spread, length, request.repeats),
        table=pd.DataFrame(rows),
        protocol=protocol("time-method", lm, request.text, length, **about),
    )


@torch.no_grad()
def kernels_of(lm: Model, method: Method, ids: np.ndarray) -> tuple[dict, dict]:
    """What computes a prompt and a token after it, and why: a phase in which any layer is a masked pass has none."""
    tokens = torch.as_tensor(ids).long()[None].to(lm.device)
    with apply(lm, method, kernels=True):
        cache = method.cache(lm.lm)
        _, past = read_on(lm.lm, tokens, cache)
        read_on(lm.lm, tokens[:, -1:], past)
        entries = ran(lm)
    kernels, why = {}, {}
    for phase, of_ran in RAN.items():
        of_phase = [entry for entry in entries if entry.phase == of_ran]
        masked = next((entry for entry in of_phase if entry.kernel == MASKED), None)
        kernels[phase] = None if masked else "; ".join(dict.fromkeys(entry.kernel for entry in of_phase)) or None
        why[phase] = (masked or of_phase[-1]).why if of_phase else WHY
    return kernels, why


def _sentence(label: str, kernels: dict, spread: dict, length: int, rounds: int) -> str:
    if not any(kernels.values()):
        return f"{label} has no kernel here, so no speed of it was measured."
    return f"{label} at {length:,} tokens: {speeds(spread, rounds)}"


def route_time(request: RouteTime, *, context: Context) -> RoutedTimes:
    """Time `new_tokens` greedy tokens after a prompt of `length` tokens (default: all that fits the model) with the
    method `bucket_routing` and its stored routers, against the same model dense. `text` (hash, default: the bundled
    story) is repeated where the prompt is longer. Errors: BadSetting, NotFitted, TooLarge."""
    lm, new_tokens, visited = context.model(request.model), request.new_tokens, request.visited
    length = lm.max_positions - new_tokens if request.length is None else request.length
    check_range("The length of the prompt", length, 2, lm.max_positions - new_tokens)
    state = state_for(context, lm)
    if not 1 <= visited <= state.settings.buckets:
        raise BadSetting(f"{visited:,} buckets were to be visited: choose 1 to {state.settings.buckets:,}.")
    method = METHODS["bucket_routing"].build(state, router=request.router, visited=visited)
    method.check(lm.lm)
    check_model_memory(lm, length, new_tokens, 1)
    key = request.text or context.add_text(*sample_texts()["story"])
    ids = np.resize(read(context, lm, key).tokens.ids, length)
    timed = time_inference(lm, method, ids, new_tokens, request.repeats, context.progress)
    rows = []
    for name, side in zip(("dense", "bucket routing"), timed.sides, strict=True):
        times = {column: getattr(side, column)["median"] for column in SPEEDUPS.values()}
        rows.append({"side": name, "kernel": side.kernel, **times})
    step, (dense, routed) = timed.per_token.spread(), rows
    about = {"kernel": routed["kernel"], "dense_kernel": dense["kernel"], "repeats": request.repeats}
    about |= {"new_tokens": new_tokens, "settings": {"router": request.router, "visited": visited}}
    about |= {"routers": asdict(state.settings), "processor": processor(str(lm.device))}
    return RoutedTimes(
        rows=rows,
        speedup={"prefill": timed.prefill.spread(), "per_token": step},
        step_parts={name: seconds * 1e3 for name, seconds in timed.step_parts.items()},
        length=length,
        sentence=f"After {length:,} tokens, one more takes {routed['ms_per_token']:.1f} ms with "
        f"{NAMES[request.router]} and {visited:,} of {state.settings.buckets:,} buckets, dense "
        f"{dense['ms_per_token']:.1f} ms: {step['median']:.2f} times as fast (rounds {step['low']:.2f} to "
        f"{step['high']:.2f}).",
        notes=["A prompt is a masked pass, which saves nothing: only tokens after it gather what they visit."],
        table=pd.DataFrame(rows),
        protocol=protocol("route-time", lm, key, length, **about),
    )
