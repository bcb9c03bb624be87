"""What a softmax temperature does to every head on a text, from kept queries and keys: no forward pass per value."""

import numpy as np
import pandas as pd
import torch

from analysis.errors import BadSetting
from analysis.methods.focal import check_temperature
from analysis.models import Model
from analysis.runs import Result
from analysis.statistics.states import States
from analysis.studies.context import Context, protocol, read
from analysis.studies.text.query import telling_query
from analysis.studies.text.states import check_head, fits, states_of, window_of
from analysis.studies.text.text import keys_table, token_table

PAPER = 0.4  # the best constant temperature of the paper
MOST = 32
KERNEL = "scores from kept queries and keys"
FIXED = (
    "Each layer is sharpened alone here, on the queries and keys of the dense model. The perplexity shows what all "
    "layers do together."
)


def temperature(
    model: str = "demo",
    text: str = "",
    t: list[float] | None = None,
    layer: int = 0,
    head: int = 0,
    query: int | None = None,
    part: int = 0,
    long_text: str = "windows",
    *,
    context: Context,
) -> Result:
    """Entropy, effective support and largest probability of every head at temperatures `t`, on window `part` of a text.

    `t`: up to 32 values (0.4 unless given); 1, dense attention, is always measured beside. Queries and keys are kept,
    so a new value costs no forward pass. tables: `heads` (`t layer head entropy effective_support max_prob`, means over
    queries in nats, keys and probability; effective support is the mean of e^entropy), `layers` (the same, means over
    heads), `query` (`key position piece word distance`): the keys that token `query` of the window (see
    `telling_query`) can read; `tokens` of the text. arrays: `weights` float32 [t, keys], what it reads of them through
    `head` of `layer`. numbers: `t` (ascending), and for each of them `reads` (that query's `entropy effective_support
    max_prob`) and `sentences`; `sentence` (of the first value asked for), `notes`. A text whose queries and keys pass
    256 MB is measured in `layer` alone. Errors: BadSetting.
    """
    lm = context.model(model)
    check_head(lm, layer, head)
    at = sorted({1.0, *check_temperatures(t, (PAPER,))})
    first = PAPER if t is None else t[0]
    reading = read(context, lm, text, long_text)
    offset, ids = window_of(reading, part)
    states = states_of(context, lm, ids, layer)
    words = token_table(reading)
    query = telling_query(states[layer], head, words, offset) if query is None else query
    if not 0 <= query < len(ids):
        raise BadSetting(f"Tokens of this window run from 0 to {len(ids) - 1:,}, and {query:,} was asked for.")
    whole = fits(lm, len(ids))
    heads = measured(context, states if whole else {layer: states[layer]}, at)
    weights = _weights(states[layer], head, query, at)
    entropies = [float(-(row[row > 0] * np.log(row[row > 0])).sum()) for row in weights]
    reads = [
        {"entropy": entropy, "effective_support": float(np.exp(entropy)), "max_prob": float(row.max())}
        for entropy, row in zip(entropies, weights, strict=True)
    ]
    sentences = [_sentence(heads, t, len(ids)) for t in at]
    place = {"layer": layer, "head": head}
    numbers = {
        **{"t": at, **place, "query": query, "length": len(ids), "offset": offset},
        **{"reads": reads, "sentences": sentences, "sentence": sentences[at.index(first)]},
        "notes": [*reading.notes, FIXED, *([] if whole else [f"Layer {layer} alone: the text is long."])],
        "protocol": protocol("temperature", lm, text, len(ids), **place, part=part, window=len(ids), kernel=KERNEL),
    }
    layers = heads.groupby(["t", "layer"], as_index=False)[["entropy", "effective_support", "max_prob"]].mean()
    keys = keys_table(words, np.arange(query + 1), query, offset)
    tables = {"heads": heads, "layers": layers, "query": keys, "tokens": words}
    return Result(numbers, tables, {"weights": weights.astype(np.float32)})


def measured(context: Context, states: dict[int, States], temperatures: list[float]) -> pd.DataFrame:
    """`t layer head entropy effective_support max_prob`; what was measured of these states before is not again."""
    held, known = context.kept.get("sharpness", (None, {}))
    belongs = next(iter(states.values())).query
    if held is not belongs:
        known = {}
        context.kept["sharpness"] = belongs, known
    todo = [(t, layer) for t in temperatures for layer in states if (t, layer) not in known]
    for done, (t, layer) in enumerate(todo):
        context.progress(done / len(todo), f"temperature {t:g}, layer {layer}")
        entropy, largest = states[layer].sharpness(t)
        means = {"entropy": entropy.mean(1), "effective_support": np.exp(entropy).mean(1), "max_prob": largest.mean(1)}
        known[t, layer] = pd.DataFrame({"t": t, "layer": layer, "head": range(len(entropy)), **means})
    return pd.concat([known[t, layer] for t in temperatures for layer in states], ignore_index=True)


@torch.no_grad()
def _weights(states: States, head: int, query: int, temperatures: list[float]) -> np.ndarray:
    """What one query reads at every temperature, float64 [t, query + 1]."""
    rows = [states.scores(head, query, query + 1, t)[0].double().softmax(-1) for t in temperatures]
    return torch.stack(rows).cpu().numpy()


def _sentence(heads: pd.DataFrame, t: float, length: int) -> str:
    """What a temperature does, in words."""
    support, largest = (heads.groupby("t")[name].mean() for name in ("effective_support", "max_prob"))
    if t == 1:
        return (
            f"At temperature 1, dense attention, a token reads as if {support[1]:,.0f} of up to {length:,} keys had "
            "equal weight."
        )
    return (
        f"At temperature {t:g} a token reads as if {support[t]:,.0f} keys had equal weight, and {support[1]:,.0f} in "
        f"dense attention; its largest weight is {largest[t]:.0%} on average, and {largest[1]:.0%} before."
    )


def check_temperatures(given: list[float] | None, usual: tuple[float, ...], lm: Model | None = None) -> list[float]:
    """Distinct temperatures in order, `usual` unless given; with `lm` one for each of its layers. Errors: BadSetting"""
    found = [check_temperature(t) for t in (usual if given is None else given)]
    if lm is not None:
        if len(found) != lm.num_layers:
            raise BadSetting(f"{len(found)} temperatures were given and {lm.name} has {lm.num_layers} layers.")
        return found
    if not 1 <= len(set(found)) <= MOST:
        raise BadSetting(f"{len(set(found))} temperatures were asked for: choose between 1 and {MOST}.")
    return sorted(set(found))
