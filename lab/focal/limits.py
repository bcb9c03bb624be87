"""Where a learned softmax temperature may go: its limits, one by one (Focal Attention, section 5.2, figure 8b)."""

import re

from analysis.errors import BadSetting
from analysis.studies.stored.comparisons import holm_corrected, multiplicity_note, scope_of_claim
from analysis.studies.stored.panels import column, panel, series
from analysis.studies.stored.runner import Setting, Study
from lab.focal import rows
from lab.focal.arms import HEAD, Arm, Pooled, Sizes, part, sample, train_arms

LOWEST, HIGHEST = (1, 2, 3, 4, 5, 6, 7), (10.0, 11.31)  # in the paper's units: 11.31 is dense attention
USUAL = 5  # tau_min at which the upper limits are compared
SCALED = (
    f"Limits are the paper's, for heads of 128; these heads have {HEAD} dimensions, so they are scaled by "
    f"sqrt({HEAD}/128). The learned temperature beside dense attention, which is 1, then runs from tau_min/11.31 to "
    "tau_max/11.31; it begins at its upper limit."
)


def measure(at: Setting) -> dict:
    """A small model trained with learned temperatures between several limits, at equal tokens.

    `rows` of the sizes: `dense` and pairs such as `5-10` (tau_min-tau_max, in the paper's units), joined by commas;
    default: dense, tau_min 1 to 7 with tau_max 10, and 5-11.31. The numbers are those of `focal_temperatures`. Errors:
    BadSetting, also where tau_min lies above tau_max, BadText.
    """
    arms = arms_of(at.sizes.rows)
    found, told = train_arms(at, arms, arms[:2])
    return numbers(found, told["windows"]) | told


def arms_of(wanted: str | None) -> list[Arm]:
    """The arms that `rows` names. Errors: BadSetting."""
    usual = ["dense", *(f"{low}-{HIGHEST[0]:g}" for low in LOWEST), f"{USUAL}-{HIGHEST[1]:g}"]
    words = [word.strip() for word in wanted.split(",")] if wanted else usual
    found = {}
    for word in words:
        limits = re.fullmatch(r"(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)", word)
        if word != "dense" and limits is None:
            raise BadSetting(f"There is no row {word[:40]!r}: the rows are dense and limits such as 5-10.")
        arm = Arm(f"tau {word}", limits=(float(limits[1]), float(limits[2]))) if limits else Arm("dense")
        found[arm.key] = arm
    return list(found.values())


def numbers(found: dict[Arm, Pooled], windows: int) -> dict:
    """What is stored of trained arms."""
    return {"rows": rows.of_arms(found), "curves": rows.plain_curves(found), "windows": windows}


def shown(numbers: dict) -> dict:
    """How the study is told and drawn."""
    table = numbers["rows"]
    learned = sorted((row for row in table if row["tau_min"] is not None), key=lambda row: row["tau_min"])
    lowest = list(dict.fromkeys(row["tau_min"] for row in learned))
    highest = list(dict.fromkeys(row["tau_max"] for row in learned))
    at = {(row["tau_min"], row["tau_max"]): row for row in learned}
    named = {f"tau_max {high:g}": [at.get((low, high)) for low in lowest] for high in highest}
    panels = []
    if any(map(rows.against, learned)):
        panels.append(rows.compared("By the lower limit (figure 8b)", "tau_min", "tau_min", lowest, named))
    if learned:
        lines = [series(name, [row and row["temperature"] for row in listed]) for name, listed in named.items()]
        lines.append(series("lower limit", [low / 128**0.5 for low in lowest]))
        title, y = "What was learned, mean over layers", "temperature, dense is 1"
        panels.append(panel(title, "tau_min", "tau_min", lowest, y, lines))
    return {
        "sentence": sentence(table, numbers["protocol"]["seeds"]),
        "columns": rows.columns(column("tau_min", "tau_min"), column("tau_max", "tau_max")),
        "panels": [*panels, *rows.curves(table, numbers["curves"])],
        "notes": rows.notes(numbers, SCALED),
    }


def sentence(table: list[dict], seeds: int) -> str:
    """Which limits come out best, and whether that is more than chance."""
    learned = [row for row in table if row["tau_min"] is not None and rows.against(row)]
    learned = holm_corrected(learned, rows.AGAINST)
    if not learned:
        return "Without dense training, or without a learned temperature, there is nothing to compare."
    winners, worse = ([row for row in learned if sign * rows.sure(row) > 0] for sign in (-1, 1))
    best = min(winners or learned, key=lambda row: row["loss"])
    limits = f"tau_min {best['tau_min']:g} with tau_max {best['tau_max']:g}"
    if winners:
        said = f"The lowest of {len(learned)} limits, on the windows that choose it, is {limits}: held-out loss "
        said += f"{rows.told(best, 'dense training')}."
    else:
        said = (
            f"No limits are shown to beat dense training; the lowest of {len(learned)}, {limits}, is {rows.told(best)}."
        )
    compared = multiplicity_note(learned, rows.AGAINST)
    near = [row for row in winners if row is not best and row[rows.AGAINST] <= best[f"{rows.AGAINST}_high"]]
    if near:
        said += f" Lower too, and inside its interval: {_listed(near)}."
    said += f" Worse than dense training: {_listed(worse)}." if worse else ""
    return said + compared + scope_of_claim(seeds, "model")


def _listed(table: list[dict]) -> str:
    return ", ".join(f"{row['tau_min']:g} to {row['tau_max']:g}" for row in table)


focal_limits = Study("focal-limits", __doc__, Sizes, measure, shown, sample, part=part, tables=("rows", "curves"))
