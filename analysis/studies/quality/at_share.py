"""One budget for methods that decide at the end of a prompt: the share of the KV cache that is kept, or of the blocks
that are read."""

from collections.abc import Callable

from torch import Tensor

from ...errors import BadSetting
from ...methods import METHODS
from ...models import Model
from ..context import Context
from ..ready.candidates import FAMILIES, Candidate, candidates
from .equal_budget import nearest
from .following import NOTHING, follow

STEPS = 100  # of `at_step`


def at_budget(
    context: Context, lm: Model, window: Tensor, prefix: int, share: float
) -> Callable[[Candidate], Candidate]:
    """A function that sets a method so that it keeps, or reads, the `share` of what dense attention does of the first
    `prefix` tokens of `window`, as near as its steps come. Errors: BadSetting for a method without such steps."""
    prompt = window[: prefix + 2]  # two tokens after the prefix, the fewest that `follow` scores
    dense_bytes = follow(lm, METHODS["dense"](), prompt, prefix, NOTHING).kv_bytes

    def set_to_share(candidate: Candidate) -> Candidate:
        if candidate.method.saves == "reads":
            raise BadSetting(
                f"{candidate.label} neither drops keys nor reads blocks: give it its budget with `equal-budget`."
            )
        changed = {name: v for name, v in candidate.settings.items() if v != candidate.defaults[name]}
        tried: dict[int, Candidate] = {}

        def share_at(step: int) -> float:
            context.progress(1 - 0.8 ** len(tried), f"{candidate.method.title}: looking for {share:.0%}")
            spec = {"name": candidate.name, "settings": changed | type(candidate.method).at_step(step)}
            tried[step] = candidates(context, lm, [spec], FAMILIES)[0]
            continued = follow(lm, tried[step].method, prompt, prefix, NOTHING)
            return continued.kv_bytes / dense_bytes if continued.blocks is None else continued.blocks

        return tried[nearest(share_at, 1, STEPS, share, max(1, round(STEPS * share)))]

    return set_to_share
