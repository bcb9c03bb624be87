"""Where a learned softmax temperature may go: its limits, one by one (Focal Attention, section 5.2, figure 8b)."""

import re

from analysis.errors import BadSetting
from analysis.studies.stored.comparisons import interval_caveat
from analysis.studies.stored.panels import column, panel, presented, series
from lab.focal import rows
from lab.focal.arm_study import ArmStudy
from lab.focal.arms import Arm, Pooled
from lab.harness.telling import concluded, distinct

# In the paper's units: 11.31 is dense attention.
LOWEST, HIGHEST = (1, 2, 3, 4, 5, 6, 7), (10.0, 11.31)
# Tau_min at which the upper limits are compared.
USUAL = 5


class FocalLimits(ArmStudy):
    """A small model trained with learned temperatures between several limits, at equal tokens. `rows`: `dense` and
    pairs such as `5-10` (tau_min-tau_max, in the paper's units), joined by commas."""

    tables = ("rows", "curves")

    usual = ("dense", *(f"{low}-{HIGHEST[0]:g}" for low in LOWEST), f"{USUAL}-{HIGHEST[1]:g}")

    def named(self, word: str) -> list[Arm]:
        limits = re.fullmatch(r"(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)", word)
        if word != "dense" and limits is None:
            raise BadSetting(f"There is no row {word[:40]!r}: the rows are dense and limits such as 5-10.")
        return [Arm(f"tau {word}", limits=(float(limits[1]), float(limits[2]))) if limits else Arm("dense")]

    def numbers(self, trained: dict[Arm, Pooled]) -> dict:
        return {"rows": rows.of_arms(trained), "curves": rows.plain_curves(trained)}

    @staticmethod
    def shown(numbers: dict) -> dict:
        table, protocol = numbers["rows"], numbers["protocol"]
        learned = sorted((row for row in table if row["tau_min"] is not None), key=lambda row: row["tau_min"])
        lowest, highest = distinct(learned, "tau_min"), distinct(learned, "tau_max")
        by_limits = {(row["tau_min"], row["tau_max"]): row for row in learned}
        named = {f"tau_max {high:g}": [by_limits.get((low, high)) for low in lowest] for high in highest}
        sentence, charts = "Without dense training, or without a learned temperature, there is nothing to compare.", []
        if compared := [row for row in learned if rows.against(row)]:
            best = min(compared, key=lambda row: row["loss"])
            lead = f"The lowest of {len(compared)} limits, on the windows that choose it, is tau_min "
            lead += f"{best['tau_min']:g} with tau_max {best['tau_max']:g}. Held-out loss, "
            subject = "tau_min {tau_min:g}, tau_max {tau_max:g}"
            sentence = concluded(lead, compared, rows.CONTROLS, subject, protocol["seeds"], "model")
            title = "By the lower limit (figure 8b)"
            charts.append(rows.compared_panel(title, "tau_min", "tau_min", lowest, named))
        if learned:
            lines = [series(name, [row and row["temperature"] for row in listed]) for name, listed in named.items()]
            lines.append(series("lower limit", [low / 128**0.5 for low in lowest]))
            title, y = "What was learned, mean over layers", "temperature, dense is 1"
            charts.append(panel(title, "tau_min", "tau_min", lowest, y, lines))
        charts += rows.curves_panel(table, numbers["curves"])
        limits = rows.columns(column("tau_min", "tau_min"), column("tau_max", "tau_max"))
        return presented("focal-limits", sentence, charts, interval_caveat(protocol)) | {"columns": limits}
