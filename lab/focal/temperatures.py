"""Training with a softmax temperature: constant, learned, or adapted to later (Focal Attention, tables 1 and 2,
figure 8a).
"""

import pandas as pd

from analysis.errors import BadSetting
from analysis.studies.stored.comparisons import Row, interval_caveat
from analysis.studies.stored.panels import panel, presented, series
from lab.focal import rows
from lab.focal.arm_study import ArmStudy
from lab.focal.arms import Arm, Pooled
from lab.harness.telling import concluded

CONSTANT = ("0.3", "0.4", "0.5", "0.6")
PAPER_LIMITS = (5.0, 10.0)
BEST = 0.4  # of the paper
SHARP = f"t {BEST:g}"
FUTURE = "learned, literal means (reads the future)"
ARMS = {
    "dense": [Arm("dense")],
    "learned": [Arm("learned", limits=PAPER_LIMITS)],
    "literal": [Arm(FUTURE, limits=PAPER_LIMITS, mean="literal")],
    "adapted": [Arm("dense, further", further=True), Arm(f"{SHARP}, adapted", t=BEST, further=True)],
    "plain": [Arm("dense, no norm", norm=False), Arm(f"{SHARP}, no norm", t=BEST, norm=False)],
    "printed": [
        Arm("dense, AdamW", printed=True),
        Arm(f"{SHARP}, AdamW", t=BEST, printed=True),
        Arm("learned, AdamW", limits=PAPER_LIMITS, printed=True),
    ],
}


class FocalTemperatures(ArmStudy):
    """A small model trained with constant temperatures, a learned one and none, at equal tokens. `rows`, joined by
    commas: numbers are constant temperatures, `dense`, `learned`, `literal` (learned as the paper prints it, the mean
    over the whole text), `adapted` (dense training, then further with t = 0.4 and without), `plain` (dense and t =
    0.4 without the norm of queries and keys) and `printed` (dense, t = 0.4 and learned by AdamW, as the paper's
    smallest model)."""

    tables = ("rows", "curves")

    usual = ("dense", *CONSTANT, "learned", "literal", "adapted", "plain", "printed")

    def named(self, word: str) -> list[Arm]:
        return ARMS.get(word) or [constant(word)]

    def checked(self, arms: list[Arm]) -> list[Arm]:
        return [arm for arm in arms if arm.t in (1, BEST) and not arm.further] or arms[:1]

    def numbers(self, trained: dict[Arm, Pooled]) -> dict:
        layers = []
        for arm, pooled in trained.items():
            for seed, part in enumerate(pooled.parts if arm.limits else ()):
                for layer, value in enumerate(part["temperature"]):
                    layers.append({"arm": arm.name, "seed": seed, "layer": layer, "temperature": value})
        table = {"rows": rows.of_arms(trained), "selected": rows.selected(trained)}
        return table | {"curves": rows.plain_curves(trained), "layers": layers}

    @staticmethod
    def shown(numbers: dict) -> dict:
        table, protocol = numbers["rows"], numbers["protocol"]
        compared = [row for row in table if rows.against(row) and row["t"] != 1]
        sentence = "Without dense training there is nothing to compare with."
        if compared:
            lead = "Held-out loss against the same training without a temperature, "
            sentence = concluded(lead, compared, {rows.AGAINST: ""}, "{arm}", protocol["seeds"], "model")
            if chosen := numbers.get("selected"):
                lead = " Of the constant ones other documents choose "
                sentence += concluded(lead, chosen, {rows.AGAINST: ""}, "{arm}")
        charts = [*_panels(table, numbers["layers"]), *rows.curves_panel(table, numbers["curves"])]
        summary = presented("focal-temperatures", sentence, charts, interval_caveat(protocol))
        return summary | {"columns": rows.columns()}


def constant(word: str) -> Arm:
    """The arm of a constant temperature. Errors: BadSetting."""
    try:
        t = float(word)
    except ValueError:
        raise BadSetting(
            f"There is no row {word[:40]!r}: the rows are {', '.join(ARMS)} and temperatures such as 0.4."
        ) from None
    return Arm("dense") if t == 1 else Arm(f"t {t:g}", t=t)


def _panels(table: list[dict], layers: list[dict]) -> list[dict]:
    """Loss by constant temperature, of the other arms, and what each layer learned."""
    steady, remaining, charts = [], [], []
    for row in filter(rows.against, table):
        if row["t"] is not None and row["norm"] and not row["further"] and not row["printed"]:
            steady.append(row)
        elif row["t"] != 1:
            remaining.append(row)
    if steady:
        steady.sort(key=lambda row: row["t"])
        learned = [row for row in remaining if row["arm"] == "learned"]
        x = [row["t"] for row in steady] + [round(row["temperature"], 2) for row in learned]
        named: dict[str, list[Row | None]] = {"constant": [*steady, *[None] * len(learned)]}
        if learned:
            named["learned, at its mean"] = [*[None] * len(steady), *learned]
        charts.append(rows.compared_panel("By temperature (figure 8a)", "t", "softmax temperature", x, named))
    if remaining:
        names = [row["arm"] for row in remaining]
        title = "Learned, adapted, without the norm, by AdamW"
        charts.append(rows.compared_panel(title, "arm", "trained with", names, {"this arm": [*remaining]}))
    by_layer = pd.DataFrame([row for row in layers if row["arm"] == "learned"])
    if len(by_layer):
        means = by_layer.groupby("layer")["temperature"].mean()
        axes = ("layer", "layer", means.index.tolist(), "temperature, dense is 1")
        charts.append(panel("What was learned", *axes, [series("learned", means.tolist())]))
    return charts
