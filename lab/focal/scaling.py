"""Does a softmax temperature pay with size, tokens and context? (Focal Attention, sections 4.1.1-4.1.3, figures 2-4)"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from analysis.claims import Comparison
from analysis.studies.stored.comparisons import Row, interval_caveat
from analysis.studies.stored.panels import column, panel, presented, series
from analysis.studies.text.held_out import chosen
from lab.focal import rows
from lab.focal.arm_study import ArmStudy
from lab.focal.arms import SHARES, WIDTH, Arm, Pooled
from lab.harness.telling import concluded, distinct

NO_GAIN, OUTSIDE, GAIN = "no gain seen", "outside what was measured", "gain"
WIDTHS = (96, WIDTH, 160)
WAYS: dict[str, dict[str, Any]] = {"dense": {}, "t 0.4": {"t": 0.4}, "learned": {"limits": (5.0, 10.0)}}


class FocalScaling(ArmStudy):
    """Dense training, t = 0.4 and a learned temperature at three widths, and at the middle one half and twice the
    context `length`; every model is read after 25, 50, 75 and 100% of its tokens. `rows`: some of `size`, `context`
    (default: both). All contexts train on as many tokens per step and read as many held-out ones: the shorter the same,
    the longer others, whole windows of its own."""

    tables = ("rows", "curves", "points", "parameters", "tokens")

    def arms(self) -> list[Arm]:
        parts = chosen(self.rows, ["size", "context"])
        places: list[tuple[int, int | None]] = [(width, None) for width in WIDTHS if "size" in parts or width == WIDTH]
        if "context" in parts:
            places += [(WIDTH, self.length // 2), (WIDTH, 2 * self.length)]
        return [Arm(way, width=width, context=size, **more) for width, size in places for way, more in WAYS.items()]

    def numbers(self, trained: dict[Arm, Pooled]) -> dict:
        """`points` at each share of the tokens, and what dense training needs for the same loss in `parameters` and
        `tokens`."""
        table, points, named, pooled = rows.of_arms(trained), [], {}, {}
        for row, (arm, of_arm) in zip(table, trained.items(), strict=True):
            row["context"] = row["context"] or self.length
            pooled[_place(row)] = of_arm
            named[replace(arm, name=f"{arm.name}, width {arm.width}, context {row['context']}")] = of_arm
            for number, share in enumerate(SHARES):
                point = {name: row[name] for name in ("arm", "width", "context")} | {"share": share}
                points.append(point | {"tokens": of_arm.tokens(number), "loss": float(of_arm.means(number).mean())})
        of_length = [row for row in table if row["context"] == self.length]
        sharp = [row for row in of_length if row["arm"] != "dense" and rows.against(row)]
        dense = [row for row in of_length if row["arm"] == "dense"]
        return {
            "rows": table,
            "curves": rows.plain_curves(named),
            "points": points,
            "parameters": parameters(sharp, dense) if len(dense) > 1 else [],
            "tokens": [tokens(row, pooled[_place(row)], pooled["dense", row["width"], self.length]) for row in sharp],
            "length": self.length,
        }

    @staticmethod
    def shown(numbers: dict) -> dict:
        table, protocol, parts = numbers["rows"], numbers["protocol"], []
        sharp = [row for row in table if row["arm"] != "dense" and rows.against(row)]
        for quantity in ("parameters", "tokens"):
            if numbers[quantity]:
                counts = [sum(row["verdict"] == verdict for row in numbers[quantity]) for verdict in (GAIN, OUTSIDE)]
                part = f"fewer {quantity} to the same loss as dense training in {counts[0]} of {len(numbers[quantity])}"
                parts.append(part + (f", and {counts[1]} more {OUTSIDE}" if counts[1] else ""))
        lead = f"With a temperature {'; '.join(parts)}. Loss, " if parts else "Loss, "
        subject = "{arm}, width {width}, context {context:,}"
        sentence = concluded(lead, sharp, rows.CONTROLS, subject, protocol["seeds"], "model")
        charts = _panels(table, numbers["points"], numbers["length"])
        sizes = rows.columns(column("width", "width"), column("context", "context", "tokens"))
        return presented("focal-scaling", sentence, charts, interval_caveat(protocol)) | {"columns": sizes}


def _place(row: Row) -> tuple[str, int, int]:
    return row["arm"], row["width"], row["context"]


def _panels(table: list[Row], points: list[Row], length: int) -> list[dict]:
    """Figures 2, 3 and 4: loss by parameters, by tokens at the middle width, and against dense by context."""
    by_place, charts, loss = {_place(row): row for row in table}, [], "nats per token"
    widths, contexts = (sorted(distinct(table, name)) for name in ("width", "context"))
    if len(widths) > 1:
        sizes = [by_place["dense", width, length]["parameters"] for width in widths]
        lines = [series(way, [by_place[way, width, length]["loss"] for width in widths]) for way in WAYS]
        charts.append(panel("By size (figure 2)", "parameters", "parameters", sizes, loss, lines))
    by_way = {way: [row for row in points if _place(row) == (way, WIDTH, length)] for way in WAYS}
    counts = [row["tokens"] for row in by_way["dense"]]
    lines = [series(way, [row["loss"] for row in listed]) for way, listed in by_way.items()]
    charts.append(panel("By tokens (figure 3)", "tokens", "training tokens", counts, loss, lines))
    for name, title, x in (("width", "by width", widths), ("context", "by context (figure 4)", contexts)):
        if len(x) > 1:
            places = [(size, length) if name == "width" else (WIDTH, size) for size in x]
            named = {way: [by_place.get((way, *place)) for place in places] for way in WAYS if way != "dense"}
            charts.append(rows.compared_panel(f"Against dense, {title}", name, name, x, named))
    return charts


def reached(x: Sequence[float], losses: Sequence[float], loss: float) -> float | None:
    """The `x` (rising: parameters or tokens) at which a curve of losses comes to `loss`, between two measured points
    where it falls, interpolated over log x; None where no falling stretch holds it."""
    for (a, high), (b, low) in pairwise(zip(x, losses, strict=True)):
        if low <= loss <= high and low < high:
            share = (high - loss) / (high - low)
            return math.exp(math.log(a) + share * (math.log(b) - math.log(a)))
    return None


def parameters(sharp: list[Row], dense: list[Row]) -> list[Row]:
    """For each row (a model with a temperature, with `against_dense`): how many parameters dense training needs to come
    as low, by the dense rows of all sizes. `arm width parameters matched saved verdict`; `saved` as a share."""
    ladder, matched = sorted(dense, key=lambda row: row["parameters"]), []
    sizes, losses = ([row[name] for row in ladder] for name in ("parameters", "loss"))
    for row in sharp:
        match = reached(sizes, losses, row["loss"])
        # Of parameters the match is dense training's, which needs more of them.
        matched.append(_matched(row, "parameters", match, match and row["parameters"] / match))
    return matched


def tokens(row: Row, trained: Pooled, dense: Pooled) -> Row:
    """After how many tokens a model with a temperature is where dense training ends. `arm width tokens matched saved
    verdict`."""
    places = range(len(trained.parts[0]["checkpoints"]))
    counts, losses = (
        [trained.tokens(checkpoint) for checkpoint in places],
        [float(trained.means(checkpoint).mean()) for checkpoint in places],
    )
    match = reached(counts, losses, float(dense.means().mean()))
    return _matched(row, "tokens", match, match and match / row["tokens"])


def _matched(row: Row, quantity: str, match: float | None, ratio: float | None) -> Row:
    verdict = NO_GAIN
    if Comparison.of(row, rows.AGAINST).direction < 0:
        verdict = OUTSIDE if ratio is None or ratio > 1 else GAIN
    about = {"arm": row["arm"], "width": row["width"], quantity: row[quantity], "verdict": verdict}
    if verdict != GAIN or ratio is None:
        return about | {"matched": None, "saved": None}
    return about | {"matched": match, "saved": 1 - ratio}
