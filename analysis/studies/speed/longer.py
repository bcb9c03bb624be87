"""From which length on sparse inference would win: attention measured at longer prompts, the rest of the model scaled.

A prompt's other work grows with its length and a token's does not. So a model that was timed at one length, with
attention alone timed at that length and at doubled ones, says where the two sides meet. It is an estimate, and only
made where dense wins.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...errors import TooLarge
from ...models import Model
from ...timing import AttentionTime, check_memory, crossover, time_attention
from ...timing.inference import InferenceTime, time_decode
from ..context import Context

LONGEST = 1 << 18  # tokens
PATIENCE = 15.0  # seconds that one more length may take
ROUNDS = 3
Pair = tuple[float, float]  # seconds of attention in one layer, (dense, sparse)


@dataclass(frozen=True)
class Longer:
    """Speed-ups from the prompt's length on, the first measured, the others estimated."""

    attention: AttentionTime | None  # alone, at the prompt's length; None when no layer ran a kernel
    layer: int | None  # the layer that it was timed in
    prompt: list[tuple[int, float]]  # (length, speed-up)
    token: list[tuple[int, float]]

    @property
    def crossovers(self) -> tuple[int | None, int | None]:
        """Lengths from which sparse wins the prompt and a token; None where it is none of those looked at."""
        return crossover(self.prompt), crossover(self.token)


def longer(model: Model, timed: InferenceTime, window: int, n_sink: int, repeats: int, context: Context) -> Longer:
    """Time attention alone with the memberships of the middle layer, then at doubled lengths until sparse wins.

    Beyond the prompt memberships are random: no text is that long.
    """
    plans = {e.layer: e.plan for e in timed.ran if e.phase == "prefill" and e.plan is not None}
    prompt, token = ([(timed.length, speed.median)] for speed in (timed.prefill, timed.per_token))
    if not plans:
        return Longer(None, None, prompt, token)
    layer = sorted(plans)[len(plans) // 2]
    members = plans[layer].members[0]
    sizes = {"heads": model.num_heads, "head_dim": model.head_dim, "groups": members.shape[1], "window": window}
    sizes |= {"k": int(members.sum(1).max()), "dtype": str(model.dtype)[6:], "kv_heads": model.num_kv_heads}
    sizes |= {"device": str(model.device)}

    def reports(began: float, phase: str, length: int) -> Callable[[float, str], None]:
        return context.within(began, 0.1, f"attention alone, {phase} of {length:,} tokens").progress

    def pair(measure: Callable, phase: str, length: int, **options: Any) -> Pair:
        check_memory(length, 1, model.num_heads, model.num_kv_heads, model.head_dim, str(model.device))
        measured = measure(length, progress=reports(0.85, phase, length), **sizes, **options)
        return measured.dense.median, measured.sparse.median

    progress = reports(0.75, "a prompt", timed.length)
    alone = time_attention(timed.length, repeats=repeats, members=members, progress=progress, **sizes)
    of_prompt = partial(pair, time_attention, "a prompt", repeats=ROUNDS)
    of_token = partial(pair, time_decode, "a token", repeats=5 * ROUNDS, n_sink=n_sink)
    sides, count = (timed.dense, timed.sparse), len(plans)
    if prompt[0][1] <= 1:
        first = alone.dense.median, alone.sparse.median
        prompt += _doubled(timed.length, count, tuple(s.prefill.median for s in sides), first, of_prompt, 1)
    if token[0][1] <= 1:
        first = of_token(timed.length)
        token += _doubled(timed.length, count, tuple(s.per_token.median for s in sides), first, of_token, 0)
    return Longer(alone, layer, prompt, token)


def _doubled(
    length: int, layers: int, model_seconds: Pair, attention: Pair, measure: Callable[[int], Pair], grows: int
) -> list[tuple[int, float]]:
    """(length, estimated speed-up) at doubled lengths until it passes 1, or the next would take too long.

    `model_seconds` of the model at `length`, dense and sparse; `attention` those of one of its `layers`; the rest of
    the model grows with the length to the power `grows`.
    """
    elsewhere = [
        max(0.0, all_of_it - layers * in_layer) for all_of_it, in_layer in zip(model_seconds, attention, strict=True)
    ]
    points, reached = [], length
    while (not points or points[-1][1] <= 1) and 2 * reached <= LONGEST:
        if max(attention) * 4 * 2 * (ROUNDS + 2) > PATIENCE:
            break
        reached *= 2
        try:
            attention = measure(reached)
        except TooLarge:
            break
        dense, sparse = (
            r * (reached / length) ** grows + layers * a for r, a in zip(elsewhere, attention, strict=True)
        )
        points.append((reached, dense / sparse))
    return points
