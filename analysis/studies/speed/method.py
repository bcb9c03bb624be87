"""What a method's own kernels gain on a model: prompt and further tokens against dense in turns, at several lengths;
and what each further token takes with bucket routing."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import torch

from analysis.corpus import sample_texts
from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.models import Model
from analysis.runs import Result
from analysis.seam.arguments import as_past, past_of
from analysis.seam.attention import apply, ran
from analysis.seam.calls import MASKED
from analysis.studies.context import Context, protocol, read
from analysis.studies.ready.candidates import FAMILIES, candidates
from analysis.studies.routing.rows import NAMES
from analysis.studies.routing.states import state_for
from analysis.studies.speed.launch import MOST_NEW, MOST_ROUNDS
from analysis.studies.text.held_out import check_range
from analysis.timing import check_model_memory, crossover, processor
from analysis.timing.inference import InferenceTime, time_inference

PHASES = {"prefill": "prompt", "per_token": "token"}  # name of its speed-up -> what is timed
OF = {"prefill": "prefill", "per_token": "decode"}  # likewise -> the phase of `ran`
PARTS = (4, 2, 1)  # of the longest prompt
TRIED = 64  # tokens of the prompt that shows which kernels there are
WHY = "No kernel of this method can run here."


def time_method(
    model: str = "demo",
    text: str = "",
    method: dict | None = None,
    length: int | None = None,
    new_tokens: int = 16,
    repeats: int = 3,
    *,
    context: Context,
) -> Result:
    """Time the model with a method, as `evaluate` takes one, against dense: the first token of a prompt and each of
    `new_tokens` after it, at a quarter, a half and all of `length` tokens (default: all of the text that fits).

    Only what a kernel of the method's own computes is told: a masked pass is no speed.
    numbers: `kernels` (of `prompt` and `token`: the kernel's name, or None), `why` (likewise, in words), `rows` (per
    length ms of both, dense and sparse), `speedup` (`prefill`, `per_token`: `median low high` at the whole length, or
    None), `longer` (likewise: (length, speed-up), all measured), `crossover` (likewise: a length or None), `label`,
    `settings`, `reads_future`, `length`, `sentence`. table: `rows`. Errors: BadSetting, NotFitted, TooLarge.
    """
    check_range("The number of new tokens", new_tokens, 2, MOST_NEW)
    check_range("The number of rounds", repeats, 1, MOST_ROUNDS)
    lm = context.model(model)
    (chosen,) = candidates(context, lm, [method or {"name": "dense"}], FAMILIES)
    ids = read(context, lm, text, "first").windows[0]
    room = min(len(ids), lm.max_positions - new_tokens)
    length = room if length is None else length
    check_range("The length of the prompt", length, 2 * PARTS[0], room)
    check_model_memory(lm, length, new_tokens, 1)
    kernels, why = _kernels(lm, chosen.method, ids[: min(TRIED, length)])
    timed: list[InferenceTime] = []
    for turn, part in enumerate(PARTS if any(kernels.values()) else ()):
        told = context.within(turn / len(PARTS), 1 / len(PARTS)).progress
        timed.append(time_inference(lm, chosen.method, ids[: length // part], new_tokens, repeats, told))
    points, spread = {}, {}
    for name, phase in PHASES.items():
        mine = [(one.length, float(getattr(one, name).median)) for one in timed] if kernels[phase] else []
        points[name] = mine
        spread[name] = getattr(timed[-1], name).spread() if mine else None
    rows = [_row(one) for one in timed]
    about = {"kernel": "; ".join(filter(None, kernels.values())) or MASKED, "new_tokens": new_tokens}
    about |= {"dense_kernel": timed[-1].dense.kernel if timed else None, "repeats": repeats}
    numbers = {
        "kernels": kernels,
        "why": why,
        "rows": rows,
        "speedup": spread,
        "longer": points,
        "crossover": {name: crossover(mine) if mine else None for name, mine in points.items()},
        **{"method": chosen.name, "label": chosen.label, "settings": chosen.settings, "length": length},
        "reads_future": chosen.method.reads_future,
        "sentence": _sentence(chosen.label, kernels, spread, length),
        "protocol": protocol("time-method", lm, text, length, **about, processor=processor(str(lm.device))),
    }
    return Result(numbers, {"rows": pd.DataFrame(rows)})


@torch.no_grad()
def _kernels(lm: Model, method: Method, ids: np.ndarray) -> tuple[dict, dict]:
    """What computes a prompt and a token after it, and why: a phase in which any layer is a masked pass has none."""
    tokens = torch.as_tensor(ids).long()[None].to(lm.device)
    with apply(lm, method, kernels=True):
        cache = method.cache(lm.lm)
        kept = past_of(lm.lm(input_ids=tokens, **as_past(lm.lm, cache), use_cache=True))
        lm.lm(input_ids=tokens[:, -1:], **as_past(lm.lm, kept), use_cache=True)
        found = ran(lm)
    kernels, why = {}, {}
    for name, phase in PHASES.items():
        mine = [entry for entry in found if entry.phase == OF[name]]
        masked = next((entry for entry in mine if entry.kernel == MASKED), None)
        kernels[phase] = None if masked else "; ".join(dict.fromkeys(entry.kernel for entry in mine)) or None
        why[phase] = (masked or mine[-1]).why if mine else WHY
    return kernels, why


def _row(one: InferenceTime) -> dict:
    row = {"length": one.length}
    for name, phase in PHASES.items():
        row |= {f"{phase}_dense_ms": getattr(one.dense, name).median * 1e3}
        row |= {f"{phase}_sparse_ms": getattr(one.sparse, name).median * 1e3}
    return row


def _sentence(label: str, kernels: dict, spread: dict, length: int) -> str:
    said = [
        f"{'the prompt' if phase == 'prompt' else 'each further token'} at {spread[name]['median']:.2f} times dense "
        f"speed ({spread[name]['low']:.2f} to {spread[name]['high']:.2f})"
        for name, phase in PHASES.items()
        if spread[name]
    ]
    missing = [phase for phase in PHASES.values() if not kernels[phase]]
    if not said:
        return f"{label} has no kernel here, so no speed of it was measured."
    none = f"; no kernel here for {'the prompt' if missing == ['prompt'] else 'a token after it'}" if missing else ""
    return f"{label} at {length:,} tokens: {', '.join(said)}{none}."


def route_time(
    model: str = "demo",
    text: str = "",
    router: str = "gwr_linear",
    visited: int = 2,
    length: int | None = None,
    new_tokens: int = 32,
    repeats: int = 5,
    *,
    context: Context,
) -> Result:
    """Time `new_tokens` greedy tokens after a prompt of `length` tokens (default: all that fits the model) with the
    method `bucket_routing` and its stored routers, against the same model dense.

    `text` (hash, default: the bundled story) is repeated where the prompt is longer. numbers: `rows` (`side prefill_ms
    ms_per_token kernel`), `speedup` (`prefill`, `per_token`: `median low high`), `step_parts` (ms of one token),
    `length`, `sentence`, `notes`. Errors: BadSetting, NotFitted, TooLarge.
    """
    check_range("The number of new tokens", new_tokens, 2, MOST_NEW)
    check_range("The number of rounds", repeats, 1, 100)
    lm = context.model(model)
    length = lm.max_positions - new_tokens if length is None else length
    check_range("The length of the prompt", length, 2, lm.max_positions - new_tokens)
    state = state_for(context, lm)
    if not 1 <= visited <= state.settings.buckets:
        raise BadSetting(f"{visited:,} buckets were to be visited: choose 1 to {state.settings.buckets:,}.")
    method = METHODS["bucket_routing"].build(state, router=router, visited=visited)
    method.check(lm.lm)
    check_model_memory(lm, length, new_tokens, 1)
    key = text or context.add_text(*sample_texts()["story"])
    ids = np.resize(read(context, lm, key).tokens.ids, length)
    timed = time_inference(lm, method, ids, new_tokens, repeats, context.progress)
    sides = {"dense": timed.dense, "bucket routing": timed.sparse}
    rows = [
        {"side": name, "kernel": side.kernel}
        | {"prefill_ms": side.prefill.median * 1e3, "ms_per_token": side.per_token.median * 1e3}
        for name, side in sides.items()
    ]
    step = timed.per_token.spread()
    about = {"kernel": timed.sparse.kernel, "dense_kernel": timed.dense.kernel, "repeats": repeats}
    about |= {"new_tokens": new_tokens, "settings": {"router": router, "visited": visited}}
    about |= {"routers": asdict(state.settings), "processor": processor(str(lm.device))}
    numbers = {
        "rows": rows,
        "speedup": {"prefill": timed.prefill.spread(), "per_token": step},
        "step_parts": {name: seconds * 1e3 for name, seconds in timed.step_parts.items()},
        "length": length,
        "sentence": f"After {length:,} tokens, one more takes {rows[1]['ms_per_token']:.1f} ms with {NAMES[router]} "
        f"and {visited:,} of {state.settings.buckets:,} buckets, dense {rows[0]['ms_per_token']:.1f} ms: "
        f"{step['median']:.2f} times as fast (rounds {step['low']:.2f} to {step['high']:.2f}).",
        "notes": ["A prompt is a masked pass, which saves nothing: only tokens after it gather what they visit."],
        "protocol": protocol("route-time", lm, key, length, **about),
    }
    return Result(numbers, {"rows": pd.DataFrame(rows)})
