"""What came out of training with a temperature: all seeds together, against dense training, drawn, and in words."""

from collections import defaultdict
from dataclasses import replace

import numpy as np

from analysis.claims import Comparison
from analysis.studies.stored import panels
from analysis.studies.stored.comparisons import difference, interval_caveat, lowest_highest
from analysis.studies.stored.panels import panel, series
from lab.focal.arms import Arm, Pooled

AGAINST = "against_dense"
READ_AS = (
    "Models of one code, one start and one order of the training tokens per seed differ in the temperature alone, and "
    "are read with the one they were trained with. Held-out losses are means over the seeds, window by window; "
    "differences are paired. The best of several is chosen on the same windows that report it. One learning rate "
    "serves all: with others, or after more steps, their order may change, so this is a direction and no verdict."
)
TWO_SEEDS = (
    "Measured with two seeds: a difference counts where the interval leaves out 0, both seeds agree, and two seeds "
    "alone would not make it, judged by how far the seeds of all these models lie apart (95%)."
)


def of_arms(found: dict[Arm, Pooled]) -> list[dict]:
    """One row for each arm; `against_dense` where its dense arm is among them, with the 95% interval over seeds and
    documents."""
    by_key = {pooled.arm.key: pooled for pooled in found.values()}
    return [_row(pooled, by_key.get(pooled.arm.dense.key)) for pooled in found.values()]


def _row(pooled: Pooled, dense: Pooled | None) -> dict:
    arm, means = pooled.arm, pooled.means()
    low, high = arm.limits or (None, None)
    row = {"arm": arm.name, "t": None if arm.limits else arm.t, "tau_min": low, "tau_max": high, "norm": arm.norm}
    row |= {"further": arm.further, "width": arm.width, "context": arm.context}
    row |= {"parameters": pooled.parts[0]["parameters"], "tokens": pooled.tokens()}
    row |= {"loss": float(means.mean()), "perplexity": float(np.exp(means.mean()))}
    row |= lowest_highest("perplexity", np.exp(means.mean(1)))
    row |= {"gains": pooled.mean("gains"), "temperature": pooled.mean("temperature")}
    if dense is None:
        return row | dict.fromkeys(f"{AGAINST}{end}" for end in ("", "_low", "_high", "_lowest", "_highest"))
    return row | difference(AGAINST, means, dense.means(), pooled.documents)


def columns(*more: dict) -> list[dict]:
    """The columns of the rows, for a page."""
    first, *others = panels.columns("focal")
    return [first, *more, *others]


def compared(title: str, x: str, x_label: str, x_values: list, named: dict[str, list[dict | None]]) -> dict:
    """A panel of the loss against dense training, with intervals: name -> a row, or None, for each x value."""
    lines = []
    for name, listed in named.items():
        y, low, high = ([row and row[f"{AGAINST}{end}"] for row in listed] for end in ("", "_low", "_high"))
        lines.append(series(name, y, low, high))
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


def plain_curves(found: dict[Arm, Pooled]) -> list[dict]:
    """The training losses as rows: `arm seed step loss`."""
    return [
        {"arm": arm.name, "seed": place, **point}
        for arm, pooled in found.items()
        for place, part in enumerate(pooled.parts)
        for point in part["curve"]
    ]


def notes(numbers: dict, *more: str) -> list[str]:
    """What is said of the numbers of a study, `more` of it its own."""
    two = [TWO_SEEDS] if any("by_seeds" in row for row in numbers["rows"]) else []
    return [READ_AS, *two, small(numbers["rows"]), *more, interval_caveat(numbers["protocol"])]


def small(table: list[dict]) -> str:
    """How far these models are from the paper's, and what a norm can do by itself."""
    sizes, seen = ([row[name] / 1e6 for row in table] for name in ("parameters", "tokens"))
    size, token = (" to ".join(dict.fromkeys(f"{one:.1f}" for one in (min(of), max(of)))) for of in (sizes, seen))
    return (
        f"These models have {size} million parameters and saw {token} million tokens; the paper's have "
        "400 million and more and saw 26 billion. With normalised queries and keys a model can also sharpen by itself: "
        "gains of the norms above 1 say how much."
    )


def sure(row: dict) -> int:
    """Whether a row is lower (-1) or higher (1) than dense training; 0 where the interval holds 0. Rows that were
    stored with two seeds, whose intervals do not hold them, must agree and differ by more than `by_seeds`."""
    sign, margin = Comparison.of(row, AGAINST).direction, row.get("by_seeds")
    alike = margin is None or all(sign * row[f"{AGAINST}_{end}"] > 0 for end in ("lowest", "highest"))
    return sign if alike and abs(row[AGAINST]) > (margin or 0) else 0


def by_two_seeds(row: dict) -> str:
    """What two seeds alone could make of a row whose interval leaves out 0; it begins with a comma, or is nothing."""
    doubted = Comparison.of(row, AGAINST).direction and not sure(row)
    return f", as two seeds alone could make it: up to {row['by_seeds']:.4f}" if doubted else ""


def told(row: dict, other: str = "") -> str:
    """A row against dense training, in words; `other` names what it is held against where a reader could not know."""
    doubt = by_two_seeds(row)
    change = Comparison.of(row, AGAINST, versus=other)
    # Two seeds that leave a doubt are worded like an interval that does.
    doubted = replace(change, p_holm=1.0) if doubt else change
    return f"{doubted.relation('lower', 'higher')}{doubt} ({change.evidence})"


def against(row: dict | None) -> bool:
    """Whether a row could be held against dense training."""
    return row is not None and row[AGAINST] is not None
