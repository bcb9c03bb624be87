"""Launch sparse inference: the model on a text, dense and with its learned groups, in turns."""

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

from ...answer import Worded, doc, record
from ...claims import speeds
from ...commands.speed import Launch
from ...errors import BadSetting, TooLarge
from ...kernels.merge import sink_pairs
from ...methods import METHODS
from ...methods.base import Method
from ...models import Model
from ...seam.attention import apply
from ...seam.calls import Ran
from ...timing import processor
from ...timing.inference import InferenceTime, SideTimes, time_inference
from ...timing.memory import check_model_memory
from ..context import Context, Reading, protocol, read
from ..groups.routers import router_facts, router_for
from ..text.text import numbered
from .longer import Longer, longer

# Tokens on which the kernels are held against the masked reference.
PREFIX = 1024
# Characters of the prompt that are shown.
END = 400


@record
class SameAsReference:
    """The last hidden states by the kernels beside those by masked blocks, on the beginning of the prompt."""

    cosine: float = doc("smallest cosine of a token")
    max_difference: float = doc("largest difference of a number")
    prefix: int = doc("tokens that were compared")


@record
class Launched(Worded, SameAsReference):
    """A model with sparse kernels beside itself dense. Speed-ups are dense by sparse, round by round."""

    rows: list[SideTimes] = doc("dense and sparse")
    speedup: dict = doc("prefill, per_token and attention alone: median low high; attention null without a kernel")
    attention_layer: int | None = doc("the layer whose attention was timed alone")
    retained: float | None = doc("share of the causal pairs that is read")
    bound: float | None = doc("largest speed-up of attention that this allows")
    parts: dict = doc("milliseconds of the parts of a prompt")
    step_parts: dict = doc("milliseconds of the parts of a token")
    text_dense: str = doc("text that dense attention wrote")
    text_sparse: str = doc("text that the sparse kernels wrote")
    prompt_end: str = doc("end of the prompt")
    first_difference: int | None = doc("index of the first new token in which the texts differ")
    dense_kernel: str = doc("the dense kernel that was timed, the fastest here")
    missing_kernels: list[str] = doc("dense kernels that cannot run here")
    crossover: dict = doc("lengths from which sparse wins prefill and per_token, estimated; null where it wins nowhere")
    longer: dict = doc("the (length, speed-up) points that this rests on")
    length: int = doc("tokens of the prompt")
    new_tokens: int = doc("tokens that were written")
    router: dict = doc("facts of the router")
    rounds: pd.DataFrame = doc("round side prefill_ms ms_per_token")
    kernels: pd.DataFrame = doc("layer phase kernel why calls")


def launch(request: Launch, *, context: Context) -> Launched:
    """Time to first token, time per token, memory and text of a model with Focus' sparse kernels, beside dense. Errors:
    TooLarge and BadSetting before anything runs."""
    lm, new_tokens = context.model(request.model), request.new_tokens
    reading = read(context, lm, request.text, "first")
    ids = _prompt(lm, reading, request.length, new_tokens)
    router = router_for(context, lm, request.router)[0]
    chosen = {"top": request.top or router.top, "window": request.window or router.window}
    chosen["n_sink"] = n_sink = router.n_sink if request.n_sink is None else request.n_sink
    method = METHODS["focus"].build(router, **chosen)
    method.check(lm.lm)
    check_model_memory(lm, len(ids), new_tokens, chosen["top"])
    timed = time_inference(lm, method, ids, new_tokens, request.repeats, context.within(0.05, 0.6).progress)
    context.progress(0.7, "the masked reference")
    agreement = _against_reference(lm, method, ids[:PREFIX])
    further = longer(lm, timed, chosen["window"], n_sink, request.repeats, context)
    alone, share = further.attention, retained(timed.ran, n_sink)
    speedup = {"prefill": timed.prefill.spread(), "per_token": timed.per_token.spread()}
    about = {"router": request.router, "settings": chosen, "new_tokens": new_tokens, "repeats": request.repeats}
    about |= {"kernel": timed.sparse.kernel, "dense_kernel": timed.dense.kernel, "processor": processor(str(lm.device))}
    kernels = pd.DataFrame([vars(entry) for entry in timed.ran], columns=["layer", "phase", "kernel", "why", "calls"])
    return Launched(
        rows=timed.sides,
        speedup=speedup | {"attention": alone.speedup.spread() if alone else None},
        attention_layer=None if further.layer is None else lm.layer_numbers[further.layer],
        retained=share,
        bound=share and 1 / share,
        parts={name: seconds * 1e3 for name, seconds in timed.parts.items()},
        step_parts={name: seconds * 1e3 for name, seconds in timed.step_parts.items()},
        text_dense=lm.tokenizer.decode(timed.tokens[0]),
        text_sparse=lm.tokenizer.decode(timed.tokens[1]),
        prompt_end=lm.tokenizer.decode(ids)[-END:],
        first_difference=first_difference(*timed.tokens),
        **vars(agreement),
        dense_kernel=timed.dense.kernel,
        missing_kernels=timed.missing,
        crossover=further.crossovers,
        longer=further.points,
        length=len(ids),
        new_tokens=new_tokens,
        router=router_facts(request.router, router),
        sentence=_sentence(timed, speedup, request.repeats, further, share, lm.max_positions),
        notes=_notes(reading, len(ids), timed.ran),
        rounds=timed.rounds,
        kernels=numbered(lm, kernels),
        protocol=protocol("launch", lm, request.text, len(ids), **about),
    )


