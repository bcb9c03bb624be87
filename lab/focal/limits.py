"""Where a learned softmax temperature may go: its limits, one by one (Focal Attention, section 5.2, figure 8b)."""

import re

from analysis.errors import BadSetting
from analysis.studies.stored.panels import column, panel, series
from analysis.studies.stored.runner import Setting, Study
from lab.focal import rows
from lab.focal.arms import HEAD, Arm, Pooled, Sizes, part, sample, train_arms
from lab.harness.telling import concluded

LOWEST, HIGHEST = (1, 2, 3, 4, 5, 6, 7), (10.0, 11.31)  # in the paper's units: 11.31 is dense attention
USUAL = 5  # tau_min at which the upper limits are compared
SCALED = (
    f"Limits are the paper's, for heads of 128; these heads have {HEAD} dimensions, so they are scaled by "
    f"sqrt({HEAD}/128). The learned temperature beside dense attention, which is 1, then runs from tau_min/11.31 to "
    "tau_max/11.31; it begins at its upper limit."
)


def measure(run: Setting) -> dict:
    """A small model trained with learned temperatures between several limits, at equal tokens. `rows` of the sizes:
    `dense` and pairs such as `5-10` (tau_min-tau_max, in the paper's units), joined by commas. Errors: BadSetting, also
    where tau_min lies above tau_max, BadText."""
    arms = arms_of(run.sizes.rows)
    trained, about = train_arms(run, arms, arms[:2])
    return numbers(trained, about["windows"]) | about


def arms_of(wanted: str | None) -> list[Arm]:
    """The arms that `rows` names; default: dense, tau_min 1 to 7 with tau_max 10, and 5-11.31. Errors: BadSetting."""
    usual = ["dense", *(f"{low}-{HIGHEST[0]:g}" for low in LOWEST), f"{USUAL}-{HIGHEST[1]:g}"]
    arms = {}
    for word in [word.strip() for word in wanted.split(",")] if wanted else usual:
        limits = re.fullmatch(r"(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)", word)
        if word != "dense" and limits is None:
            raise BadSetting(f"There is no row {word[:40]!r}: the rows are dense and limits such as 5-10.")
        arm = Arm(f"tau {word}", limits=(float(limits[1]), float(limits[2]))) if limits else Arm("dense")
        arms[arm.key] = arm
    return list(arms.values())


def numbers(trained: dict[Arm, Pooled], windows: int) -> dict:
    """What is stored of trained arms."""
    return {"rows": rows.of_arms(trained), "curves": rows.plain_curves(trained), "windows": windows}


def shown(numbers: dict) -> dict:
    """Which limits come out best, and whether that is more than chance."""
    table, protocol = numbers["rows"], numbers["protocol"]
    learned = sorted((row for row in table if row["tau_min"] is not None), key=lambda row: row["tau_min"])
    lowest, highest = (list(dict.fromkeys(row[name] for row in learned)) for name in ("tau_min", "tau_max"))
    by_limits = {(row["tau_min"], row["tau_max"]): row for row in learned}
    named = {f"tau_max {high:g}": [by_limits.get((low, high)) for low in lowest] for high in highest}
    sentence, panels = "Without dense training, or without a learned temperature, there is nothing to compare.", []
    if compared := [row for row in learned if rows.against(row)]:
        best = min(compared, key=lambda row: row["loss"])
        lead = (
            f"The lowest of {len(compared)} limits, on the windows that choose it, is tau_min {best['tau_min']:g} with "
            f"tau_max {best['tau_max']:g}. Held-out loss, "
        )
        name = "tau_min {tau_min:g}, tau_max {tau_max:g}".format_map
        words = ("lower", "higher")
        controls = {rows.AGAINST: "dense training"}
        sentence = concluded(lead, compared, controls, name, protocol["seeds"], "model", words=words)
        panels.append(rows.compared("By the lower limit (figure 8b)", "tau_min", "tau_min", lowest, named))
    if learned:
        lines = [series(name, [row and row["temperature"] for row in listed]) for name, listed in named.items()]
        lines.append(series("lower limit", [low / 128**0.5 for low in lowest]))
        title, y = "What was learned, mean over layers", "temperature, dense is 1"
        panels.append(panel(title, "tau_min", "tau_min", lowest, y, lines))
    return {
        "sentence": sentence,
        "columns": rows.columns(column("tau_min", "tau_min"), column("tau_max", "tau_max")),
        "panels": [*panels, *rows.curves(table, numbers["curves"])],
        "notes": rows.notes(numbers, SCALED),
    }


focal_limits = Study("focal-limits", __doc__, Sizes, measure, shown, sample, part=part, tables=("rows", "curves"))
