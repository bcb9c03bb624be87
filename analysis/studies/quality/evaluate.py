"""How well the model predicts a text when it reads less: methods against dense, token by token, with what they read."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ...answer import Worded, doc, record
from ...claims import signed
from ...commands.quality import Evaluate
from ...errors import BadSetting
from ...methods import METHODS
from ...metrics.paired import perplexity_change, perplexity_of
from ...metrics.quality import bits_per_byte, position_changes, records
from ...models import Model
from ...models.own import selects_tokens
from ...seam.calls import MASKED
from ..context import Context, Reading, protocol
from ..ready.candidates import Candidate, Setting, candidates, looked_ahead
from ..text.scoring import ReadShares, Scored, columns, score, whole_windows
from ..text.text import token_table
from .equal_budget import ladder

# Of a share that was asked for: a method farther from it is named in the notes.
MISSED = 0.1
SUMMARY = ["label", "perplexity", "difference", "kl_mean", "kl_p99", "same_top1", "reads_causal", "reads_kv", "kv_read"]
BIN = ["bin", "first", "last", "n", "perplexity", "difference", "low", "high"]


@record
class MethodQuality(ReadShares, Setting):
    """One method on a text. Changes of perplexity are shares of dense attention's: 0.02 is 2% worse."""

    title: str = doc("title of the method")
    router: dict | None = doc("the router that it reads with")
    policy: dict | None = doc("the policy that it reads with")
    defaults: dict = doc("default of every setting")
    ceiling: bool = doc("it looks at every key to choose: a bound for other methods, not a saving")
    reads_future: bool = doc("later tokens decide over earlier ones")
    perplexity: float = doc("of the predicted tokens")
    low: float | None = doc("lower end of its 95% interval; null below 8 blocks of the text")
    high: float | None = doc("upper end of its 95% interval")
    units: int = doc("units of that interval")
    perplexity_dense: float = doc("of dense attention")
    difference: float = doc("paired change of perplexity against dense attention")
    difference_low: float | None = doc("lower end of its 95% interval")
    difference_high: float | None = doc("upper end of its 95% interval")
    difference_units: int = doc("units of that interval")
    difference_unit: str = doc("what such a unit is")
    bits_per_byte: float = doc("loss per byte of the predicted text")
    kl_mean: float = doc("mean divergence from dense attention, nats")
    kl_p99: float = doc("its 99th percentile, nats")
    same_top1: float = doc("share of tokens whose most likely token is that of dense attention")
    reads_full: float = doc("share of all pairs that a query head reads")
    worst_bin_difference: float = doc("largest change of perplexity of one bin")
    worst_bin: int = doc("that bin")
    bins: list[dict] = doc("perplexity and its change by position in the window")
    tokens: int = doc("predicted tokens")


@record
class Evaluation(Worded):
    """Quality of methods against dense attention on a text."""

    rows: list[MethodQuality] = doc("one per method")
    window: int = doc("tokens of a window")
    heads_sharing: int = doc("query heads that share one key-value head")
    summary: pd.DataFrame = doc("the rows in short", name="rows")
    tokens: pd.DataFrame = doc("tokens of the text")
    losses: pd.DataFrame = doc("per method (its place in rows) and predicted token: loss and kl in nats, difference")
    position_bins: pd.DataFrame = doc("the bins of all methods, by their place in rows", name="bins")


