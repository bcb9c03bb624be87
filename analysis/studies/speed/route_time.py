"""What routing costs while a model writes: each further token timed with bucket routing and dense, in turns."""

from dataclasses import asdict

import numpy as np
import pandas as pd

from analysis.corpus import sample_texts
from analysis.errors import BadSetting
from analysis.inference import time_inference
from analysis.methods import METHODS
from analysis.runs import Result
from analysis.studies.context import Context, protocol, read
from analysis.studies.routing.rows import NAMES
from analysis.studies.routing.states import state_for
from analysis.studies.speed.launch import MOST_NEW
from analysis.studies.text.held_out import check_range
from analysis.timing import check_model_memory, processor


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
