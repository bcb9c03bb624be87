"""Launch sparse inference: the model on a text, dense and with its learned groups, in turns, with everything said."""

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

from analysis.errors import BadSetting, TooLarge
from analysis.kernels.merge import sink_pairs
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.models import Model
from analysis.runs import Result
from analysis.seam.attention import apply
from analysis.seam.calls import Ran
from analysis.studies.context import Context, Reading, protocol, read
from analysis.studies.groups.routers import router_facts, router_for
from analysis.studies.speed.longer import Longer, longer
from analysis.timing import Timing, check_model_memory, processor
from analysis.timing.inference import InferenceTime, Side, time_inference

PREFIX = 1024  # tokens on which the kernels are held against the masked reference
MOST_NEW, MOST_ROUNDS = 1024, 50
END = 400  # characters of the prompt that are shown


def launch(
    model: str = "demo",
    text: str = "",
    router: str = "k8-top1",
    top: int | None = None,
    window: int | None = None,
    n_sink: int | None = None,
    new_tokens: int = 32,
    length: int | None = None,
    repeats: int = 5,
    long_text: str = "first",
    *,
    context: Context,
) -> Result:
    """Time to first token, time per token, memory and text of a model with Focus' sparse kernels, beside dense.

    The prompt is the first `length` tokens of the text (as many as fit unless given); `top`, `window` and `n_sink`
    are the router's unless given. numbers: `rows` of both sides; `speedup` (dense by sparse, round by round) of the
    prompt, of a token and of attention alone, in the layer `attention_layer`; `retained` pairs and `bound`; `parts` and
    `step_parts` in ms; both texts with `first_difference`; `cosine` and `max_difference` of the last hidden states to
    the masked reference on a prefix; `crossover` lengths, estimated in `longer`. tables: `rounds`, `kernels`.
    Errors: TooLarge and BadSetting before anything runs.
    """
    lm = context.model(model)
    reading = read(context, lm, text, "first" if long_text == "windows" else long_text)
    ids = _prompt(lm, reading, length, new_tokens, repeats)
    made = router_for(context, lm, router)[0]
    chosen = {"top": top or made.top, "window": window or made.window}
    chosen["n_sink"] = n_sink = made.n_sink if n_sink is None else n_sink
    method = METHODS["focus"].build(made, **chosen)
    method.check(lm.lm)
    check_model_memory(lm, len(ids), new_tokens, method.top)
    timed = time_inference(lm, method, ids, new_tokens, repeats, context.within(0.05, 0.6).progress)
    context.progress(0.7, "the masked reference")
    same = _against_reference(lm, method, ids[:PREFIX])
    further = longer(lm, timed, chosen["window"], n_sink, repeats, context)
    alone, share = further.attention, retained(timed.ran, n_sink)
    about = {"router": router, "settings": chosen, "new_tokens": new_tokens, "repeats": repeats}
    about |= {"kernel": timed.sparse.kernel, "dense_kernel": timed.dense.kernel, "processor": processor(str(lm.device))}
    texts = {side: lm.tokenizer.decode(getattr(timed, side).tokens) for side in ("dense", "sparse")}
    numbers = {
        "rows": [_row(side, getattr(timed, side)) for side in ("dense", "sparse")],
        "speedup": {
            "prefill": timed.prefill.spread(),
            "per_token": timed.per_token.spread(),
            "attention": alone.speedup.spread() if alone else None,
        },
        **{"attention_layer": further.layer, "retained": share, "bound": share and 1 / share},
        "parts": {name: seconds * 1e3 for name, seconds in timed.parts.items()},
        "step_parts": {name: seconds * 1e3 for name, seconds in timed.step_parts.items()},
        **{"text_dense": texts["dense"], "text_sparse": texts["sparse"], "prompt_end": lm.tokenizer.decode(ids)[-END:]},
        "first_difference": first_difference(timed.dense.tokens, timed.sparse.tokens),
        **same,
        **{"dense_kernel": timed.dense.kernel, "missing_kernels": timed.missing},
        "crossover": dict(zip(("prefill", "per_token"), further.crossovers, strict=True)),
        "longer": {"prefill": further.prompt, "per_token": further.token},
        **{"length": len(ids), "new_tokens": new_tokens, "router": router_facts(router, made)},
        "sentence": _sentence(timed, further, share, lm.max_positions),
        "notes": _notes(reading, len(ids), timed.ran),
        "protocol": protocol("launch", lm, text, len(ids), **about),
    }
    return Result(numbers, {"rounds": _rounds(timed), "kernels": kernels_table(timed.ran)})


def retained(found: list[Ran], n_sink: int) -> float | None:
    """Share of the causal pairs that are read, over the layers that ran a kernel; None where none did."""
    plans = [entry.plan for entry in found if entry.phase == "prefill" and entry.plan is not None]
    if not plans:
        return None
    batch, length = plans[0].members.shape[:2]
    pairs = sum(plan.pairs + sink_pairs(plan.members, plan.window, n_sink) for plan in plans)
    return pairs / (len(plans) * batch * length * (length + 1) / 2)


def first_difference(dense: list[int], sparse: list[int]) -> int | None:
    """Index of the first new token in which the two differ, or at which one has ended; None when all are equal."""
    apart = (at for at, pair in enumerate(zip(dense, sparse, strict=False)) if pair[0] != pair[1])
    return next(apart, None if len(dense) == len(sparse) else min(len(dense), len(sparse)))


