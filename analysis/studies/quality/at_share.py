"""One budget for methods that decide at the end of a prompt: the share of the KV cache that is kept, or of the blocks
that are read."""

from collections.abc import Callable

from torch import Tensor

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.models import Model
from analysis.studies.context import Context
from analysis.studies.quality.equal_budget import nearest
from analysis.studies.quality.following import NOTHING, follow
from analysis.studies.ready.candidates import FAMILIES, Candidate, candidates

STEPS = 100  # of `at_step`


def at_budget(
    context: Context, lm: Model, window: Tensor, prefix: int, share: float
) -> Callable[[Candidate], Candidate]:
    """A function that sets a method so that it keeps, or reads, the `share` of what dense attention does of the first
    `prefix` tokens of `window`, as near as its steps come. Errors: BadSetting for a method without such steps."""
    whole = follow(lm, METHODS["dense"](), window[: prefix + 2], prefix, NOTHING).kv_bytes

    def settled(one: Candidate) -> Candidate:
        if one.method.saves == "reads":
            raise BadSetting(
                f"{one.label} neither drops keys nor reads blocks: give it its budget with `equal-budget`."
            )
        seen = {}

        def kept(step: int) -> float:
            context.progress(1 - 0.8 ** len(seen), f"{one.method.title}: looking for {share:.0%}")
            seen[step] = _at(context, lm, one, step)
            found = follow(lm, seen[step].method, window[: prefix + 2], prefix, NOTHING)
            return found.kv_bytes / whole if found.blocks is None else found.blocks

        return seen[nearest(kept, 1, STEPS, share, max(1, round(STEPS * share)))]

    return settled


def _at(context: Context, lm: Model, one: Candidate, step: int) -> Candidate:
    """The method at a step, its other settings as they were."""
    changed = {name: value for name, value in one.settings.items() if value != one.defaults[name]}
    asked = {"name": one.name, "settings": changed | type(one.method).at_step(step)}
    return candidates(context, lm, [asked], FAMILIES)[0]
