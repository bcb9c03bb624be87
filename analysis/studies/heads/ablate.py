"""Which head matters for a text: what its loss is without a head, for all heads by estimate and for some exactly."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch

from analysis.claims import Comparison, signed
from analysis.commands.heads import EXACT
from analysis.errors import BadSetting
from analysis.kernels.parts import now
from analysis.metrics.intervals import BLOCKS, interval
from analysis.models import Model
from analysis.probes.ablation import WAYS, Passes, estimated
from analysis.runs import Result
from analysis.runs.price import spell
from analysis.studies.context import Context, check_seed, protocol, read
from analysis.studies.text.states import check_head, scope, windows_of
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
    part: int | None = 0,
    long_text: str = "windows",
    seed: int = 0,
    *,
    context: Context,
) -> Result:
    """What window `part` of a text loses without a head, or all its windows (null): the rise of the mean loss, in nats
    per token.

    The first-order estimate ranks all heads (one backward pass); exact passes follow for the `exact` highest of them
    (`heads` = "top"), for "all", or for those that are listed, such as 3.6,2.1. `by`: the head's output becomes zero,
    its own mean, or that of another position (resample) of the window. `together`: one pass without all listed heads,
    and `others`: one without all heads but these. arrays: `estimate` float32 [layers, heads]; `change` float32 [n, T -
    1], how much each token's loss rises in each exact pass (NaN for the first of a further window). tables: `heads`
    (`layer head estimate loss_change low high kl worst`), the exact ones first in their order; `tokens`. The
    interval is over blocks of this text and says how the change varies in it, not in other texts. numbers: `rows` (the
    exact passes), `loss`, `scope` in words, `agreement` (rank correlation of estimate and exact passes), `seconds` (of
    the `pass` with all heads, the `estimate`, and `exact` of all `passes` without heads; the first two are slower in a
    fresh process), `sentence`, `notes`. Errors: BadSetting.
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
    windows = windows_of(reading, part, 2)
    if not windows:
        raise BadSetting("A text of one token predicts nothing: give a longer one.")
    texts = [torch.from_numpy(np.asarray(window)).long()[None] for _, window in windows]
    most, offset = max(ids.numel() for ids in texts), windows[0][0]
    reference = 4 * most * lm.lm.config.get_text_config().vocab_size <= DIVERGENCE_BYTES
    found, of_estimate = _timed(lambda: _estimates(context, lm, texts, by, seed))
    estimate = np.average(found, axis=0, weights=[ids.shape[1] - 1 for ids in texts]).astype(np.float32)
    names = _passes(asked, estimate, heads, exact, together, others)
    read_all, of_all, of_exact = [], 0.0, 0.0
    changes: dict[str, list[np.ndarray]] = {name: [] for name in names}
    divergences: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for at, ids in enumerate(texts):
        context.progress(0.2 + 0.8 * at / len(texts), "all heads")
        passes, took = _timed(lambda ids=ids: Passes(lm, ids, by, seed, reference))
        of_all += took
        read_all.append(passes.losses[0])
        for done, (name, some) in enumerate(names.items()):
            context.progress(0.2 + 0.8 * (at + done / len(names)) / len(texts), f"without {name}")
            (losses, apart), took = _timed(lambda some=some, passes=passes: passes.without(some))
            of_exact += took
            changes[name] += [np.full(min(at, 1), np.nan, np.float32), (losses - passes.losses)[0]]
            divergences[name] += [] if apart is None else [apart[0]]
    change = {name: np.concatenate(own) for name, own in changes.items()}
    words, rows = token_table(reading)["word"].tolist(), []
    for name, some in names.items():
        apart = np.concatenate(divergences[name]) if divergences[name] else None
        rows.append({"without": name, "offset": offset, **_row(change[name], apart, words, offset)})
        if len(some) == 1:
            rows[-1] |= {"layer": some[0][0], "head": some[0][1], "estimate": float(estimate[some[0]])}
    singles = [row for row in rows if "layer" in row]
    seconds = {"pass": of_all, "estimate": of_estimate, "exact": of_exact, "passes": len(rows)}
    count = sum(ids.numel() for ids in texts)
    numbers = {
        "rows": rows,
        "loss": float(np.concatenate(read_all).mean()),
        "agreement": _agreement(singles),
        "scope": scope(reading, part),
        "sentence": _sentence(rows, by, scope(reading, part)),
        "seconds": seconds,
        "notes": [*reading.notes, *_notes(singles, not reference), _took(seconds)],
        "protocol": protocol("ablate", lm, text, count, seed=seed, by=by, part=part, heads=heads),
    }
    tables = {"heads": _table(estimate, singles), "tokens": token_table(reading)}
    return Result(numbers, tables, {"estimate": estimate, "change": np.stack(list(change.values())).astype(np.float32)})


def _estimates(context: Context, lm: Model, texts: list[torch.Tensor], by: str, seed: int) -> list[np.ndarray]:
    """The estimate for all heads in each window."""
    found = []
    for at, ids in enumerate(texts):
        context.progress(0.2 * at / len(texts), "estimate for all heads")
        found.append(estimated(lm, ids, by, seed))
    return found


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
    known = change[~np.isnan(change)].astype(np.float64)
    blocks = [part.mean() for part in np.array_split(known, min(PARTS, len(known)))]
    found, worst = interval(blocks, fewest=BLOCKS), int(np.nanargmax(change))
    return {
        **{"loss_change": float(known.mean()), "low": found.low, "high": found.high, "units": found.units},
        "kl": None if apart is None else float(apart.mean()),
        **{"worst": offset + worst + 1, "worst_word": words[offset + worst + 1], "worst_change": float(known.max())},
    }


def _agreement(rows: list[dict]) -> float | None:
    """Rank correlation of estimate and exact change; None for fewer than three heads."""
    if len(rows) < 3:
        return None
    table = pd.DataFrame(rows)[["estimate", "loss_change"]]
    return float(table.rank().corr().iloc[0, 1])


def _table(estimate: np.ndarray, rows: list[dict]) -> pd.DataFrame:
    """All heads, those with an exact pass first, each part by what it loses."""
    names = ["loss_change", "low", "high", "kl", "worst"]
    exact = {(row["layer"], row["head"]): row for row in rows}
    made = [
        {"layer": layer, "head": head, "estimate": float(estimate[layer, head])}
        | {name: exact.get((layer, head), {}).get(name) for name in names}
        for layer, head in np.ndindex(estimate.shape)
    ]
    table = pd.DataFrame(made).astype({name: "float64" for name in names})
    return table.sort_values(["loss_change", "estimate"], ascending=False, na_position="last", ignore_index=True)


def _sentence(rows: list[dict], by: str, where: str) -> str:
    """The pass that loses most, in words."""
    row = max(rows, key=lambda one: one["loss_change"])
    what = {"zero": "set to zero", "mean": "replaced by its mean", "resample": "taken from another position"}[by]
    change = Comparison.of(row, "loss_change", "")
    known = "" if change.low is None else f" ({change.interval} over blocks of it)"
    most = "" if len(rows) == 1 else f", the most of {len(rows)} exact passes"
    return (
        f"With the output of {row['without']} {what}, {where} is predicted {signed(row['loss_change'], '.4f')} nats "
        f"per token worse{known}{most}; “{row['worst_word'].strip()}” suffers most "
        f"({signed(row['worst_change'], '.2f')})."
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