def kernels_table(found: list[Ran]) -> pd.DataFrame:
    """One row per layer, phase and kernel: `layer phase kernel why calls`."""
    columns = ["layer", "phase", "kernel", "why", "calls"]
    return pd.DataFrame([[getattr(entry, name) for name in columns] for entry in found], columns=columns)


def _prompt(model: Model, reading: Reading, length: int | None, new_tokens: int, repeats: int) -> np.ndarray:
    """The first tokens of the text. Refuses what cannot be run, with the numbers."""
    for name, value, low, high in (("new tokens", new_tokens, 2, MOST_NEW), ("rounds", repeats, 1, MOST_ROUNDS)):
        if not low <= value <= high:
            raise BadSetting(f"{value:,} {name} were asked for: choose between {low} and {high:,}.")
    ids, room = reading.windows[0], model.max_positions - new_tokens
    if room < 2 or (length or 0) > room:
        raise TooLarge(
            f"{length or 2:,} tokens and {new_tokens:,} new ones are more than the {model.max_positions:,} that "
            f"{model.name} reads at once: choose at most {max(room, 0):,} tokens, or fewer new ones."
        )
    if length is not None and not 2 <= length <= len(ids):
        raise BadSetting(
            f"A prompt of {length:,} tokens was asked for and the text gives {len(ids):,}: choose between 2 and that."
        )
    return ids[: length or room]


@torch.no_grad()
def _against_reference(model: Model, method: Method, ids: np.ndarray) -> dict:
    """Cosine (the smallest of a token) and largest difference of the last hidden states, kernels to masked blocks."""
    tokens, found = torch.as_tensor(ids).long()[None].to(model.device), []
    for kernels in (True, False):
        with apply(model, method, kernels=kernels):
            found.append(model.lm.base_model(input_ids=tokens, use_cache=False)[0][0].float())
    mine, reference = found
    return {
        "cosine": float(F.cosine_similarity(mine, reference, dim=-1).min()),
        "max_difference": float((mine - reference).abs().max()),
        "prefix": len(ids),
    }


def _row(name: str, side: Side) -> dict:
    return {
        **{"side": name, "kernel": side.kernel},
        **{"prefill_ms": side.prefill.spread(1e3), "ms_per_token": side.per_token.spread(1e3)},
        **{"tokens_per_second": side.tokens_per_second, "kv_bytes": side.kv_bytes},
        **{"kv_bytes_read_per_step": side.kv_bytes_read, "peak_bytes": side.peak_bytes},
    }


def _rounds(timed: InferenceTime) -> pd.DataFrame:
    rows = [
        {"round": at, "side": name, "prefill_ms": prompt * 1e3, "ms_per_token": token * 1e3}
        for name, side in (("dense", timed.dense), ("sparse", timed.sparse))
        for at, (prompt, token) in enumerate(zip(side.prefill.seconds, side.per_token.seconds, strict=True))
    ]
    return pd.DataFrame(rows)


def _notes(reading: Reading, length: int, found: list[Ran]) -> list[str]:
    said = []
    if reading.tokens.total > length:
        said.append(f"The text has {reading.tokens.total:,} tokens; the prompt is its first {length:,}.")
    masked = [entry for entry in found if entry.plan is None and entry.kernel == "masked blocks"]
    for why in dict.fromkeys(entry.why for entry in masked):
        layers = sorted({entry.layer for entry in masked if entry.why == why})
        said.append(f"{len(layers)} of the layers ran the masked reference instead of a kernel: {why}")
    return said


def verdict(prompt: Timing, token: Timing) -> str:
    """Who wins the prompt and each further token: nobody does where rounds fell on both sides of dense speed."""
    sides = [
        "sparse wins" if speed.low > 1 else "dense wins" if speed.high < 1 else "no clear winner"
        for speed in (prompt, token)
    ]
    if sides[0] == sides[1]:
        return f"{sides[0].capitalize()} here"
    return f"The prompt: {sides[0]}; a token: {sides[1]}; here"


def _sentence(timed: InferenceTime, further: Longer, share: float | None, most: int) -> str:
    prompt, token, alone = timed.prefill.median, timed.per_token.median, further.attention
    said = f"the first token comes at {prompt:.2f} times dense speed and each further one at {token:.2f} times"
    if alone is None:
        return f"No kernel could run here, so nothing is gained: {said}."
    said = (
        f"{verdict(timed.prefill, timed.per_token)}, at {timed.length:,} tokens: {said} "
        f"(attention alone {alone.speedup.median:.2f}, bound {1 / share:.2f})"
    )
    lost = [
        f"for {what} {meeting(at, points[-1][0], most)}"
        for what, at, points in zip(
            ("the prompt", "a token"), further.crossovers, (further.prompt, further.token), strict=True
        )
        if points[0][1] <= 1
    ]
    return f"{said}; estimated crossover {' and '.join(lost)}." if lost else f"{said}."


def meeting(crossover: int | None, looked: int, most: int) -> str:
    """Where two speeds meet: near a length, or beyond the longest one that was looked at or that the model reads."""
    if (looked if crossover is None else crossover) > most:
        return f"beyond the {most:,} tokens that the model reads"
    if crossover is None:
        return f"beyond {looked:,} tokens"
    return f"near {round(crossover, 2 - len(str(crossover))):,} tokens"
