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
from ...timing import AttentionTime, Compared, crossover, time_attention
from ...timing.inference import SPEEDUPS, InferenceTime, time_decode
from ...timing.memory import check_memory
from ..context import Context

LONGEST = 1 << 18  # tokens
# Seconds that one more length may take.
PATIENCE = 15.0
ROUNDS = 3
# Seconds of attention in one layer, (dense, sparse).
Pair = tuple[float, float]
Points = list[tuple[int, float]]  # (length, speed-up)


@dataclass(frozen=True)
class Longer:
    """`points` of prefill and per_token from the prompt's length on, the first measured, the others estimated;
    `attention` alone at the prompt's length and the `layer` that it was timed in, None when no layer ran a kernel."""

    points: dict[str, Points]
    attention: AttentionTime | None = None
    layer: int | None = None

    @property
    def crossovers(self) -> dict[str, int | None]:
        """Lengths from which sparse wins; None where it is none of those looked at."""
        return {phase: crossover(points) for phase, points in self.points.items()}


def longer(model: Model, timed: InferenceTime, window: int, n_sink: int, repeats: int, context: Context) -> Longer:
    """Time attention alone with the memberships of the middle layer, then at doubled lengths until sparse wins.

    Beyond the prompt memberships are random: no text is that long.
    """
    points: dict[str, Points] = {phase: [(timed.length, getattr(timed, phase).median)] for phase in SPEEDUPS}
    plans = {entry.layer: entry.plan for entry in timed.ran if entry.phase == "prefill" and entry.plan is not None}
    if not plans:
        return Longer(points)
    layer = sorted(plans)[len(plans) // 2]
    members = plans[layer].members[0]
    sizes: dict[str, Any] = {"heads": model.num_heads, "head_dim": model.head_dim, "kv_heads": model.num_kv_heads}
    sizes |= {"groups": members.shape[1], "k": int(members.sum(1).max()), "window": window}
    sizes |= {"dtype": str(model.dtype)[6:], "device": str(model.device)}
    report = context.within(0.75, 0.1, "attention alone").progress
    alone = time_attention(timed.length, repeats=repeats, members=members, progress=report, **sizes)
    measures: dict[str, Callable[..., Compared]] = {"prefill": partial(time_attention, repeats=ROUNDS)}
    measures["per_token"] = partial(time_decode, repeats=5 * ROUNDS, n_sink=n_sink)
    for phase, measure in measures.items():

        def pair(length: int, phase: str = phase, measure: Callable = measure) -> Pair:
            heads = model.num_heads, model.num_kv_heads, model.head_dim
            check_memory(length, 1, *heads, str(model.device), str(model.dtype)[6:])
            report = context.within(0.85, 0.1, f"attention alone, {phase} at {length:,} tokens").progress
            measured = measure(length, progress=report, **sizes)
            return measured.dense.median, measured.sparse.median

        if points[phase][0][1] <= 1:
            prefill = phase == "prefill"
            first = (alone.dense.median, alone.sparse.median) if prefill else pair(timed.length)
            model_seconds = tuple(getattr(side, SPEEDUPS[phase])["median"] / 1e3 for side in timed.sides)
            points[phase] += _doubled(timed.length, len(plans), model_seconds, first, pair, int(prefill))
    return Longer(points, alone, layer)


def _doubled(
    length: int, layers: int, model_seconds: Pair, attention: Pair, measure: Callable[[int], Pair], grows: int
) -> Points:
    """(length, estimated speed-up) at doubled lengths until it passes 1, or the next would take too long.

    `model_seconds` of the model at `length`, dense and sparse; `attention` those of one of its `layers`; the rest of
    the model grows with the length to the power `grows`.
    """
    elsewhere = [max(0.0, a - layers * b) for a, b in zip(model_seconds, attention, strict=True)]
    points: Points = []
    reached = length
    while (not points or points[-1][1] <= 1) and 2 * reached <= LONGEST:
        if max(attention) * 4 * 2 * (ROUNDS + 2) > PATIENCE:
            break
        reached *= 2
        try:
            attention = measure(reached)
        except TooLarge:
            break
        factor = (reached / length) ** grows
        dense, sparse = (rest * factor + layers * inside for rest, inside in zip(elsewhere, attention, strict=True))
        points.append((reached, dense / sparse))
    return points
