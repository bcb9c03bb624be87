"""Which cap of a stored sweep is the smallest that changes no position, under any tolerances; without torch.

"No worse than 1%" is a one-sided claim: it holds where the upper 95% limit of the change lies below it. "Within 1%"
claims two sides, and holds where both limits lie inside (two one-sided tests). Every row of a sweep has two sides:
`select`, on whose texts the cap is chosen, and `report`, other texts, on which the chosen one is held to the same
limits (None where nothing is left for it). A side: `perplexity perplexity_dense difference lower upper` (share of
perplexity, with its limits), `worst_bin_first worst_bin_last worst_bin_difference worst_bin_upper worst_bin_change` of
the position bin whose upper limit is largest (`change` in perplexity), `stretches` (of every bin `first last lower
upper perplexity_dense`), `units unit`. A limit is None where there are too few units for one, and then nothing passes.
"""

from dataclasses import dataclass

from ..claims import signed


@dataclass(frozen=True)
class Limits:
    """One-sided 95% limits of a change on average and at the stretch of positions [first, last) where they are farthest
    out: shares of perplexity, or perplexity itself. The lower one is None where only a rise is judged."""

    judged: str
    average: tuple[float | None, float]
    stretch: tuple[float | None, float]
    first: int
    last: int

    def outside(self, tolerance: float, tolerance_bin: float) -> dict[str, bool]:
        """Whether each of both parts may change by more than its tolerance allows."""
        parts = {"average": (self.average, tolerance), "stretch": (self.stretch, tolerance_bin)}
        return {name: high > allowed or (low or 0.0) < -allowed for name, ((low, high), allowed) in parts.items()}

    @property
    def place(self) -> str:
        """The stretch in words."""
        return f"positions {self.first:,} to {self.last - 1:,}"

    def words(self, limits: tuple[float | None, float], one_sided: str) -> str:
        """Limits in words; `one_sided` stands before the only one."""
        low, high = limits
        return f"{one_sided}{self._signed(high)}" if low is None else f"{self._signed(low)} to {self._signed(high)}"

    def allowed(self, tolerance: float) -> str:
        """A tolerance in words."""
        if self.judged == "perplexity":
            return f"±{tolerance:g} perplexity"
        return f"{'±' * (self.judged == 'change')}{tolerance:.1%}"

    def _signed(self, value: float) -> str:
        return signed(value, ".2f" if self.judged == "perplexity" else ".1%")


def limits_of(side: dict, judged: str) -> Limits | None:
    """The limits that a side is held to; None where it has none."""
    if side["upper"] is None or side["worst_bin_upper"] is None:
        return None
    if judged == "rise":
        place = side["worst_bin_first"], side["worst_bin_last"]
        return Limits(judged, (None, side["upper"]), (None, side["worst_bin_upper"]), *place)
    # Sweeps of earlier versions kept upper limits alone.
    if "stretches" not in side:
        return None
    scaled = []
    for part in (side, *side["stretches"]):
        # in perplexity the limits are shares of the dense perplexity of the same texts
        size = part["perplexity_dense"] if judged == "perplexity" else 1.0
        scaled.append((part["lower"] * size, part["upper"] * size))
    average, *others = scaled
    worst = max(range(len(others)), key=lambda place: max(map(abs, others[place])))
    stretch = side["stretches"][worst]
    return Limits(judged, average, others[worst], stretch["first"], stretch["last"])


def verdict(row: dict, tolerance: float, tolerance_bin: float, judged: str = "rise") -> dict:
    """`passes`, and in `fails` what does not, in words, on the selection side; `holds` on the other (None without)."""
    side, report = row["select"], row["report"]
    limits, failures = limits_of(side, judged), []
    if limits is None and side["upper"] is not None and "stretches" not in side:
        failures.append("the sweep is of an earlier version and has no lower limits: measure it again")
    elif limits is None:
        failures.append(f"{side['units']} {side['unit']} are too few for a limit")
    else:
        outside = limits.outside(tolerance, tolerance_bin)
        if outside["average"]:
            change = limits.words(limits.average, "up to ")
            failures.append(f"perplexity may change by {change} (allowed {limits.allowed(tolerance)})")
        if outside["stretch"]:
            change = limits.words(limits.stretch, "up to ")
            failures.append(f"{limits.place} by {change} (allowed {limits.allowed(tolerance_bin)})")
    limits = None if report is None else limits_of(report, judged)
    holds = None if limits is None else not any(limits.outside(tolerance, tolerance_bin).values())
    return {"passes": not failures, "fails": " and ".join(failures) or None, "holds": holds}


def judged(rows: list[dict], tolerance: float, tolerance_bin: float, by: str = "rise") -> dict:
    """The `summary` of measured rows under other tolerances than those of their sweep."""
    return summary([row | verdict(row, tolerance, tolerance_bin, by) for row in rows], by)


def chosen_cap(rows: list[dict]) -> int | None:
    """The smallest cap that passes; None where none does."""
    return next((row["cap"] for row in rows if row["passes"]), None)


def summary(rows: list[dict], judged: str = "rise") -> dict:
    """`sweep`, `cap`, and the `sentence` that says which cap is chosen, where the one below it fails, and what the
    chosen one does on other texts."""
    cap = chosen_cap(rows)
    below = [row for row in rows if cap is None or row["cap"] < cap]
    if cap is None:
        sentence = f"No cap passes: at the largest, {below[-1]['cap']:,}, {below[-1]['fails']}."
        return {"sweep": rows, "cap": cap, "sentence": sentence}
    row = next(row for row in rows if row["cap"] == cap)
    side, limits = row["select"], limits_of(row["select"], judged)
    assert limits is not None, "a row without limits does not pass"
    average, worst = (limits.words(part, "at most ") for part in (limits.average, limits.stretch))
    sentence = (
        f"The smallest cap that passes is {cap:,}: it reads {row['reads_causal']:.1%} of the causal pairs, and from "
        f"{side['units']:,} {side['unit']} perplexity changes by {average}, at {limits.place} by {worst} "
        "(one-sided 95% limits)."
    )
    sentence += f" At {below[-1]['cap']:,} {below[-1]['fails']}." if below else ""
    report = row["report"]
    limits = None if report is None else limits_of(report, judged)
    if report is None:
        elsewhere = "No text is left on which the choice could be reported."
    elif limits is None:
        change = signed(report["difference"], ".1%")
        elsewhere = f"On other text it changes perplexity by {change}, of too few units for a limit."
    else:
        average, worst = (limits.words(part, "") for part in (limits.average, limits.stretch))
        verb, most = "holds" if row["holds"] else "does not hold", "at most " if limits.average[0] is None else ""
        units = f"{report['units']:,} other {report['unit']}"
        elsewhere = f"On {units} that {verb}: {most}{average}, and {worst} at {limits.place}."
    return {"sweep": rows, "cap": cap, "sentence": f"{sentence} {elsewhere}"}
