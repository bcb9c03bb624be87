"""How much of what a window loses an arm gives back, against which controls, and what may be said: pure functions.

Definitions 2.16. Losses are mean nats per token of each window [n]; all arms of a study read the same windows, so every
difference is paired, with its 95% interval over the documents [n] that the windows are of.
"""

import math

import numpy as np

from analysis.claims import Comparison
from analysis.metrics.intervals import Interval, over_units
from analysis.studies.stored.comparisons import difference, edges, holm_corrected, multiplicity_note
from analysis.studies.stored.measured import Measured

DIFFERENCE = "difference"
WINDOWS = (8, 16, 32, 64, 128)  # window-only arms, in tokens
CHOICES = WINDOWS[:4]  # the window of a study is one of these
HEADROOM = 1.03  # its perplexity is at least this many times the dense one
POINTS = 15  # points of recovery above random tokens that the claim asks for
CONTROLS = ("random tokens", "random centroids", "k-means")  # what trained groups must beat


def choose_window(losses: dict[int, np.ndarray], dense: np.ndarray) -> int | None:
    """The largest window whose perplexity alone is at least 3% above dense; None when there is none.

    `losses` {window: [n]}, `dense` [n].
    """
    worse = [window for window, alone in losses.items() if np.mean(alone) - np.mean(dense) >= math.log(HEADROOM)]
    return max(worse, default=None)


def recovery(arm: np.ndarray, window: np.ndarray, dense: np.ndarray, documents: np.ndarray) -> Interval:
    """(window - arm) / (window - dense): 0 reads as badly as the window alone, 1 as well as dense, losses [n] each.

    No value when the window alone loses nothing on these texts.
    """
    if np.mean(window) <= np.mean(dense):
        return Interval(None, None, None, 0)
    return over_units(window - arm, documents, below=window - dense)[0]


def compare(
    trained: np.ndarray, control: np.ndarray, window: np.ndarray, dense: np.ndarray, documents: np.ndarray
) -> dict:
    """Trained groups against one control, losses [n] each: `difference low high p units` in nats per token (below 0 the
    trained ones predict better), `difference_points` of each document where they are too few for an interval, and
    `points points_low points_high`, the same in points of recovery above the control.
    """
    found = difference("difference", trained, control, documents)
    row = {"difference": found["difference"], "low": found["difference_low"], "high": found["difference_high"]}
    row |= {"p": found["difference_p"], "units": len(np.unique(documents))}
    row |= {"difference_points": found["difference_points"]}
    points = Interval(None, None, None, 0)
    if np.mean(window) > np.mean(dense):
        points = over_units(100 * (control - trained), documents, below=window - dense)[0]
    return row | edges("points", points)


def summary(found: dict[str, Measured], chosen: int, equal: int, groups: int, documents: np.ndarray) -> dict:
    """Rows, comparisons and claims of measured arms; those that differ in their seed alone become one.

    `documents` [n] says which document each window is of. `chosen` and `equal`: the study's window and the one of equal
    pairs, both among the arms as `window N`; `groups` K.
    """
    together: dict[str, list[Measured]] = {}
    for name, arm in found.items():
        together.setdefault(next((kind for kind in CONTROLS if name.startswith(kind)), name), []).append(arm)
    pooled = {name: Measured.pool(several) for name, several in together.items()}
    dense, alone, trained = (pooled[name].means for name in ("dense", f"window {chosen}", "trained"))
    rows = {}
    for name, arm in pooled.items():
        back = recovery(arm.means, alone, dense, documents)
        rows[name] = arm.row(name) | {"recovery": back.mean, "low": back.low, "high": back.high}
    fair = f"window {equal}"
    against = {
        name: compare(trained, pooled[name].means, alone, dense, documents)
        for name in dict.fromkeys((*CONTROLS, fair, f"window {chosen}", "dense"))
    }
    for row, one in zip(
        against.values(), holm_corrected(list(map(_compared, against.values())), DIFFERENCE), strict=True
    ):
        row["holm"] = one.get(f"{DIFFERENCE}_holm")
    pairs = {"arm": fair, "window": equal, "pairs": rows[fair]["pairs"], "trained_pairs": rows["trained"]["pairs"]}
    headroom = float(alone.mean() - dense.mean()) >= math.log(HEADROOM)
    held = claims(against, fair, pooled["trained"].shares, groups, headroom)
    return {
        "claims": held,
        "window": chosen,
        "equal_pairs": pairs,
        "soft_minus_hard": rows["trained, soft"]["loss"] - rows["trained"]["loss"],
        "literal_minus_causal": rows["trained, literal"]["loss"] - rows["trained"]["loss"],
        "rows": list(rows.values()),
        "comparisons": [{"control": name, **row} for name, row in against.items()],
    }


