"""How well the model predicts a text when it reads less: methods against dense, token by token, with what they read."""

import math

import numpy as np
import pandas as pd

from analysis.metrics.paired import perplexity_change, perplexity_of
from analysis.metrics.quality import bits_per_byte, position_bins
from analysis.runs import Result
from analysis.seam.calls import MASKED
from analysis.studies.context import Context, Reading, check_seed, protocol
from analysis.studies.ready.candidates import Candidate, candidates, looked_ahead
from analysis.studies.text.scoring import Scored, score, whole_windows
from analysis.studies.text.text import token_table

BINS, STRETCH = 16, 16  # position bins; tokens in a row that form a unit inside one
COLUMNS = ("label", "perplexity", "difference", "kl_mean", "kl_p99", "same_top1", "reads_causal", "reads_kv", "kv_read")
READS = ("reads_causal", "reads_full", "attended", "reads_kv", "attended_kv", "kv_read", "sharing")


def evaluate(
    model: str = "demo",
    text: str = "",
    methods: list[dict] | None = None,
    window: int | None = None,
    seed: int = 0,
    long_text: str = "windows",
    *,
    context: Context,
) -> Result:
    """Quality of `methods`, a list of {"name", "settings", "router", "policy"} (all with their defaults unless given).

    Windows of `window` tokens do not overlap and each starts without context; without it the fewest of equal length
    are taken; `first` takes one, a shorter one of a shorter text.
    numbers: `heads_sharing`, how many query heads share a key-value head; `rows`, one per method: perplexity with
    interval (None below 8 blocks of the text), its paired
    `difference` to dense as a share (0.02: 2% worse) with interval and unit, `bits_per_byte`, KL from dense
    (nats), share of tokens with the same most likely token, reads as shares of the causal pairs, per query head
    (`reads_causal`), per key-value head (`reads_kv`, `sharing` times as many) and fetched (`kv_read`), and of all pairs
    (`reads_full`), `bins` by position in the window and the largest difference of one,
    `worst_bin_difference`, and whether the method `reads_future`. tables: `rows` in short; `tokens`; `losses` of the
    predicted tokens with their `position`, `difference` to dense and `kl` in nats; `bins`; the last two name a method
    by its place in `rows`. Errors: BadSetting, BadText, NotFitted, all before a pass.
    """
    check_seed(seed)
    lm = context.model(model)
    chosen = candidates(context, lm, methods)
    reading = whole_windows(context, lm, text, window, long_text)
    dense, found = score(context, lm, text, reading, {one.label: one.method for one in chosen})
    size = dense.losses.shape[1] + 1
    scored = [found[one.label] for one in chosen]
    bins = [_bins(one, dense) for one in scored]
    count = predicted_bytes(reading)
    rows = [_row(one, mine, dense, table, count) for one, mine, table in zip(chosen, scored, bins, strict=True)]
    about = {"window": size, "stride": size, "seed": seed, "kernel": MASKED, "bins": bins[0].attrs}
    about |= {"unit": rows[0]["difference_unit"]}
    said = "{} was calibrated on this text, which flatters it."
    flattered = [said.format(one.label) for one in chosen if text in one.state.texts]
    numbers = {
        "rows": rows,
        "window": size,
        "heads_sharing": lm.num_heads // lm.num_kv_heads,
        "sentence": " ".join(map(_sentence, rows)),
        "notes": [*reading.notes, *looked_ahead(chosen), *flattered],
        "protocol": protocol("evaluate", lm, text, len(reading.tokens), **about),
    }
    tables = {
        "rows": pd.DataFrame([{name: row[name] for name in COLUMNS} for row in rows]),
        "tokens": token_table(reading),
        "losses": pd.concat([_losses(at, one, dense) for at, one in enumerate(scored)], ignore_index=True),
        "bins": pd.concat([table.assign(method=at) for at, table in enumerate(bins)], ignore_index=True),
    }
    return Result(numbers, tables)


def _row(one: Candidate, scored: Scored, dense: Scored, bins: pd.DataFrame, count: int) -> dict:
    over = perplexity_of(scored.losses)
    change = perplexity_change(scored.losses, dense.losses)
    worst = bins["difference"].idxmax()
    return {
        "method": one.name,
        "title": one.method.title,
        "label": one.label,
        **one.facts,
        "settings": one.settings,
        "defaults": one.defaults,
        "ceiling": one.method.ceiling,
        "reads_future": one.method.reads_future,
        "perplexity": over.change,
        "low": over.low,
        "high": over.high,
        "units": over.units,
        "perplexity_dense": math.exp(dense.losses.mean()),
        "difference": change.change,
        "difference_low": change.low,
        "difference_high": change.high,
        "difference_units": change.units,
        "difference_unit": change.unit,
        "bits_per_byte": bits_per_byte(scored.losses, count),
        "kl_mean": float(scored.kl.mean()),
        "kl_p99": float(np.quantile(scored.kl, 0.99)),
        "same_top1": float(scored.same.mean()),
        **{name: getattr(scored.reads, name) for name in READS},
        "worst_bin_difference": float(bins["difference"][worst]),
        "worst_bin": int(worst),
        "bins": bins.astype(object).where(bins.notna(), None).to_dict("records"),
        "tokens": int(scored.losses.size),
    }


def _bins(scored: Scored, dense: Scored) -> pd.DataFrame:
    """Perplexity by position in the window, and its paired change against dense with an interval."""
    table = position_bins(scored.losses, min(BINS, scored.losses.shape[1]))
    places = [slice(*ends) for ends in zip(table["first"], table["last"], strict=True)]
    changes = [perplexity_change(scored.losses[:, at], dense.losses[:, at], stretch=STRETCH) for at in places]
    for name, value in {"difference": "change", "low": "low", "high": "high"}.items():
        table[name] = np.array([getattr(change, value) for change in changes], dtype=float)
    table.attrs["unit"] = changes[0].unit
    return table


def _losses(at: int, scored: Scored, dense: Scored) -> pd.DataFrame:
    """One row per predicted token; `position` counts the tokens of the text."""
    windows, positions = scored.losses.shape
    window, inside = np.divmod(np.arange(windows * positions), positions)
    columns = {"method": at, "position": window * (positions + 1) + inside + 1, "window": window}
    columns |= {"loss": scored.losses.ravel(), "difference": (scored.losses - dense.losses).ravel()}
    return pd.DataFrame(columns | {"kl": scored.kl.ravel()})


def predicted_bytes(reading: Reading) -> int:
    """UTF-8 bytes of the tokens that are predicted: all but the first of each window."""
    tokens = reading.tokens
    ends = [(tokens.starts[a + 1], tokens.ends[b - 1]) for a, b in tokens.spans]
    return sum(len(reading.text[a:b].encode("utf-8", "surrogatepass")) for a, b in ends)


def _sentence(row: dict) -> str:
    if row["method"] == "dense":
        return f"Dense attention reads everything at perplexity {row['perplexity']:.2f}."
    against = f"{row['difference']:+.1%} against dense"
    if row["difference_low"] is not None:
        against += f", {row['difference_low']:+.1%} to {row['difference_high']:+.1%}"
    reads = f"reads {row['reads_causal']:.0%} of the causal pairs"
    if row["ceiling"]:
        reads = f"scores all pairs and keeps {row['reads_causal']:.0%} of the causal ones"
    if row["sharing"] > 1:
        reads += f" ({row['reads_kv']:.0%} per key-value head)"
    return f"{row['label']} {reads} at perplexity {row['perplexity']:.2f} ({against})."
