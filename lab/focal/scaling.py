"""Does a softmax temperature pay with size, tokens and context? (Focal Attention, sections 4.1.1-4.1.3, figures 2-4)"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from analysis.studies.stored.panels import column, panel, series
from analysis.studies.stored.runner import Setting, Study
from analysis.studies.text.held_out import chosen
from lab.focal import rows
from lab.focal.arms import SHARES, WIDTH, Arm, Pooled, Sizes, part, sample, train_arms
from lab.harness.telling import concluded

NO_GAIN = "no gain seen"
OUTSIDE = "outside what was measured"
GAIN = "gain"
WIDTHS = (96, WIDTH, 160)
WAYS = {"dense": {}, "t 0.4": {"t": 0.4}, "learned": {"limits": (5.0, 10.0)}}
MATCHED = (
    "Matched parameters and tokens are interpolated over their logarithm between measured points, and only where the "
    "paired interval shows a lower loss; the measured points of one training lie under one falling rate, as the "
    "paper's checkpoints do."
)


def measure(run: Setting) -> dict:
    """Dense training, t = 0.4 and a learned temperature at three widths, and at the middle one half and twice the
    context `length`; every model is read after 25, 50, 75 and 100% of its tokens. `rows` of the sizes: some of `size`,
    `context` (default: both). All contexts train on as many tokens per step and read as many held-out ones: the shorter
    the same, the longer others, whole windows of its own. Errors: BadSetting, BadText."""
    arms = arms_of(run.sizes.rows, run.sizes.length)
    trained, about = train_arms(run, arms, arms[:2])
    return numbers(trained, run.sizes.length, about["windows"]) | about


def arms_of(wanted: str | None, length: int) -> list[Arm]:
    """The arms that `rows` names. Errors: BadSetting."""
    parts = chosen(wanted, ["size", "context"])
    places = [(width, None) for width in WIDTHS] if "size" in parts else [(WIDTH, None)]
    if "context" in parts:
        places += [(WIDTH, length // 2), (WIDTH, 2 * length)]
    return [Arm(way, width=width, context=size, **more) for width, size in places for way, more in WAYS.items()]


def numbers(trained: dict[Arm, Pooled], length: int, windows: int) -> dict:
    """What is stored of trained arms: `points` at each share of the tokens, and what dense training needs for the same
    loss in `parameters` and `tokens`."""
    table, points, named = rows.of_arms(trained), [], {}
    pooled = {}
    for row, (arm, trained_arm) in zip(table, trained.items(), strict=True):
        row["context"] = row["context"] or length
        pooled[_place(row)] = trained_arm
        named[replace(arm, name=f"{arm.name}, width {arm.width}, context {row['context']}")] = trained_arm
        for at, share in enumerate(SHARES):
            point = {"arm": row["arm"], "width": row["width"], "context": row["context"], "share": share}
            points.append(point | {"tokens": trained_arm.tokens(at), "loss": float(trained_arm.means(at).mean())})
    here = [row for row in table if row["context"] == length]
    sharp = [row for row in here if row["arm"] != "dense" and rows.against(row)]
    dense = [row for row in here if row["arm"] == "dense"]
    return {
        "rows": table,
        "curves": rows.plain_curves(named),
        "points": points,
        "parameters": parameters(sharp, dense) if len(dense) > 1 else [],
        "tokens": [tokens(row, pooled[_place(row)], pooled["dense", row["width"], length]) for row in sharp],
        "length": length,
        "windows": windows,
    }


def shown(numbers: dict) -> dict:
    """What a temperature saves, and where, whichever way it came out."""
    table, length, protocol = numbers["rows"], numbers["length"], numbers["protocol"]
    sharp = [row for row in table if row["arm"] != "dense" and rows.against(row)]
    same = "To the same loss as dense training"
    parts = [f"{same}, parameters: {in_words(numbers['parameters'])}"] if numbers["parameters"] else []
    parts.append(f"{same}, tokens: {in_words(numbers['tokens'])}")
    name = "{arm}, width {width}, context {context:,}".format_map
    words, controls = ("lower", "higher"), {rows.AGAINST: "dense training"}
    lead = f"{'. '.join(parts)}. Loss of "
    return {
        "sentence": concluded(lead, sharp, controls, name, protocol["seeds"], "model", words=words),
        "columns": rows.columns(column("width", "width"), column("context", "context", "tokens")),
        "panels": _panels(table, numbers["points"], length),
        "notes": rows.notes(numbers, MATCHED),
    }


def _place(row: dict) -> tuple[str, int, int]:
    return row["arm"], row["width"], row["context"]


def _panels(table: list[dict], points: list[dict], length: int) -> list[dict]:
    """Figures 2, 3 and 4: loss by parameters, by tokens at the middle width, and against dense by context."""
    at = {_place(row): row for row in table}
    widths, contexts = (sorted({row[name] for row in table}) for name in ("width", "context"))
    charts = []
    if len(widths) > 1:
        sizes = [at["dense", width, length]["parameters"] for width in widths]
        lines = [series(way, [at[way, width, length]["loss"] for width in widths]) for way in WAYS]
        charts.append(panel("By size (figure 2)", "parameters", "parameters", sizes, "nats per token", lines))
    by_way = {way: [row for row in points if _place(row) == (way, WIDTH, length)] for way in WAYS}
    counts = [row["tokens"] for row in by_way["dense"]]
    lines = [series(way, [row["loss"] for row in listed]) for way, listed in by_way.items()]
    charts.append(panel("By tokens (figure 3)", "tokens", "training tokens", counts, "nats per token", lines))
    for name, title, x in (("width", "by width", widths), ("context", "by context (figure 4)", contexts)):
        if len(x) > 1:
            places = [(one, length) if name == "width" else (WIDTH, one) for one in x]
            named = {way: [at.get((way, *place)) for place in places] for way in WAYS if way != "dense"}
            charts.append(rows.compared(f"Against dense, {title}", name, name, x, named))
    return charts


def reached(x: Sequence[float], losses: Sequence[float], loss: float) -> float | None:
    """The `x` (rising: parameters or tokens) at which a curve of losses comes to `loss`, between two measured points
    where it falls, interpolated over log x; None where no falling stretch holds it."""
    for (a, high), (b, low) in pairwise(zip(x, losses, strict=True)):
        if low <= loss <= high and low < high:
            share = (high - loss) / (high - low)
            return math.exp(math.log(a) + share * (math.log(b) - math.log(a)))
    return None


def parameters(sharp: list[dict], dense: list[dict]) -> list[dict]:
    """For each row (a model with a temperature, with `against_dense`): how many parameters dense training needs to come
    as low, by the dense rows of all sizes. `arm width parameters matched saved verdict`; `saved` as a share."""
    ladder = sorted(dense, key=lambda row: row["parameters"])
    sizes, losses = ([row[name] for row in ladder] for name in ("parameters", "loss"))
    return [_matched(row, "parameters", row["parameters"], reached(sizes, losses, row["loss"])) for row in sharp]


def tokens(row: dict, trained: Pooled, dense: Pooled) -> dict:
    """After how many tokens a model with a temperature is where dense training ends. `arm width tokens matched saved
    verdict`."""
    places = range(len(trained.parts[0]["checkpoints"]))
    counts, losses = [trained.tokens(at) for at in places], [float(trained.means(at).mean()) for at in places]
    return _matched(row, "tokens", row["tokens"], reached(counts, losses, float(dense.means().mean())))


def _matched(row: dict, quantity: str, amount: int, match: float | None) -> dict:
    """What is saved: of parameters the match is dense training's, which needs more; of tokens it is the row's own,
    which needs fewer."""
    ratio = None if match is None else amount / match if quantity == "parameters" else match / amount
    verdict = NO_GAIN if rows.sure(row) >= 0 else OUTSIDE if ratio is None or ratio > 1 else GAIN
    gained = verdict == GAIN
    about = {"arm": row["arm"], "width": row["width"], quantity: amount, "verdict": verdict}
    return about | {"matched": match if gained else None, "saved": 1 - ratio if gained else None}


def in_words(listed: list[dict]) -> str:
    """Matched parameters or tokens of several models in one clause."""
    gains = [row for row in listed if row["verdict"] == GAIN]
    outside = [row for row in listed if row["verdict"] == OUTSIDE]
    if not gains and not outside:
        return NO_GAIN
    parts = [f"{row['saved']:.0%} fewer ({row['arm']}, width {row['width']})" for row in gains]
    parts += [f"a gain {OUTSIDE} ({row['arm']}, width {row['width']})" for row in outside]
    left = len(listed) - len(parts)
    return ", ".join(parts) + (f"; {NO_GAIN} in {left} of {len(listed)}" if left else "")


TABLES = ("rows", "curves", "points", "parameters", "tokens")
focal_scaling = Study("focal-scaling", __doc__, Sizes, measure, shown, sample, part=part, tables=TABLES)