def retained(entries: list[Ran], n_sink: int) -> float | None:
    """Share of the causal pairs that are read, over the layers that ran a kernel; None where none did."""
    plans = [entry.plan for entry in entries if entry.phase == "prefill" and entry.plan is not None]
    if not plans:
        return None
    batch, length = plans[0].members.shape[:2]
    pairs = sum(plan.pairs + sink_pairs(plan.members, plan.window, n_sink) for plan in plans)
    return pairs / (len(plans) * batch * length * (length + 1) / 2)


def first_difference(dense: list[int], sparse: list[int]) -> int | None:
    """Index of the first new token in which the two differ, or at which one has ended; None when all are equal."""
    apart = (index for index, pair in enumerate(zip(dense, sparse, strict=False)) if pair[0] != pair[1])
    return next(apart, None if len(dense) == len(sparse) else min(len(dense), len(sparse)))


def _prompt(model: Model, reading: Reading, length: int | None, new_tokens: int) -> np.ndarray:
    """The first tokens of the text. Refuses what cannot be run, with the numbers."""
    ids, room = reading.windows[0], model.max_positions - new_tokens
    if room < 2 or (length or 0) > room:
        raise TooLarge(
            f"{length or 2:,} tokens and {new_tokens:,} new ones are more than the {model.max_positions:,} that "
            f"{model.name} reads at once: choose at most {max(room, 0):,} tokens, or fewer new ones."
        )
    if length is not None and length > len(ids):
        raise BadSetting(
            f"A prompt of {length:,} tokens was asked for and the text gives {len(ids):,}: choose between 2 and that."
        )
    return ids[: length or room]


@torch.no_grad()
def _against_reference(model: Model, method: Method, ids: np.ndarray) -> SameAsReference:
    tokens, hidden = torch.as_tensor(ids).long()[None].to(model.device), []
    for kernels in (True, False):
        with apply(model, method, kernels=kernels):
            hidden.append(model.lm.base_model(input_ids=tokens, use_cache=False)[0][0].float())
    by_kernels, reference = hidden
    cosine = F.cosine_similarity(by_kernels, reference, dim=-1).min()
    return SameAsReference(float(cosine), float((by_kernels - reference).abs().max()), len(ids))


def _notes(reading: Reading, length: int, entries: list[Ran]) -> list[str]:
    notes = []
    if reading.tokens.total > length:
        notes.append(f"The text has {reading.tokens.total:,} tokens; the prompt is its first {length:,}.")
    masked: dict[str, set[int]] = {}  # why -> layers
    for entry in entries:
        if entry.plan is None and entry.kernel == "masked blocks":
            masked.setdefault(entry.why, set()).add(entry.layer)
    for why, layers in masked.items():
        notes.append(f"{len(layers)} of the layers ran the masked reference instead of a kernel: {why}")
    return notes


def _sentence(
    timed: InferenceTime, speedup: dict, rounds: int, further: Longer, share: float | None, longest: int
) -> str:
    if further.attention is None or share is None:
        return f"No kernel could run here, so nothing is gained. {speeds(speedup, rounds)}"
    alone = f"attention alone {further.attention.speedup.median:.2f}x, bound {1 / share:.2f}x"
    said = f"{speeds(speedup, rounds)} At {timed.length:,} tokens: {alone}"
    lost = []
    for (phase, points), what in zip(further.points.items(), ("the prompt", "a token"), strict=True):
        # dense wins at the length of the prompt
        if points[0][1] <= 1:
            lost.append(f"for {what} {meeting(further.crossovers[phase], points[-1][0], longest)}")
    return f"{said}; estimated crossover {' and '.join(lost)}." if lost else f"{said}."


def meeting(crossover: int | None, looked: int, longest: int) -> str:
    """Where two speeds meet: near a length, or beyond the longest one that was looked at or that the model reads."""
    if (looked if crossover is None else crossover) > longest:
        return f"beyond the {longest:,} tokens that the model reads"
    if crossover is None:
        return f"beyond {looked:,} tokens"
    return f"near {round(crossover, 2 - len(str(crossover))):,} tokens"
