"""Hand-made arms of the studies of Focal Attention, as training leaves them."""

import numpy as np

from lab.focal.arms import SHARES, Arm, Pooled

WINDOWS = 16


def pooled(
    arm: Arm, loss: float, windows: int = WINDOWS, parameters: int = 1000, step: float = 0.4, seeds: int = 3
) -> Pooled:
    """An arm that ends at `loss` and was `step` higher a quarter of the tokens before, wobbling from window to
    window."""
    wobble = [0.001 * (number % 3 - 1) for number in range(windows)]
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


def concluded(study, trained: dict[Arm, Pooled]) -> dict:
    """What a study of Focal Attention stores of hand-made arms, and how it is shown."""
    seeds = len(next(iter(trained.values())).parts)
    protocol = {"unit": "documents", "units": WINDOWS // 2, "seeds": seeds}
    numbers = study.numbers(trained) | {"protocol": protocol}
    return study.shown(numbers) | numbers
