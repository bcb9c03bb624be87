"""How much of what a window loses an arm gives back, against which controls, and what may be said (definitions 2.16).

Losses are mean nats per token of each window [n]; all arms read the same windows, so every difference is paired, with
its 95% interval over the documents [n] that the windows are of.
"""

import math
from collections.abc import Sequence

import numpy as np

from analysis.claims import Comparison
from analysis.metrics.intervals import Interval, over_units
from analysis.studies.stored.comparisons import Row, difference, edges, holm_corrected
from analysis.studies.stored.measured import Measured

WINDOWS = (8, 16, 32, 64, 128)  # window-only arms, in tokens
# The window of a study is one of these.
CHOICES = WINDOWS[:4]
# Its perplexity is at least this many times the dense one.
HEADROOM = 1.03
# Points of recovery above random tokens that the claim asks for.
POINTS = 15
# What trained groups must beat.
CONTROLS = ("random tokens", "random centroids", "k-means")


def choose_window(losses: dict[int, np.ndarray], dense: np.ndarray) -> int | None:
    """The largest window whose perplexity alone is at least 3% above dense; None when there is none. `losses` {window:
    [n]}, `dense` [n]."""
    worse = [window for window, alone in losses.items() if np.mean(alone) - np.mean(dense) >= math.log(HEADROOM)]
    return max(worse, default=None)


def recovery(gained: np.ndarray, window: np.ndarray, dense: np.ndarray, documents: np.ndarray) -> Interval:
    """What is `gained` as a share of (window - dense): of an arm's (window - arm) 0 reads as badly as the window alone,
    1 as well as dense. No value when the window alone loses nothing on these texts."""
    if np.mean(window) <= np.mean(dense):
        return Interval(None, None, None, 0)
    return over_units(gained, documents, below=window - dense)[0]


def compare(
    trained: np.ndarray, control: np.ndarray, window: np.ndarray, dense: np.ndarray, documents: np.ndarray
) -> Row:
    """Trained groups against one control, losses [n] each: `difference low high p units` in nats per token (below 0 the
    trained ones predict better), `difference_points` of each document where they are too few for an interval, and
    `points points_low points_high`, the same in points of recovery above the control."""
    apart = difference("difference", trained, control, documents)
    row = {"difference": apart.pop("difference"), "difference_points": apart.pop("difference_points")}
    row |= {name.removeprefix("difference_"): value for name, value in apart.items()}
    points = recovery(100 * (control - trained), window, dense, documents)
    return row | {"units": len(np.unique(documents))} | edges("points", points)


def summary(reads: dict[str, Measured], chosen: int, equal: int, groups: int, documents: np.ndarray) -> Row:
    """Rows, comparisons and claims of measured arms; those that differ in their seed alone become one.

    `documents` [n] says which document each window is of. `chosen` and `equal`: the study's window and the one of equal
    pairs, both among the arms as `window N`; `groups` K.
    """
    together: dict[str, list[Measured]] = {}
    for name, arm in reads.items():
        together.setdefault(next((kind for kind in CONTROLS if name.startswith(kind)), name), []).append(arm)
    pooled = {name: Measured.pool(several) for name, several in together.items()}
    dense, alone, trained = (pooled[name].means for name in ("dense", f"window {chosen}", "trained"))
    rows = {}
    for name, arm in pooled.items():
        back = recovery(alone - arm.means, alone, dense, documents)
        rows[name] = arm.row(name) | {"recovery": back.mean, "low": back.low, "high": back.high}
    fair, comparisons = f"window {equal}", []
    for name in dict.fromkeys((*CONTROLS, fair, f"window {chosen}", "dense")):
        row: Row = {"control": name}
        comparisons.append(row | compare(trained, pooled[name].means, alone, dense, documents))
    for row, corrected in zip(comparisons, judged(comparisons), strict=True):
        row["holm"] = corrected.get("difference_holm")
    headroom = float(alone.mean() - dense.mean()) >= math.log(HEADROOM)
    by_name = {row["control"]: row for row in comparisons}
    pairs = {"pairs": rows[fair]["pairs"], "trained_pairs": rows["trained"]["pairs"]}
    return {
        "claims": claims(by_name, fair, pooled["trained"].shares, groups, headroom),
        "window": chosen,
        "equal_pairs": {"arm": fair, "window": equal} | pairs,
        "soft_minus_hard": rows["trained, soft"]["loss"] - rows["trained"]["loss"],
        "literal_minus_causal": rows["trained, literal"]["loss"] - rows["trained"]["loss"],
        "rows": list(rows.values()),
        "comparisons": comparisons,
    }


def judged(comparisons: Sequence[Row]) -> list[Row]:
    """The comparisons with the names that `Comparison.of` reads, corrected by Holm as one family."""
    named = [row | {f"difference_{end}": row.get(end) for end in ("low", "high", "p")} for row in comparisons]
    return holm_corrected(named, "difference")


def claims(comparisons: dict[str, Row], equal: str, shares: list[float], groups: int, headroom: bool = True) -> Row:
    """What holds. `beats` {control: bool, or None where it is not significant}; recovery above random tokens in
    `points`; whether the window of equal pairs, named `equal`, is better; whether the groups are balanced.

    `shares` [L] of the trained groups; the limit is twice an even share, 25% for 8 groups, and never below 25%. Without
    `headroom`, a window alone that loses something, nothing holds.
    """
    verdicts = {}
    for name, row in comparisons.items():
        sign = Comparison(row["difference"], row["low"], row["high"], p_holm=row.get("holm")).direction
        verdicts[name] = {-1: True, 0: None, 1: False}[sign]
    points, limit = comparisons["random tokens"]["points"], max(0.25, 2 / groups)
    verdict = {
        "headroom": headroom,
        "beats": {name: verdicts[name] for name in CONTROLS},
        "points": points,
        "points_reached": points is not None and points >= POINTS,
        "window_better": None if verdicts[equal] is None else not verdicts[equal],
        "largest_share": max(shares),
        "share_limit": limit,
        "balanced": max(shares) <= limit,
    }
    holds = all(verdicts[name] is True for name in CONTROLS) and verdict["points_reached"]
    return verdict | {"holds": holds and verdict["balanced"] and headroom}
