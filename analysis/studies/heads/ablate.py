"""Which head matters for a text: what its loss is without a head, for all heads by estimate and for some exactly."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch

from analysis.errors import BadSetting
from analysis.kernels.parts import now
from analysis.metrics.intervals import BLOCKS, interval
from analysis.models import Model
from analysis.probes.ablation import WAYS, Passes, estimated
from analysis.runs import Result
from analysis.runs.price import EXACT, spell
from analysis.studies.context import Context, check_seed, protocol, read
from analysis.studies.text.states import check_head, window_of
from analysis.studies.text.text import token_table

DIVERGENCE_BYTES = 1 << 29  # logits of a text up to which the divergence is taken too
PARTS = 16  # blocks of the text that the interval rests on
ALL, TOP = "all", "top"


def ablate(
    model: str = "demo",
    text: str = "",
    heads: str = TOP,
    by: str = "zero",
    exact: int = EXACT,
    together: bool = False,
    others: bool = False,
    part: int = 0,
    long_text: str = "windows",
    seed: int = 0,
    *,
    context: Context,
) -> Result:
    """What window `part` of a text loses without a head: the rise of the mean loss, in nats per token.

    The first-order estimate ranks all heads (one backward pass); exact passes follow for the `exact` highest of them
    (`heads` = "top"), for "all", or for those that are listed, such as 3.6,2.1. `by`: the head's output becomes zero,
    its own mean, or that of another position (resample). `together`: one pass without all listed heads, and `others`:
    one without all heads but these. arrays: `estimate` float32 [layers, heads]; `change` float32 [n, T - 1], how much
    each token's loss rises in each exact pass. tables: `heads` (`layer head estimate change low high divergence
    worst`), the exact ones first in their order; `tokens`. The interval is over blocks of this text and says how the
    change varies in it, not in other texts. numbers: `rows` (the exact passes), `loss`, `agreement` (rank correlation
    of estimate and exact passes), `seconds` (of the `pass` with all heads, the `estimate`, and `exact` of all
    `passes` without heads; the first two are slower in a fresh process), `sentence`, `notes`. Errors: BadSetting.
    """
    check_seed(seed)
    lm = context.model(model)
    asked = _asked(lm, heads)
    if by not in WAYS:
        raise BadSetting(f"A head's output is replaced by {', '.join(WAYS)}, not by {by!r}.")
    if (together or others) and not asked:
        raise BadSetting("One pass without several heads needs them listed, such as --heads 3.6,2.1.")
    if not 1 <= exact <= lm.num_layers * lm.num_heads:
        raise BadSetting(f"Exact passes are for 1 to {lm.num_layers * lm.num_heads} heads, and {exact} were asked for.")
    reading = read(context, lm, text, long_text)
    offset, window = window_of(reading, part)
    ids = torch.from_numpy(np.asarray(window)).long()[None]
    if ids.shape[1] < 2:
        raise BadSetting("A text of one token predicts nothing: give a longer one.")
    reference = 4 * ids.numel() * lm.lm.config.get_text_config().vocab_size <= DIVERGENCE_BYTES
    context.progress(0.0, "all heads")
    passes, of_all = _timed(lambda: Passes(lm, ids, by, seed, reference))
    context.progress(0.05, "estimate for all heads")
    estimate, of_estimate = _timed(lambda: estimated(lm, ids, by, seed))
    names = _passes(asked, estimate, heads, exact, together, others)
    rows, changes, of_exact = [], [], 0.0
    words = token_table(reading)["word"].tolist()
    for done, (name, some) in enumerate(names.items()):
        context.progress(0.2 + 0.8 * done / len(names), f"without {name}")
        (losses, apart), took = _timed(lambda some=some: passes.without(some))
        of_exact += took
        changes.append((losses - passes.losses)[0])
        rows.append({"without": name, "offset": offset, **_row(changes[-1], apart, words, offset)})
        if len(some) == 1:
            rows[-1] |= {"layer": some[0][0], "head": some[0][1], "estimate": float(estimate[some[0]])}
    singles = [row for row in rows if "layer" in row]
    seconds = {"pass": of_all, "estimate": of_estimate, "exact": of_exact, "passes": len(rows)}
    numbers = {
        "rows": rows,
        "loss": float(passes.losses.mean()),
        "agreement": _agreement(singles),
        "sentence": _sentence(rows, by),
        "seconds": seconds,
        "notes": [*reading.notes, *_notes(singles, not reference), _took(seconds)],
        "protocol": protocol("ablate", lm, text, ids.shape[1], seed=seed, by=by, part=part, heads=heads),
    }
    tables = {"heads": _table(estimate, singles), "tokens": token_table(reading)}
    return Result(numbers, tables, {"estimate": estimate, "change": np.stack(changes).astype(np.float32)})


def _timed(do: Callable[[], Any]) -> tuple[Any, float]:
    """What `do` gives, and its seconds."""
    began = now()
    return do(), now() - began


def _asked(lm: Model, heads: str) -> list[tuple[int, int]]:
    """The heads that are listed, none for "top" and "all". Errors: BadSetting."""
    if heads in (ALL, TOP):
        return []
    try:
        found = [tuple(int(number) for number in word.split(".")) for word in heads.split(",")]
        found = [(layer, head) for layer, head in found]
    except ValueError:
        raise BadSetting(
            f"Heads are top, all, or a list of layer.head such as 3.6,2.1, and {heads!r} was given."
        ) from None
    for layer, head in found:
        check_head(lm, layer, head)
    return list(dict.fromkeys(found))


def _passes(
    asked: list, estimate: np.ndarray, heads: str, exact: int, together: bool, others: bool
) -> dict[str, list[tuple[int, int]]]:
    """Name -> the heads that an exact pass leaves out."""
    every = list(np.ndindex(estimate.shape))
    if together or others:
        named = ", ".join(f"{layer}.{head}" for layer, head in asked)
        found = {named: asked} if together else {}
        return found | ({f"all but {named}": [one for one in every if one not in asked]} if others else {})
    if not asked:
        ranked = sorted(every, key=lambda one: -estimate[one])
        asked = ranked if heads == ALL else ranked[:exact]
    return {f"{layer}.{head}": [(layer, head)] for layer, head in asked}


def _row(change: np.ndarray, apart: np.ndarray | None, words: list[str], offset: int) -> dict:
    """One pass: the mean change with its interval over blocks of the text, and the token that gets worst."""
    blocks = [part.mean() for part in np.array_split(change.astype(np.float64), min(PARTS, len(change)))]
    found, worst = interval(blocks, fewest=BLOCKS), int(change.argmax())
    return {
        **{"change": float(change.mean()), "low": found.low, "high": found.high, "units": found.units},
        "divergence": None if apart is None else float(apart.mean()),
        **{"worst": offset + worst + 1, "worst_word": words[offset + worst + 1], "worst_change": float(change.max())},
    }


def _agreement(rows: list[dict]) -> float | None:
    """Rank correlation of estimate and exact change; None for fewer than three heads."""
    if len(rows) < 3:
        return None
    table = pd.DataFrame(rows)[["estimate", "change"]]
    return float(table.rank().corr().iloc[0, 1])


def _table(estimate: np.ndarray, rows: list[dict]) -> pd.DataFrame:
    """All heads, those with an exact pass first, each part by what it loses."""
    names = ["change", "low", "high", "divergence", "worst"]
    exact = {(row["layer"], row["head"]): row for row in rows}
    made = [
        {"layer": layer, "head": head, "estimate": float(estimate[layer, head])}
        | {name: exact.get((layer, head), {}).get(name) for name in names}
        for layer, head in np.ndindex(estimate.shape)
    ]
    table = pd.DataFrame(made).astype({name: "float64" for name in names})
    return table.sort_values(["change", "estimate"], ascending=False, na_position="last", ignore_index=True)


def _sentence(rows: list[dict], by: str) -> str:
    """The pass that loses most, in words."""
    row = max(rows, key=lambda one: one["change"])
    what = {"zero": "set to zero", "mean": "replaced by its mean", "resample": "taken from another position"}[by]
    known = "" if row["low"] is None else f" (95% interval {row['low']:+.4f} to {row['high']:+.4f} over blocks of it)"
    most = "" if len(rows) == 1 else f", the most of {len(rows)} exact passes"
    return (
        f"With the output of {row['without']} {what}, this text is predicted {row['change']:+.4f} nats per token "
        f"worse{known}{most}; “{row['worst_word'].strip()}” suffers most ({row['worst_change']:+.2f})."
    )


def _took(seconds: dict) -> str:
    """What the estimate and the exact passes took, by a pass with all heads."""
    estimate, exact = (seconds[name] / seconds["pass"] for name in ("estimate", "exact"))
    several = "es" if seconds["passes"] > 1 else ""
    return (
        f"A pass with all heads took {spell(seconds['pass'])}, the estimate {estimate:.1f} times as long, and "
        f"{seconds['passes']} exact pass{several} {exact:.1f} times."
    )


def _notes(rows: list[dict], large: bool) -> list[str]:
    found = [
        "The estimate is of first order: it is right for small changes and can miss heads that stand in for each other."
    ]
    if len(rows) > 1 and (agreement := _agreement(rows)) is not None:
        found.append(f"Rank correlation of estimate and exact passes: {agreement:.2f} over {len(rows)} heads.")
    if large:
        found.append(
            "The divergence of predictions is not taken: this vocabulary times this text is too large to keep."
        )
    return found
