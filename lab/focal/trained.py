"""Training with a softmax temperature: constant, learned, or adapted to later (Focal Attention, tables 1 and 2,
figure 8a).
"""

from analysis.errors import BadSetting
from analysis.studies.stored.comparisons import holm_corrected, multiplicity_note, scope_of_claim
from analysis.studies.stored.panels import panel, series
from analysis.studies.stored.runner import Setting, Study
from lab.focal import rows
from lab.focal.arms import FURTHER, Arm, Pooled, Sizes, part, sample, train_arms

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


def measure(at: Setting) -> dict:
    """A small model trained with constant temperatures, a learned one and none, at equal tokens.

    `rows` of the sizes, joined by commas: numbers are constant temperatures, `dense`, `learned`, `literal` (learned as
    the paper prints it, the mean over the whole text), `adapted` (dense training, then further with t = 0.4 and
    without) and `plain` (dense and t = 0.4 without the norm of queries and keys); default: 0.3 to 0.6 and all of these.
    `rows`: `arm t tau_min tau_max norm further perplexity against_dense gains temperature parameters tokens`;
    `against_dense` in nats, with `_low` and `_high`; of both the seeds' `_lowest` and `_highest`; `curves`; `layers`
    (learned temperatures). Errors: BadSetting, BadText.
    """
    arms = arms_of(at.sizes.rows)
    checking = [arm for arm in arms if arm.t in (1, BEST) and not arm.further] or arms[:1]
    found, told = train_arms(at, arms, checking)
    return numbers(found, told["windows"]) | told


def arms_of(wanted: str | None) -> list[Arm]:
    """The arms that `rows` names. Errors: BadSetting."""
    words = [word.strip() for word in wanted.split(",")] if wanted else ["dense", *map(str, CONSTANT)]
    words += [] if wanted else ["learned", "literal", "adapted", "plain"]
    found = [arm for word in words for arm in _arms(word)]
    return list({arm.key: arm for arm in found}.values())


def _arms(word: str) -> list[Arm]:
    sharp = f"t {BEST:g}"
    known = {
        "dense": [Arm("dense")],
        "learned": [Arm("learned", limits=PAPER_LIMITS)],
        "literal": [Arm(FUTURE, limits=PAPER_LIMITS, mean="literal")],
        "adapted": [Arm("dense, further", further=True), Arm(f"{sharp}, adapted", t=BEST, further=True)],
        "plain": [Arm("dense, no norm", norm=False), Arm(f"{sharp}, no norm", t=BEST, norm=False)],
    }
    if word in known:
        return known[word]
    try:
        t = float(word)
    except ValueError:
        raise BadSetting(
            f"There is no row {word[:40]!r}: the rows are {', '.join(known)} and temperatures such as 0.4."
        ) from None
    return [Arm("dense")] if t == 1 else [Arm(f"t {t:g}", t=t)]


def numbers(found: dict[Arm, Pooled], windows: int) -> dict:
    """What is stored of trained arms."""
    layers = [
        {"arm": arm.name, "seed": place, "layer": layer, "temperature": value}
        for arm, pooled in found.items()
        if arm.limits
        for place, part in enumerate(pooled.parts)
        for layer, value in enumerate(part["temperature"])
    ]
    table, curves = rows.of_arms(found), rows.plain_curves(found)
    return {"rows": table, "curves": curves, "layers": layers, "windows": windows}


def shown(numbers: dict) -> dict:
    """How the study is told and drawn."""
    table = numbers["rows"]
    adapted = [ADAPTED] if any(row["further"] for row in table) else []
    adapted += [LITERAL] if any(row["arm"] == FUTURE for row in table) else []
    return {
        "sentence": sentence(table, numbers["protocol"]["seeds"]),
        "columns": rows.columns(),
        "panels": [*_panels(table, numbers["layers"]), *rows.curves(table, numbers["curves"])],
        "notes": rows.notes(numbers, *adapted),
    }


def _panels(table: list[dict], layers: list[dict]) -> list[dict]:
    constant = sorted((row for row in table if _constant(row)), key=lambda row: row["t"])
    made = []
    if constant:
        learned = [row for row in table if row["arm"] == "learned" and rows.against(row)]
        x = [row["t"] for row in constant] + [round(row["temperature"], 2) for row in learned]
        named = {"constant": [*constant, *[None] * len(learned)]}
        if learned:
            named["learned, at its mean"] = [None] * len(constant) + learned
        made.append(rows.compared("By temperature (figure 8a)", "t", "softmax temperature", x, named))
    others = [row for row in table if not _constant(row) and rows.against(row) and row["t"] != 1]
    if others:
        title, names = "Learned, adapted, without the norm", [row["arm"] for row in others]
        made.append(rows.compared(title, "arm", "trained with", names, {"this arm": others}))
    layers = [row for row in layers if row["arm"] == "learned"]
    if layers:
        depth = 1 + max(row["layer"] for row in layers)
        mine = [[row["temperature"] for row in layers if row["layer"] == layer] for layer in range(depth)]
        line = series("learned", [sum(values) / len(values) for values in mine])
        made.append(panel("What was learned", "layer", "layer", list(range(depth)), "temperature, dense is 1", [line]))
    return made


def _constant(row: dict) -> bool:
    """A model that was trained with normalised queries and keys from its start, with a constant temperature or none."""
    return row["t"] is not None and row["norm"] and not row["further"] and row[rows.AGAINST] is not None


def sentence(table: list[dict], seeds: int) -> str:
    """What training with a temperature brings, whichever way it came out."""
    table = holm_corrected(table, rows.AGAINST)
    constant = [row for row in table if _constant(row) and row["t"] != 1]
    dense = next((row for row in table if row["arm"] == "dense"), None)
    if dense is None:
        return "Without dense training there is nothing to compare with."
    said = []
    if constant:
        winners = [row for row in constant if rows.sure(row) < 0]
        best = min(winners or constant, key=lambda row: row["loss"])
        count = len(constant)
        none = f"no constant temperature is shown to beat dense training; the lowest of {count}, {best['t']:g}, is "
        found = f"the lowest of {count} constant temperatures is {best['t']:g}: " if winners else none
        said.append(found + rows.told(best))
    for row in table:
        if not _constant(row) and rows.against(row) and row["t"] != 1:
            other = "the same without a temperature" if row["further"] or not row["norm"] else ""
            said.append(f"{row['arm']}: {rows.told(row, other)}")
    start = f"Held-out loss against dense training (perplexity {dense['perplexity']:.2f})"
    whom = f"{multiplicity_note(table, rows.AGAINST)}{scope_of_claim(seeds, 'model')}"
    return f"{start}: {'; '.join(said)}.{whom}" if said else f"{start}: nothing else was trained."


TABLES = ("rows", "curves")
focal_temperatures = Study("focal-temperatures", __doc__, Sizes, measure, shown, sample, tables=TABLES, part=part)
