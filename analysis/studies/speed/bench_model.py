"""The whole-model half of `bench`: a model by length of its prompt, and one decode step of attention by length."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import torch

from analysis.corpus import sample_texts
from analysis.errors import BadSetting, TooLarge
from analysis.inference import InferenceTime, time_decode, time_inference
from analysis.methods import METHODS
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import Context, made_on, protocol, read
from analysis.studies.groups.routers import router_for
from analysis.studies.speed.launch import MOST_NEW, retained
from analysis.timing import check_memory, check_model_memory, crossover, processor

Members = Callable[[int, int], torch.Tensor]  # (length, seed) -> bool [T, K]


def bench_inference(
    model: str,
    text: str,
    router: str,
    lengths: list[int] | None,
    window: int,
    new_tokens: int,
    repeats: int,
    context: Context,
) -> Result:
    """Time a model with Focus against itself dense, prompt and tokens apart, at several lengths of the prompt.

    The text (the bundled story unless given) is repeated where a prompt is longer. As `bench`, where `dense_ms`,
    `sparse_ms` and `speedup` are of the prompt; `prefill_ms`, `ms_per_token`, `kv_bytes` of both sides beside.
    """
    lm = context.model(model)
    lengths = _lengths(lm, lengths, new_tokens)
    key = text or context.add_text(*sample_texts()["story"])
    ids = read(context, lm, key).tokens.ids
    made = router_for(context, lm, router)[0]
    method = METHODS["focus"].build(made, window=window)
    for length in lengths:
        check_model_memory(lm, length, new_tokens, method.top)
    rows, missing = [], []
    for index, length in enumerate(lengths):

        def progress(done: float, stage: str, index: int = index, length: int = length) -> None:
            context.progress((index + done) / len(lengths), f"{length:,} tokens, {stage}")

        timed = time_inference(lm, method, np.resize(ids, length), new_tokens, repeats, progress)
        rows.append(_row(timed, str(lm.dtype)[6:], method.n_sink))
        missing = timed.missing
    said = {"router": router, "settings": {"top": method.top, "window": window, "n_sink": method.n_sink}}
    said |= {"kernel": rows[-1]["kernel"], "dense_kernel": rows[-1]["dense_kernel"], "what": "inference"}
    about = protocol(
        "bench", lm, key, len(ids), **said, new_tokens=new_tokens, repeats=repeats, processor=processor(str(lm.device))
    )
    return _result(rows, missing, "the prompt", about)


def bench_decode(
    lengths: list[int], shape: dict, members: Members, about: dict, repeats: int, device: str, context: Context
) -> Result:
    """Time one decode step of attention at several lengths of the KV cache; rows as `bench`.

    `shape`: heads, head_dim, kv_heads, dtype, window, seed; `members` makes memberships of a length, and `about` says
    which: groups, top and where they come from.
    """
    rows = []
    for length in lengths:
        check_memory(length, 1, shape["heads"], shape["kv_heads"], shape["head_dim"], device)
    for index, length in enumerate(lengths):
        context.progress(index / len(lengths), f"one token after {length:,}")
        given = {"members": members(length, shape["seed"] * 1000), "device": device, "repeats": 4 * repeats}
        timed = time_decode(length, groups=about["groups"], k=about["top"], **given, **shape)
        kernels = {"dtype": timed.dtype, "kernel": timed.kernel, "dense_kernel": timed.dense_kernel}
        times = {"dense_ms": timed.dense.median * 1e3, "sparse_ms": timed.sparse.median * 1e3}
        spread = {"speedup": timed.speedup.median, "speedup_low": timed.speedup.low, "speedup_high": timed.speedup.high}
        bound = {"bound": timed.bound, "retained": 1 / timed.bound}
        read_bytes = {"dense_bytes": timed.dense_bytes, "sparse_bytes": timed.sparse_bytes}
        rows.append({"length": length, "batch": 1, **kernels, **times, **spread, **bound, **read_bytes})
    nothing = {"verb": "bench", "what": "decode", "model": None, "revision": None, "text": None}
    said = {"device": device, "kernel": rows[-1]["kernel"], "dense_kernel": rows[-1]["dense_kernel"]}
    made = made_on(**nothing | about | shape | said, repeats=4 * repeats, processor=processor(device))
    return _result(rows, [], "a token", made)


def _lengths(model: Model, lengths: list[int] | None, new_tokens: int) -> list[int]:
    """The prompts to time, checked: a quarter, half and all of what the model reads at once, unless given."""
    most = model.max_positions - new_tokens
    if not 2 <= new_tokens <= min(MOST_NEW, model.max_positions - 2):
        raise BadSetting(f"{new_tokens:,} new tokens were asked for: choose between 2 and {MOST_NEW:,}.")
    lengths = sorted(set(lengths or (max(2, most // 4), max(2, most // 2), most)))
    if lengths[0] < 2:
        raise BadSetting(f"A prompt of {lengths[0]} tokens was asked for: choose 2 or more.")
    if lengths[-1] > most:
        raise TooLarge(
            f"{lengths[-1]:,} tokens and {new_tokens:,} new ones are more than the {model.max_positions:,} that "
            f"{model.name} reads at once: choose at most {most:,} tokens."
        )
    return lengths


def _row(timed: InferenceTime, dtype: str, n_sink: int) -> dict:
    share, sides = retained(timed.ran, n_sink), {"dense": timed.dense, "sparse": timed.sparse}
    times = {
        "prefill_ms": {name: side.prefill.median * 1e3 for name, side in sides.items()},
        "ms_per_token": {name: side.per_token.median * 1e3 for name, side in sides.items()},
    }
    return {
        **{"length": timed.length, "batch": 1, "dtype": dtype, "kernel": timed.sparse.kernel},
        **{"dense_kernel": timed.dense.kernel, "dense_ms": times["prefill_ms"]["dense"]},
        **{"sparse_ms": times["prefill_ms"]["sparse"], "speedup": timed.prefill.median},
        **{"speedup_low": timed.prefill.low, "speedup_high": timed.prefill.high},
        **{"speedup_per_token": timed.per_token.median, "bound": share and 1 / share, "retained": share},
        **times,
        "kv_bytes": {name: side.kv_bytes for name, side in sides.items()},
        "kv_bytes_read_per_step": {name: side.kv_bytes_read for name, side in sides.items()},
    }


def _result(rows: list[dict], missing: list[str], what: str, about: dict) -> Result:
    where, last = crossover([(row["length"], row["speedup"]) for row in rows]), rows[-1]
    at = f"{what} {last['speedup']:.2f} times as fast as dense at {last['length']:,} tokens"
    if where is None:
        said = f"Dense wins at every length measured: {at}."
    elif where == rows[0]["length"]:
        said = f"Sparse wins at every length measured: {at}."
    else:
        said = f"Dense wins below about {where:,} tokens; {at}."
    numbers = {"rows": rows, "crossover": where, "missing": missing, "sentence": said, "protocol": about}
    return Result(numbers, {"curve": pd.json_normalize(rows, sep="_")})