def evaluate(request: Evaluate, *, context: Context) -> Evaluation:
    """Quality of methods, a list of {"name", "settings", "router", "policy"} (all with their defaults unless given).

    Windows do not overlap and each starts without context; unless their tokens are named the fewest of equal length are
    taken, and `first` takes one, a shorter one of a shorter text. `share` is met in the first window. With
    `instead`, methods choose in the place of the model's own indexer; dense is the model as it is. Errors: BadSetting,
    BadText, NotFitted, all before a pass.
    """
    lm = context.model(request.model)
    if request.instead and not selects_tokens(lm):
        raise BadSetting(f"{lm.name} has no indexer of its own that methods could replace: leave that out.")
    chosen = candidates(context, lm, request.methods)
    reading = whole_windows(context, lm, request.text, request.window, request.long_text)
    if request.share is not None:
        chosen = _at_share(context, lm, request, reading.windows[0], request.share)
    methods = {candidate.label: candidate.method for candidate in chosen}
    dense, by_label = score(context, lm, request.text, reading, methods, indexer=not request.instead)
    scored = [by_label[candidate.label] for candidate in chosen]
    count = predicted_bytes(reading)
    rows, bins, losses = [], [], []
    for place, (candidate, method_scores) in enumerate(zip(chosen, scored, strict=True)):
        by_position = position_changes(method_scores.losses, dense.losses)
        rows.append(_row(candidate, method_scores, by_position[BIN], dense, count))
        if request.instead and not candidate.method.dense:
            rows[-1] = replace(rows[-1], label=f"{candidate.label}, instead of the indexer")
        bins.append(by_position[BIN].assign(method=place))
        losses.append(_losses(place, method_scores, dense))
    size = dense.losses.shape[1] + 1
    flattered = [
        f"{candidate.label} was calibrated on this text, which flatters it."
        for candidate in chosen
        if request.text in candidate.state.texts
    ]
    missed = [
        f"{row.label} reads {row.reads_causal:.0%}: none of its settings comes nearer to {request.share:.0%} here."
        for row in rows
        if request.share and row.method != "dense" and abs(row.reads_causal / request.share - 1) > MISSED
    ]
    replaced = ["Methods choose in place of the model's own indexer, which dense keeps."] * request.instead
    about: dict[str, Any] = {"instead": request.instead} if request.instead else {}
    about |= {"window": size, "stride": size, "seed": request.seed, "kernel": MASKED, "bins": by_position.attrs}
    return Evaluation(
        rows=rows,
        window=size,
        heads_sharing=lm.num_heads // lm.num_kv_heads,
        sentence=" ".join(map(_sentence, rows)),
        notes=[*replaced, *reading.notes, *looked_ahead(chosen), *flattered, *missed],
        summary=pd.DataFrame([vars(row) for row in rows])[SUMMARY],
        tokens=token_table(reading),
        losses=pd.concat(losses, ignore_index=True),
        position_bins=pd.concat(bins, ignore_index=True),
        protocol=protocol("evaluate", lm, request.text, len(reading.tokens), **about, unit=rows[0].difference_unit),
    )


def _at_share(context: Context, lm: Model, request: Evaluate, window: np.ndarray, share: float) -> list[Candidate]:
    """The methods, each set so that it reads the `share` of the causal pairs of a window, as near as it comes."""
    settled = []
    for spec in request.methods or []:
        if METHODS[spec["name"]].dense:
            settled.append(spec)
        else:
            settled += ladder(context, lm, spec, window, [share], indexer=not request.instead)
    return candidates(context, lm, settled)


def _row(candidate: Candidate, scored: Scored, bins: pd.DataFrame, dense: Scored, count: int) -> MethodQuality:
    absolute = perplexity_of(scored.losses)
    change = perplexity_change(scored.losses, dense.losses)
    worst = int(bins["difference"].idxmax())
    return MethodQuality(
        **candidate.setting,
        **candidate.facts,
        **columns(ReadShares, scored.reads),
        title=candidate.method.title,
        defaults=candidate.defaults,
        ceiling=candidate.method.ceiling,
        reads_future=candidate.method.reads_future,
        perplexity=absolute.change,
        low=absolute.low,
        high=absolute.high,
        units=absolute.units,
        perplexity_dense=math.exp(dense.losses.mean()),
        difference=change.change,
        difference_low=change.low,
        difference_high=change.high,
        difference_units=change.units,
        difference_unit=change.unit,
        bits_per_byte=bits_per_byte(scored.losses, count),
        kl_mean=float(scored.kl.mean()),
        kl_p99=float(np.quantile(scored.kl, 0.99)),
        same_top1=float(scored.same.mean()),
        reads_full=scored.reads.reads_full,
        worst_bin_difference=float(bins["difference"][worst]),
        worst_bin=worst,
        bins=records(bins),
        tokens=int(scored.losses.size),
    )


def _losses(place: int, scored: Scored, dense: Scored) -> pd.DataFrame:
    """One row per predicted token of the method at `place` in the rows; `position` counts the tokens of the text."""
    window, inside = np.indices(scored.losses.shape)
    # The first token of a window is not predicted, so a window of T tokens has T - 1 losses.
    position = window * (scored.losses.shape[1] + 1) + inside + 1
    columns = {"position": position, "window": window, "loss": scored.losses}
    columns |= {"difference": scored.losses - dense.losses, "kl": scored.kl}
    return pd.DataFrame({"method": place} | {name: values.ravel() for name, values in columns.items()})


def predicted_bytes(reading: Reading) -> int:
    """UTF-8 bytes of the tokens that are predicted: all but the first of each window."""
    tokens = reading.tokens
    ends = [(tokens.starts[a + 1], tokens.ends[b - 1]) for a, b in tokens.spans]
    return sum(len(reading.text[a:b].encode("utf-8", "surrogatepass")) for a, b in ends)


def _sentence(row: MethodQuality) -> str:
    if row.method == "dense":
        return f"Dense attention reads everything at perplexity {row.perplexity:.2f}."
    reads = f"scores all pairs and keeps {row.reads_causal:.0%}" if row.ceiling else f"reads {row.reads_causal:.0%}"
    return (
        f"{row.label} {reads} of the causal pairs at perplexity {row.perplexity:.2f} ({signed(row.difference, '.1%')} "
        "against dense)."
    )
