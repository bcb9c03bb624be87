"""Which cap of a stored sweep is the smallest that changes no position, under any tolerances; without torch.

"No worse than 1%" is a one-sided claim: it holds where the upper 95% limit of the change lies below it. Every row of
a sweep has two sides: `select`, on whose texts the cap is chosen, and `report`, other texts, on which the chosen one is
held to the same limits (None where nothing is left for it). A side: `perplexity perplexity_dense difference upper`
(share of perplexity, with the limit), `worst_bin_first worst_bin_last worst_bin_difference worst_bin_upper
worst_bin_change` of the position bin whose limit is largest (`change` in perplexity), `units unit`. A limit is None
where there are too few units for one, and then nothing passes.
"""

from ..claims import signed


def verdict(row: dict, tolerance: float, tolerance_bin: float) -> dict:
    """`passes`, and in `fails` what does not, in words, on the selection side; `holds` on the other (None without)."""
    fails = _fails(row["select"], tolerance, tolerance_bin)
    report = row["report"]
    holds = None if report is None or report["upper"] is None else not _fails(report, tolerance, tolerance_bin)
    return {"passes": fails is None, "fails": fails, "holds": holds}


def _fails(side: dict, tolerance: float, tolerance_bin: float) -> str | None:
    if side["upper"] is None or side["worst_bin_upper"] is None:
        return f"{side['units']} {side['unit']} are too few for a limit"
    failures = []
    if side["upper"] > tolerance:
        failures.append(f"perplexity may change by up to {signed(side['upper'], '.1%')} (allowed {tolerance:.1%})")
    if side["worst_bin_upper"] > tolerance_bin:
        limit = signed(side["worst_bin_upper"], ".1%")
        failures.append(f"{_place(side)} by up to {limit} (allowed {tolerance_bin:.1%})")
    return " and ".join(failures) or None


def _place(side: dict) -> str:
    return f"positions {side['worst_bin_first']:,} to {side['worst_bin_last'] - 1:,}"


def judged(rows: list[dict], tolerance: float, tolerance_bin: float) -> dict:
    """The `summary` of measured rows under other tolerances than those of their sweep."""
    return summary([row | verdict(row, tolerance, tolerance_bin) for row in rows])


def chosen_cap(rows: list[dict]) -> int | None:
    """The smallest cap that passes; None where none does."""
    return next((row["cap"] for row in rows if row["passes"]), None)


def summary(rows: list[dict]) -> dict:
    """`sweep`, `cap`, and the `sentence` that says which cap is chosen, where the one below it fails, and what the
    chosen one does on other texts."""
    cap = chosen_cap(rows)
    below = [row for row in rows if cap is None or row["cap"] < cap]
    if cap is None:
        sentence = f"No cap passes: at the largest, {below[-1]['cap']:,}, {below[-1]['fails']}."
        return {"sweep": rows, "cap": cap, "sentence": sentence}
    row = next(row for row in rows if row["cap"] == cap)
    side, report = row["select"], row["report"]
    most, worst = (signed(side[name], ".1%") for name in ("upper", "worst_bin_upper"))
    sentence = (
        f"The smallest cap that passes is {cap:,}: it reads {row['reads_causal']:.1%} of the causal pairs, and from "
        f"{side['units']:,} {side['unit']} perplexity changes by at most {most}, at {_place(side)} by at most "
        f"{worst} (one-sided 95% limits)."
    )
    sentence += f" At {below[-1]['cap']:,} {below[-1]['fails']}." if below else ""
    return {"sweep": rows, "cap": cap, "sentence": f"{sentence} {_elsewhere(report, row['holds'])}"}


def _elsewhere(report: dict | None, holds: bool | None) -> str:
    if report is None:
        return "No text is left on which the choice could be reported."
    if holds is None:
        change = signed(report["difference"], ".1%")
        return f"On other text it changes perplexity by {change}, of too few units for a limit."
    word = "holds" if holds else "does not hold"
    return (
        f"On {report['units']:,} other {report['unit']} that {word}: at most {signed(report['upper'], '.1%')}, and "
        f"{signed(report['worst_bin_upper'], '.1%')} at {_place(report)}."
    )
