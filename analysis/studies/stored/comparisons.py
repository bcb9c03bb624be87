"""Comparisons in the rows of stored studies: computed over documents and seeds, corrected for their family, qualified.

A row holds a comparison as `KEY`, `KEY_low`, `KEY_high` (its 95% interval) and `KEY_p`; `claims.Comparison.of` reads
it back and words it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...claims import Comparison, Verdict
from ...metrics.intervals import DOCUMENTS, SEEDS, Interval, holm, over_seeds, p_of

Row = dict[str, Any]


def difference(key: str, losses: np.ndarray, control: np.ndarray, documents: np.ndarray) -> Row:
    """`KEY KEY_low KEY_high KEY_p KEY_points`: mean of losses [n] minus those of a control on the same windows, nats
    per token, with its 95% interval over the `documents` [n] that the windows are of. Fewer than five documents give
    no interval: `KEY_points` are then those of each (else None).

    Losses [seeds, n] are of what was trained that often, the control of the same seeds [seeds, n] or of none [n]: from
    three seeds on they enter the interval too. `KEY_lowest` and `KEY_highest` are the seeds' own means.
    """
    paired = np.atleast_2d(losses - control)  # [seeds, n]
    mean, points = over_seeds(paired, documents)
    row = compared(key, mean) | {f"{key}_points": points.tolist() if mean.low is None else None}
    return row | (lowest_highest(key, paired.mean(1)) if np.ndim(losses) == 2 else {})


def lowest_highest(key: str, values: Sequence[float] | np.ndarray) -> Row:
    """`KEY_lowest KEY_highest` of the seeds' values."""
    return {f"{key}_lowest": float(min(values)), f"{key}_highest": float(max(values))}


def edges(key: str, interval: Interval) -> Row:
    """`KEY KEY_low KEY_high` of an interval."""
    return {key: interval.mean, f"{key}_low": interval.low, f"{key}_high": interval.high}


def compared(key: str, interval: Interval) -> Row:
    """`KEY KEY_low KEY_high KEY_p` of a comparison: its interval, and the p-value that goes with it."""
    return edges(key, interval) | {f"{key}_p": p_of(interval)}


def holm_corrected(rows: Sequence[Row], *keys: str) -> list[Row]:
    """The rows with `KEY_holm` beside each `KEY_p`: the p-value after Holm's correction for all comparisons `keys` of
    all these rows. Comparisons of an arm with itself are skipped; rows without p-values stay as they are."""
    corrected = [dict(row) for row in rows]
    family = [(row, key) for row, key in _family(corrected, keys) if row.get(f"{key}_p") is not None]
    if family:
        p_values = holm([row[f"{key}_p"] for row, key in family])
        for (row, key), p in zip(family, p_values, strict=True):
            row[f"{key}_holm"] = float(p)
    return corrected


def multiplicity_note(rows: Sequence[Row], *keys: str) -> str:
    """The sentence that says how many of these comparisons are judged beside each other, and whether each is corrected
    for the others. It begins with a space; nothing where there are fewer than two."""
    corrected = [f"{key}_holm" in row for row, key in _family(rows, keys)]
    if len(corrected) < 2:
        return ""
    basis = "judged after Holm's correction for all of them" if all(corrected) else "judged by its own interval"
    return f" Of {len(corrected)} comparisons, each is {basis}."


def _family(rows: Sequence[Row], keys: Sequence[str]) -> list[tuple[Row, str]]:
    """(row, key) of every comparison that has an interval and is not of an arm with itself."""
    judged = []
    for row in rows:
        for key in keys:
            if row.get(f"{key}_low") is not None and Comparison.of(row, key).verdict is not Verdict.SAME:
                judged.append((row, key))
    return judged


def scope_of_claim(seeds: int, what: str = "router", arm: str = "arm") -> str:
    """The sentence that limits all claims to what was trained here, where every arm has fewer than 3 seeds: nothing is
    said of the method then. It begins with a space; nothing with 3 or more."""
    if seeds >= SEEDS:
        return ""
    trained = "one training" if seeds == 1 else f"{seeds} trainings"
    subject = f"this {what}" if seeds == 1 else f"these {what}s"
    return f" All of it is said of {subject}, {trained} of every {arm}, and not of the method."


def interval_caveat(protocol: Row) -> str:
    """What the intervals of a study rest on, from its protocol."""
    units, seeds = protocol["units"], protocol.get("seeds", 1)
    if units < DOCUMENTS:
        few = f"The windows are of {units} documents, too few for an interval"
        return f"{few}: what is said holds in these {units} texts."
    if seeds < SEEDS:
        return f"Intervals are 95%, studentised, over {units} documents; their windows are averaged first."
    both = f"over {units} documents and over {seeds} trainings of every arm"
    return f"Intervals are 95%, {both}; a document with more windows weighs more."
