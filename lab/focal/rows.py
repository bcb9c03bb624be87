"""What came out of training with a temperature: all seeds together, against dense training, and drawn."""

import numpy as np

from analysis.metrics.intervals import DOCUMENTS
from analysis.studies.budgets.cap_rows import two_sides
from analysis.studies.stored import panels
from analysis.studies.stored.comparisons import Row, difference, lowest_highest
from analysis.studies.stored.panels import of_rows, panel
from lab.focal.arms import Arm, Pooled
from lab.harness.telling import training_panel

AGAINST = "against_dense"
CONTROLS = {AGAINST: "dense training"}


def of_arms(trained: dict[Arm, Pooled]) -> list[Row]:
    """One row for each arm; `against_dense` where its dense arm is among them, over seeds and documents."""
    by_key = {pooled.arm.key: pooled for pooled in trained.values()}
    rows = []
    for pooled in trained.values():
        arm, means = pooled.arm, pooled.means()
        low, high = arm.limits or (None, None)
        row = {"arm": arm.name, "t": None if arm.limits else arm.t, "tau_min": low, "tau_max": high, "norm": arm.norm}
        row |= {"further": arm.further, "printed": arm.printed, "width": arm.width, "context": arm.context}
        row |= {"parameters": pooled.parts[0]["parameters"], "tokens": pooled.tokens()}
        row |= {"loss": float(means.mean()), "perplexity": float(np.exp(means.mean()))}
        row |= lowest_highest("perplexity", np.exp(means.mean(1)))
        row |= {"gains": pooled.mean("gains"), "temperature": pooled.mean("temperature")}
        dense = by_key.get(arm.dense.key)
        compared = difference(AGAINST, means, (dense or pooled).means(), pooled.documents)
        rows.append(row | (compared if dense else dict.fromkeys(compared)))
    return rows


def selected(trained: dict[Arm, Pooled]) -> list[Row]:
    """The constant temperature that some of the documents choose, against dense training on the others, which are as
    many as an interval needs: `arm against_dense`. No row where none was trained, or without dense training."""
    plain = [pooled for pooled in trained.values() if pooled.arm.usual and not pooled.arm.limits]
    dense, constant = ([one for one in plain if (one.arm.t == 1) == is_dense] for is_dense in (True, False))
    if not (dense and constant):
        return []
    reports = two_sides(dense[0].documents, DOCUMENTS)
    best = min(constant, key=lambda one: float(one.means()[:, ~reports].mean()))
    losses, control = (one.means()[:, reports] for one in (best, dense[0]))
    return [{"arm": best.arm.name} | difference(AGAINST, losses, control, dense[0].documents[reports])]


def columns(*more: dict) -> list[dict]:
    """The columns of the rows, for a page."""
    first, *others = panels.columns("focal")
    return [first, *more, *others]


def against(row: Row | None) -> bool:
    """Whether a row could be held against dense training."""
    return row is not None and row[AGAINST] is not None


def compared_panel(title: str, x: str, x_label: str, x_values: list, named: dict[str, list[Row | None]]) -> dict:
    """A panel of the loss against dense training, with intervals: name -> a row, or None, for each x value."""
    lines = [of_rows(name, [row or {} for row in listed], AGAINST) for name, listed in named.items()]
    return panel(title, x, x_label, x_values, "nats per token above dense", lines)


def curves_panel(rows: list[Row], points: list[Row]) -> list[dict]:
    """The panel of the training losses, means over seeds, of the arms that were trained from scratch, if any were."""
    names = {row["arm"]: row["arm"] for row in rows if not row["further"]}
    return [training_panel("Training", points, "arm", names)] if names else []


def plain_curves(trained: dict[Arm, Pooled]) -> list[Row]:
    """The training losses as rows: arm, seed, step, loss."""
    points = []
    for arm, pooled in trained.items():
        for seed, part in enumerate(pooled.parts):
            points += [{"arm": arm.name, "seed": seed, **point} for point in part["curve"]]
    return points
