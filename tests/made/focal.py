"""Hand-made arms of the studies of Focal Attention, as training leaves them."""

import numpy as np

from lab.focal.arms import SHARES, Arm, Pooled

WINDOWS = 16


def pooled(
    arm: Arm, loss: float, windows: int = WINDOWS, parameters: int = 1000, step: float = 0.4, seeds: int = 3
) -> Pooled:
    """An arm that ends at `loss` and was `step` higher a quarter of the tokens before, wobbling from window to
    window."""
    wobble = [0.001 * (at % 3 - 1) for at in range(windows)]
    parts = []
    for seed in range(seeds):
        checkpoints = [
            {"tokens": round(4000 * share), "means": [loss + 4 * step * (1 - share) + w + 0.01 * seed for w in wobble]}
            for share in ((1.0,) if arm.further else SHARES)
        ]
        part = {"parameters": parameters, "checkpoints": checkpoints, "gains": 1.1 if arm.norm else None, "seconds": 1}
        part["temperature"] = [0.5, 0.7] if arm.limits else None
        part["curve"] = [{"step": 20, "loss": loss + 1}, {"step": 40, "loss": loss}]
        parts.append(part)
    return Pooled(arm, parts, np.arange(windows) // 2)


def several(losses: dict[Arm, float]) -> dict[Arm, Pooled]:
    """Arms and where they end."""
    return {arm: pooled(arm, loss) for arm, loss in losses.items()}


def told(module, *found) -> dict:
    """What a study of Focal Attention stores of hand-made arms, and how it is told and drawn."""
    seeds = len(next(iter(found[0].values())).parts)
    numbers = module.numbers(*found) | {"protocol": {"unit": "documents", "units": WINDOWS // 2, "seeds": seeds}}
    return module.shown(numbers) | numbers
