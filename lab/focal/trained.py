"""Training with a softmax temperature: constant, learned, or adapted to later (Focal Attention, tables 1 and 2,
figure 8a).
"""

from analysis.errors import BadSetting
from analysis.studies.stored.panels import panel, series
from analysis.studies.stored.runner import Setting, Study
from lab.focal import rows
from lab.focal.arms import FURTHER, Arm, Pooled, Sizes, part, sample, train_arms
from lab.harness.telling import concluded

CONSTANT = (0.3, 0.4, 0.5, 0.6)
PAPER_LIMITS = (5.0, 10.0)
BEST = 0.4  # of the paper
FUTURE = "learned, literal means (reads the future)"
ADAPTED = (
    f"Adapted models begin with the weights of dense training and see an {FURTHER}th of the tokens more, drawn anew, "
    "at a tenth of the rates, with t and, to hold it against, without."
)
LITERAL = (
    "Literal means, which the paper prints, are over the whole text: read so, a model sees the future, and its loss is "
    "no prediction. Read with prefix means the same model does not."
)


def measure(run: Setting) -> dict:
    """A small model trained with constant temperatures, a learned one and none, at equal tokens. `rows` of the sizes,
    joined by commas: numbers are constant temperatures, `dense`, `learned`, `literal` (learned as the paper prints it,
    the mean over the whole text), `adapted` (dense training, then further with t = 0.4 and without) and `plain` (dense
    and t = 0.4 without the norm of queries and keys). Errors: BadSetting, BadText."""
    arms = arms_of(run.sizes.rows)
    checking = [arm for arm in arms if arm.t in (1, BEST) and not arm.further] or arms[:1]
    trained, about = train_arms(run, arms, checking)
    return numbers(trained, about["windows"]) | about


def arms_of(wanted: str | None) -> list[Arm]:
    """The arms that `rows` names. Errors: BadSetting."""
    words = [word.strip() for word in wanted.split(",")] if wanted else ["dense", *map(str, CONSTANT)]
    words += [] if wanted else ["learned", "literal", "adapted", "plain"]
    arms = [arm for word in words for arm in _arms(word)]
    return list({arm.key: arm for arm in arms}.values())


def _arms(word: str) -> list[Arm]:
    sharp = f"t {BEST:g}"
    by_word = {
        "dense": [Arm("dense")],
        "learned": [Arm("learned", limits=PAPER_LIMITS)],
        "literal": [Arm(FUTURE, limits=PAPER_LIMITS, mean="literal")],
        "adapted": [Arm("dense, further", further=True), Arm(f"{sharp}, adapted", t=BEST, further=True)],
        "plain": [Arm("dense, no norm", norm=False), Arm(f"{sharp}, no norm", t=BEST, norm=False)],
    }
    if word in by_word:
        return by_word[word]
    try:
        t = float(word)
    except ValueError:
        raise BadSetting(
            f"There is no row {word[:40]!r}: the rows are {', '.join(by_word)} and temperatures such as 0.4."
        ) from None
    return [Arm("dense")] if t == 1 else [Arm(f"t {t:g}", t=t)]


def numbers(trained: dict[Arm, Pooled], windows: int) -> dict:
    """What is stored of trained arms."""
    layers = []
    for arm, pooled in trained.items():
        for seed, kept in enumerate(pooled.parts if arm.limits else ()):
            for layer, value in enumerate(kept["temperature"]):
                layers.append({"arm": arm.name, "seed": seed, "layer": layer, "temperature": value})
    table, curves = rows.of_arms(trained), rows.plain_curves(trained)
    return {"rows": table, "curves": curves, "layers": layers, "windows": windows}


def shown(numbers: dict) -> dict:
    """What training with a temperature brings, whichever way it came out."""
    table, protocol = numbers["rows"], numbers["protocol"]
    dense = next((row for row in table if row["arm"] == "dense"), None)
    compared = [row for row in table if rows.against(row) and row["t"] != 1]
    sentence = "Without dense training there is nothing to compare with."
    if dense:
        lead = f"Held-out loss against the same training without a temperature (perplexity {dense['perplexity']:.2f}): "
        names, words = "{arm}".format_map, ("lower", "higher")
        sentence = concluded(lead, compared, {rows.AGAINST: ""}, names, protocol["seeds"], "model", words=words)
    notes = [ADAPTED] if any(row["further"] for row in table) else []
    notes += [LITERAL] if any(row["arm"] == FUTURE for row in table) else []
    return {
        "sentence": sentence,
        "columns": rows.columns(),
        "panels": [*_panels(table, numbers["layers"]), *rows.curves(table, numbers["curves"])],
        "notes": rows.notes(numbers, *notes),
    }


def _panels(table: list[dict], layers: list[dict]) -> list[dict]:
    """Loss by constant temperature, of the other arms, and what each layer learned."""
    constant, others = [], []
    for row in table:
        if row["t"] is not None and row["norm"] and not row["further"] and rows.against(row):
            constant.append(row)
        elif rows.against(row) and row["t"] != 1:
            others.append(row)
    panels = []
    if constant:
        constant.sort(key=lambda row: row["t"])
        learned = [row for row in table if row["arm"] == "learned" and rows.against(row)]
        x = [row["t"] for row in constant] + [round(row["temperature"], 2) for row in learned]
        named = {"constant": [*constant, *[None] * len(learned)]}
        if learned:
            named["learned, at its mean"] = [None] * len(constant) + learned
        panels.append(rows.compared("By temperature (figure 8a)", "t", "softmax temperature", x, named))
    if others:
        title, names = "Learned, adapted, without the norm", [row["arm"] for row in others]
        panels.append(rows.compared(title, "arm", "trained with", names, {"this arm": others}))
    by_layer: dict[int, list[float]] = {}
    for row in layers:
        if row["arm"] == "learned":
            by_layer.setdefault(row["layer"], []).append(row["temperature"])
    if by_layer:
        line = series("learned", [sum(values) / len(values) for values in by_layer.values()])
        axes = ("layer", "layer", list(by_layer), "temperature, dense is 1")
        panels.append(panel("What was learned", *axes, [line]))
    return panels


TABLES = ("rows", "curves")
focal_temperatures = Study("focal-temperatures", __doc__, Sizes, measure, shown, sample, tables=TABLES, part=part)