def claims(comparisons: dict[str, dict], equal: str, shares: list[float], groups: int, headroom: bool = True) -> dict:
    """What holds: `beats` {control: bool or None}, `points` of recovery above random tokens and whether they reach 15,
    `window_better` (the window of equal pairs, named `equal`), `balanced` (largest share in each layer), and `holds`.

    A comparison is decided when its interval excludes 0 and it holds after Holm's correction for all of them (`holm`,
    its p-value then), and None without that. `shares` [L] of the trained groups; the
    limit is twice an even share, 25% for 8 groups, and never below 25%. Without `headroom` nothing holds.
    """
    beats = {name: _better(comparisons[name]) for name in CONTROLS}
    points, limit = comparisons["random tokens"]["points"], max(0.25, 2 / groups)
    window = _better(comparisons[equal])
    found = {
        "headroom": headroom,
        "beats": beats,
        "points": points,
        "points_reached": points is not None and points >= POINTS,
        "window_better": None if window is None else not window,
        "largest_share": max(shares),
        "share_limit": limit,
        "balanced": max(shares) <= limit,
    }
    held = [*(value is True for value in beats.values()), found["points_reached"], found["balanced"], headroom]
    return found | {"holds": all(held)}


def _better(comparison: dict) -> bool | None:
    """Whether the trained groups predict better; None when that is not significant."""
    return {-1: True, 0: None, 1: False}[Comparison.of(_compared(comparison), DIFFERENCE).direction]


def _compared(comparison: dict) -> dict:
    """A comparison with the names that `panels` reads."""
    ends = {f"{DIFFERENCE}_{name}": comparison[name] for name in ("low", "high", "p", "holm") if name in comparison}
    return comparison | {name: value for name, value in ends.items() if value is not None or not name.endswith("holm")}


def sentence(found: dict, comparisons: dict[str, dict], equal: dict, rows: dict[str, dict], window: int) -> str:
    """The verdict in words, from `claims`; nothing is said that its numbers do not.

    `equal`: the window of equal pairs, `arm window pairs trained_pairs`; `rows`: by arm, `pairs_share`, and of the
    trained one `recovery low high`.
    """
    recovered, against = rows["trained"], comparisons["random tokens"]
    reads = {name: _reads(rows[name]["pairs_share"], recovered["pairs_share"]) for name in CONTROLS}
    said = [_headline(found, reads["random tokens"])]
    if not found["headroom"]:
        said.append(f"No window alone is {HEADROOM - 1:.0%} worse than dense here, so little can be recovered.")
    told = [f"{_verb(comparisons[name])} {name} ({_nats(comparisons[name])}{reads[name]})" for name in CONTROLS]
    said.append(f"With a window of {window}, the groups of this router {told[0]}, {told[1]} and {told[2]}.")
    if recovered["recovery"] is not None:
        said.append(
            f"They recover {recovered['recovery']:.0%}{_range(recovered['low'], recovered['high'], '.0%')} of what the "
            f"window loses, {against['points']:+.1f} points"
            f"{_range(against['points_low'], against['points_high'], '+.1f')} against random tokens, where the claim "
            f"asks for {POINTS}."
        )
    fair = comparisons[equal["arm"]]
    said.append(
        f"They {_verb(fair)} a window of {equal['window']:,}, which reads as many pairs ({equal['pairs']:,.0f}, the "
        f"groups {equal['trained_pairs']:,.0f}): groups minus window {_nats(fair)}."
    )
    said.append(multiplicity_note(list(map(_compared, comparisons.values())), DIFFERENCE).strip())
    least = "at most" if found["balanced"] else "up to"
    said.append(
        f"The largest group holds {least} {found['largest_share']:.1%} of a layer's tokens (the limit is "
        f"{found['share_limit']:.0%})."
    )
    return " ".join(filter(None, said))


def _reads(control: float, trained: float) -> str:
    """What a control reads where that is not what the groups read, shares of all pairs; it begins with a semicolon."""
    own, other = f"{trained:.1%}", f"{control:.1%}"
    return "" if own == other else f"; of {'fewer' if control < trained else 'more'} pairs, {other} against {own}"


def _headline(found: dict, reads: str) -> str:
    fewer = ", which read fewer pairs," if "fewer" in reads else ""
    words = {
        True: f"beat random ones here{fewer or ','} but not everything that the claim asks for holds",
        False: "do not beat random ones here",
        None: "do not differ significantly from random ones here, or there are too few texts to judge",
    }
    said = f"do more than random ones here{fewer.rstrip(',')}" if found["holds"] else ""
    wider = ", and a wider window of equal pairs is better" if found["window_better"] else ""
    return f"The groups of this router {said or words[found['beats']['random tokens']]}{wider}."


def _verb(comparison: dict) -> str:
    if comparison["low"] is None:
        return "are not judged against"
    return {True: "beat", False: "are worse than", None: "do not differ significantly from"}[_better(comparison)]


def _nats(comparison: dict) -> str:
    return Comparison.of(_compared(comparison), DIFFERENCE).evidence


def _range(low: float | None, high: float | None, form: str) -> str:
    """The interval in brackets, or nothing where there is none."""
    return "" if low is None else f" ({low:{form}} to {high:{form}})"
