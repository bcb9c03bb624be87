"""Perplexity of a text against the softmax temperature: of all layers, of a set layer by layer, of one at a time."""

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from ...answer import Worded, doc, record
from ...claims import Comparison
from ...commands.temperature import TemperatureCurve
from ...methods import METHODS
from ...methods.focal import Focal
from ...metrics.intervals import holm
from ...metrics.paired import perplexity_change
from ...metrics.quality import BINS, position_bins
from ...models import Model
from ..context import Context, protocol
from ..text.scoring import Difference, Progress, columns, whole_windows, window_losses
from .sharpness import check_temperatures

ALL_LAYERS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5)
KERNEL = "torch dense on sharpened queries"
UNTRAINED = (
    "The model was not trained with these temperatures: the paper's gain is of models that were, and what is measured "
    "here is what sharpening alone does."
)


class Curve:
    """Perplexity of windows of tokens [n, length] at temperatures, each pass paired with dense attention's; `documents`
    [n], which document each window is of, are the units where they are given."""

    def __init__(
        self, lm: Model, ids: np.ndarray, report: Callable[[str], None], documents: np.ndarray | None = None
    ) -> None:
        self.lm, self.ids, self.report, self.documents = lm, ids, report, documents
        self.dense = window_losses(lm, ids, METHODS["dense"](), report, "dense")

    def row(self, t: float | None = None, by_layer: tuple[float, ...] = ()) -> tuple[dict, np.ndarray]:
        """(`perplexity difference low high units unit p state`, losses [n, length - 1]) of one temperature, or of one
        for each layer."""
        temperatures = by_layer if t is None else (t,) * self.lm.num_layers
        name = f"layers at {', '.join(f'{value:g}' for value in by_layer)}" if t is None else f"temperature {t:g}"
        losses = self.dense
        if set(temperatures) != {1.0}:
            losses = window_losses(self.lm, self.ids, Focal(by_layer=temperatures), self.report, name)
        change = perplexity_change(losses, self.dense, self.documents)
        row = {"perplexity": math.exp(losses.mean()), **columns(Difference, change)}
        return row | {"p": change.p, "state": change.state}, losses

    def one_layer(self, layer: int, t: float) -> dict:
        """The row of a model of which only `layer`, by the model's own number, has the temperature `t`."""
        by_layer = tuple(t if number == layer else 1.0 for number in self.lm.layer_numbers)
        return {"layer": layer, "t": t} | self.row(by_layer=by_layer)[0]

    def bins(self, losses: np.ndarray, t: float) -> list[dict]:
        """`t bin first last n perplexity difference` by position in the window."""
        table, dense = (position_bins(x, min(BINS, x.shape[1])) for x in (losses, self.dense))
        table["difference"] = table["perplexity"] / dense["perplexity"] - 1
        return [{"t": t, **row} for row in table.to_dict("records")]


@record
class CurveOfText(Worded):
    """Perplexity of a text against the softmax temperature."""

    by_layer: dict | None = doc("the row of one temperature for each layer, with these")
    perplexity_dense: float = doc("of dense attention")
    curve: pd.DataFrame = doc("per temperature of all layers: perplexity and its paired change against dense")
    bins: pd.DataFrame = doc("per temperature the same by position in the window")
    layers: pd.DataFrame = doc("the same where one layer alone has a temperature")


def temperature_curve(request: TemperatureCurve, *, context: Context) -> CurveOfText:
    """Perplexity of a text at temperatures `t` of all layers, at one set `by_layer`, and of each of `layers` in one
    layer alone, all others at 1. Errors: BadSetting, BadText."""
    lm = context.model(request.model)
    temperatures = check_temperatures(request.t, ALL_LAYERS)
    alone = check_temperatures(request.layers, ()) if request.layers else []
    chosen = check_temperatures(request.by_layer, (), lm) if request.by_layer is not None else None
    reading = whole_windows(context, lm, request.text, request.window, request.long_text)
    ids = np.stack(reading.windows)
    passes = len(ids) * (1 + len(temperatures) + len(alone) * lm.num_layers + (chosen is not None))
    curve = Curve(lm, ids, Progress(context, passes))
    rows, bins = curve_of(curve, temperatures)
    layered = curve.row(by_layer=tuple(chosen))[0] | {"t": chosen} if chosen else None
    one_by_one = [curve.one_layer(layer, value) for value in alone for layer in lm.layer_numbers]
    about = {"window": ids.shape[1], "seed": request.seed, "kernel": KERNEL, "unit": rows[0]["unit"]}
    names = ["layer", "t", *[name for name in rows[0] if name != "t"]]
    return CurveOfText(
        by_layer=layered,
        perplexity_dense=math.exp(curve.dense.mean()),
        sentence=sentence(rows, reading.name),
        notes=[*reading.notes, UNTRAINED],
        curve=pd.DataFrame(rows),
        bins=pd.DataFrame(bins),
        layers=pd.DataFrame(one_by_one, columns=names),
        protocol=protocol("temperature-curve", lm, request.text, ids.size, **about),
    )


def curve_of(curve: Curve, temperatures: list[float]) -> tuple[list[dict], list[dict]]:
    """Rows of `Curve.row` with their `t`, and of `Curve.bins`, at each temperature."""
    table, bins = [], []
    for t in temperatures:
        row, losses = curve.row(t=t)
        table.append({"t": t, **row})
        bins += curve.bins(losses, t)
    return table, bins


def sentence(rows: list[dict], name: str) -> str:
    """The lowest temperature of a curve's rows, which chose itself among them, and whether it is told apart from dense
    attention after Holm's correction for all of them."""
    dense = next((row for row in rows if row["t"] == 1), None)
    sharpened = [row for row in rows if row["t"] != 1]
    if dense is None or not sharpened:
        best = min(rows, key=lambda row: row["perplexity"])
        return f"{name}: lowest perplexity {best['perplexity']:.2f} at temperature {best['t']:g}."
    lowest = min(range(len(sharpened)), key=lambda place: sharpened[place]["perplexity"])
    best, count = sharpened[lowest], len(sharpened)
    chosen = "the texts that choose it" if best["unit"] == "documents" else "the text that chooses it"
    subject = f"the lowest of {count} temperatures, on {chosen}, is" if count > 1 else "temperature"
    text = f"{name}: {subject} {best['t']:g}, perplexity {best['perplexity']:.2f} against {dense['perplexity']:.2f} "
    low, high = (best.get(edge, best.get(f"difference_{edge}")) for edge in ("low", "high"))
    p_holm = None if low is None else float(holm([row["p"] for row in sharpened])[lowest])
    change = Comparison(best["difference"], low, high, "fine change", p_holm=p_holm)
    if change.low is None:
        return f"{text}({change.size}; {best['state']}), {change.relation()}."
    text += f"({change.size}, {change.interval.removeprefix('95% interval ')}; {best['state']})"
    family = f" after Holm's correction for {count} comparisons" if count > 1 else ""
    limit = "" if change.direction else f"; {change.detectable}"
    return f"{text}, {change.relation('lower', 'higher')}{family}{limit}."
