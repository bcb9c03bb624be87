"""How well the model predicts a text when it reads less: methods against dense, token by token, with what they read."""

import math

import numpy as np
import pandas as pd

from ...answer import Worded, doc, record
from ...metrics.paired import perplexity_change, perplexity_of
from ...metrics.quality import bits_per_byte, position_bins
from ...seam.calls import MASKED
from ..context import Context, Reading, check_seed, protocol
from ..ready.candidates import Candidate, Setting, candidates, looked_ahead
from ..text.compared import ReadShares, columns
from ..text.scoring import Scored, score, whole_windows
from ..text.text import token_table

BINS = 16  # parts of the window by position
STRETCH = 16  # tokens in a row that form one unit of an interval inside a bin
COLUMNS = ("label", "perplexity", "difference", "kl_mean", "kl_p99", "same_top1", "reads_causal", "reads_kv", "kv_read")


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


def evaluate(
    model: str = "demo",
    text: str = "",
    methods: list[dict] | None = None,
    window: int | None = None,
    seed: int = 0,
    long_text: str = "windows",
    *,
    context: Context,
) -> Evaluation:
    """Quality of `methods`, a list of {"name", "settings", "router", "policy"} (all with their defaults unless given).

    Windows of `window` tokens do not overlap and each starts without context; without it the fewest of equal length
    are taken; `first` takes one, a shorter one of a shorter text. Errors: BadSetting, BadText, NotFitted, all before a
    pass.
    """
    check_seed(seed)
    lm = context.model(model)
    chosen = candidates(context, lm, methods)
    reading = whole_windows(context, lm, text, window, long_text)
    dense, by_label = score(context, lm, text, reading, {candidate.label: candidate.method for candidate in chosen})
    size = dense.losses.shape[1] + 1
    scored = [by_label[candidate.label] for candidate in chosen]
    bins = [_bins(method_scores, dense) for method_scores in scored]
    count = predicted_bytes(reading)
    rows = [_row(*parts, dense, count) for parts in zip(chosen, scored, bins, strict=True)]
    about = {"window": size, "stride": size, "seed": seed, "kernel": MASKED, "bins": bins[0].attrs}
    flattered = [
        f"{candidate.label} was calibrated on this text, which flatters it."
        for candidate in chosen
        if text in candidate.state.texts
    ]
    losses = [_losses(place, method_scores, dense) for place, method_scores in enumerate(scored)]
    return Evaluation(
        rows=rows,
        window=size,
        heads_sharing=lm.num_heads // lm.num_kv_heads,
        sentence=" ".join(map(_sentence, rows)),
        notes=[*reading.notes, *looked_ahead(chosen), *flattered],
        summary=pd.DataFrame([vars(row) for row in rows])[list(COLUMNS)],
        tokens=token_table(reading),
        losses=pd.concat(losses, ignore_index=True),
        position_bins=pd.concat([table.assign(method=at) for at, table in enumerate(bins)], ignore_index=True),
        protocol=protocol("evaluate", lm, text, len(reading.tokens), **about, unit=rows[0].difference_unit),
    )


def _row(candidate: Candidate, scored: Scored, bins: pd.DataFrame, dense: Scored, count: int) -> MethodQuality:
    absolute = perplexity_of(scored.losses)
    change = perplexity_change(scored.losses, dense.losses)
    worst = bins["difference"].idxmax()
    return MethodQuality(
        **candidate.setting,
        **candidate.facts,
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
        **columns(ReadShares, scored.reads),
        reads_full=scored.reads.reads_full,
        worst_bin_difference=float(bins["difference"][worst]),
        worst_bin=int(worst),
        bins=bins.astype(object).where(bins.notna(), None).to_dict("records"),
        tokens=int(scored.losses.size),
    )


def _bins(scored: Scored, dense: Scored) -> pd.DataFrame:
    """Perplexity by position in the window, and its paired change against dense with an interval."""
    table = position_bins(scored.losses, min(BINS, scored.losses.shape[1]))
    changes = []
    for first, last in zip(table["first"], table["last"], strict=True):
        part = slice(first, last)
        changes.append(perplexity_change(scored.losses[:, part], dense.losses[:, part], stretch=STRETCH))
    table["difference"] = [change.change for change in changes]
    for end in ("low", "high"):
        table[end] = np.array([getattr(change, end) for change in changes], dtype=float)
    table.attrs["unit"] = changes[0].unit
    return table


def _losses(place: int, scored: Scored, dense: Scored) -> pd.DataFrame:
    """One row per predicted token; `position` counts the tokens of the text."""
    windows, positions = scored.losses.shape
    window, inside = np.divmod(np.arange(windows * positions), positions)
    return pd.DataFrame(
        {
            "method": place,
            "position": window * (positions + 1) + inside + 1,  # the first token of a window is not predicted
            "window": window,
            "loss": scored.losses.ravel(),
            "difference": (scored.losses - dense.losses).ravel(),
            "kl": scored.kl.ravel(),
        }
    )


def predicted_bytes(reading: Reading) -> int:
    """UTF-8 bytes of the tokens that are predicted: all but the first of each window."""
    tokens = reading.tokens
    ends = [(tokens.starts[a + 1], tokens.ends[b - 1]) for a, b in tokens.spans]
    return sum(len(reading.text[a:b].encode("utf-8", "surrogatepass")) for a, b in ends)


def _sentence(row: MethodQuality) -> str:
    if row.method == "dense":
        return f"Dense attention reads everything at perplexity {row.perplexity:.2f}."
    against = f"{row.difference:+.1%} against dense"
    if row.difference_low is not None:
        against += f", {row.difference_low:+.1%} to {row.difference_high:+.1%}"
    reads = f"reads {row.reads_causal:.0%} of the causal pairs"
    if row.ceiling:
        reads = f"scores all pairs and keeps {row.reads_causal:.0%} of the causal ones"
    if row.sharing > 1:
        reads += f" ({row.reads_kv:.0%} per key-value head)"
    return f"{row.label} {reads} at perplexity {row.perplexity:.2f} ({against})."
