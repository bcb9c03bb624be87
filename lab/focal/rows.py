"""What came out of training with a temperature: all seeds together, against dense training, and drawn."""

from collections import defaultdict

import numpy as np

from analysis.claims import Comparison
from analysis.studies.stored import panels
from analysis.studies.stored.comparisons import difference, interval_caveat, lowest_highest
from analysis.studies.stored.panels import of_rows, panel, series
from lab.focal.arms import Arm, Pooled

AGAINST = "against_dense"
READ_AS = (
    "Models of one code, one start and one order of the training tokens per seed differ in the temperature alone, and "
    "are read with the one they were trained with. Held-out losses are means over the seeds, window by window; "
    "differences are paired. The best of several is chosen on the same windows that report it. One learning rate "
    "serves all: with others, or after more steps, their order may change, so this is a direction and no verdict."
)


def of_arms(trained: dict[Arm, Pooled]) -> list[dict]:
    """One row for each arm; `against_dense` where its dense arm is among them, over seeds and documents."""
    by_key = {pooled.arm.key: pooled for pooled in trained.values()}
    rows = []
    for pooled in trained.values():
        arm, means = pooled.arm, pooled.means()
        low, high = arm.limits or (None, None)
        row = {"arm": arm.name, "t": None if arm.limits else arm.t, "tau_min": low, "tau_max": high, "norm": arm.norm}
        row |= {"further": arm.further, "width": arm.width, "context": arm.context}
        row |= {"parameters": pooled.parts[0]["parameters"], "tokens": pooled.tokens()}
        row |= {"loss": float(means.mean()), "perplexity": float(np.exp(means.mean()))}
        row |= lowest_highest("perplexity", np.exp(means.mean(1)))
        row |= {"gains": pooled.mean("gains"), "temperature": pooled.mean("temperature")}
        dense = by_key.get(arm.dense.key)
        compared = difference(AGAINST, means, (dense or pooled).means(), pooled.documents)
        rows.append(row | (compared if dense else dict.fromkeys(compared)))
    return rows


def columns(*more: dict) -> list[dict]:
    """The columns of the rows, for a page."""
    first, *others = panels.columns("focal")
    return [first, *more, *others]


def compared(title: str, x: str, x_label: str, x_values: list, named: dict[str, list[dict | None]]) -> dict:
    """A panel of the loss against dense training, with intervals: name -> a row, or None, for each x value."""
    lines = [of_rows(name, [row or {} for row in listed], AGAINST) for name, listed in named.items()]
    return panel(title, x, x_label, x_values, "nats per token above dense", lines)


def curves(rows: list[dict], points: list[dict]) -> list[dict]:
    """The panel of the training losses, means over seeds, of the arms that were trained from scratch, if any were."""
    lines, losses = [], {}
    for name in [row["arm"] for row in rows if not row["further"]]:
        losses = defaultdict(list)
        for point in points:
            if point["arm"] == name:
                losses[point["step"]].append(point["loss"])
        lines.append(series(name, [float(np.mean(loss)) for loss in losses.values()]))
    return [panel("Training", "step", "steps", list(losses), "nats per token", lines)] if lines else []


def plain_curves(trained: dict[Arm, Pooled]) -> list[dict]:
    """The training losses as rows: arm, seed, step, loss."""
    points = []
    for arm, pooled in trained.items():
        for seed, part in enumerate(pooled.parts):
            points += [{"arm": arm.name, "seed": seed, **point} for point in part["curve"]]
    return points


def notes(numbers: dict, *more: str) -> list[str]:
    """What limits all of these studies: how they are read, and how far these models are from the paper's."""
    ranges = []
    for name in ("parameters", "tokens"):
        values = [row[name] / 1e6 for row in numbers["rows"]]
        ranges.append(" to ".join(dict.fromkeys(f"{value:.1f}" for value in (min(values), max(values)))))
    small = (
        f"These models have {ranges[0]} million parameters and saw {ranges[1]} million tokens; the paper's have "
        "400 million and more and saw 26 billion. With normalised queries and keys a model can also sharpen by itself: "
        "gains of the norms above 1 say how much."
    )
    return [READ_AS, small, *more, interval_caveat(numbers["protocol"])]


def sure(row: dict) -> int:
    """Whether a row is significantly lower (-1) or higher (1) than dense training, or neither (0)."""
    return Comparison.of(row, AGAINST).direction


def against(row: dict | None) -> bool:
    """Whether a row could be held against dense training."""
    return row is not None and row[AGAINST] is not None
