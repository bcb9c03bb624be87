"""What a softmax temperature does to every head on a text, from kept queries and keys: no forward pass per value."""

import numpy as np
import pandas as pd
import torch

from ...answer import Answer, doc, record
from ...errors import BadSetting
from ...methods.focal import check_temperature
from ...models import Model
from ...statistics.states import States
from ..context import Context, protocol, read
from ..text.query import telling_query
from ..text.states import check_head, fits, states_of, window_of
from ..text.text import keys_table, token_table

PAPER = 0.4  # the best constant temperature of the paper
MOST = 32
KERNEL = "scores from kept queries and keys"
FIXED = (
    "Each layer is sharpened alone here, on the queries and keys of the dense model. The perplexity shows what all "
    "layers do together."
)


@record
class Sharpness(Answer):
    """What softmax temperatures do to every head on a window of a text."""

    t: list[float] = doc("the temperatures, ascending; 1, dense attention, is always among them")
    layer: int = doc("layer of the head that is shown token by token")
    head: int = doc("that head")
    query: int = doc("the token of the window whose reading is shown")
    length: int = doc("tokens of the window")
    offset: int = doc("first token of the window in the text")
    reads: list[dict] = doc("per temperature entropy, effective_support and max_prob of that query")
    sentences: list[str] = doc("per temperature what it does, in words")
    sentence: str = doc("the one of the first temperature asked for")
    notes: list[str] = doc("what to bear in mind")
    heads: pd.DataFrame = doc("t layer head, means over queries: entropy (nats), effective_support (keys), max_prob")
    layers: pd.DataFrame = doc("the same as means over heads")
    keys: pd.DataFrame = doc("keys that the query can read: key position piece word distance", name="query")
    tokens: pd.DataFrame = doc("tokens of the text")
    weights: np.ndarray = doc("float32 [t, keys]: what the query reads of them through the head")


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
) -> Sharpness:
    """Entropy, effective support and largest probability of every head at temperatures `t`, on window `part` of a text.

    `t`: up to 32 values (0.4 unless given); 1, dense attention, is always measured beside. Queries and keys are kept,
    so a new value costs no forward pass. Effective support is the mean of e^entropy; `query`: see `telling_query`. A
    text whose queries and keys pass 256 MB is measured in `layer` alone. Errors: BadSetting.
    """
    lm = context.model(model)
    check_head(lm, layer, head)
    temperatures = sorted({1.0, *check_temperatures(t, (PAPER,))})
    first = PAPER if t is None else t[0]
    reading = read(context, lm, text, long_text)
    offset, ids = window_of(reading, part)
    states = states_of(context, lm, ids, layer)
    words = token_table(reading)
    query = telling_query(states[layer], head, words, offset) if query is None else query
    if not 0 <= query < len(ids):
        raise BadSetting(f"Tokens of this window run from 0 to {len(ids) - 1:,}, and {query:,} was asked for.")
    all_layers = fits(lm, len(ids))
    heads = measured(context, states if all_layers else {layer: states[layer]}, temperatures)
    weights = _weights(states[layer], head, query, temperatures)
    reads = []
    for row in weights:
        entropy = float(-(row[row > 0] * np.log(row[row > 0])).sum())
        reads.append({"entropy": entropy, "effective_support": float(np.exp(entropy)), "max_prob": float(row.max())})
    sentences = [_sentence(heads, value, len(ids)) for value in temperatures]
    notes = [*reading.notes, FIXED]
    if not all_layers:
        notes.append(f"Layer {layer} alone: the text is long.")
    about = {"layer": layer, "head": head, "part": part, "window": len(ids), "kernel": KERNEL}
    return Sharpness(
        t=temperatures,
        layer=layer,
        head=head,
        query=query,
        length=len(ids),
        offset=offset,
        reads=reads,
        sentences=sentences,
        sentence=sentences[temperatures.index(first)],
        notes=notes,
        heads=heads,
        layers=heads.groupby(["t", "layer"], as_index=False)[["entropy", "effective_support", "max_prob"]].mean(),
        keys=keys_table(words, np.arange(query + 1), query, offset),
        tokens=words,
        weights=weights.astype(np.float32),
        protocol=protocol("temperature", lm, text, len(ids), **about),
    )


def measured(context: Context, states: dict[int, States], temperatures: list[float]) -> pd.DataFrame:
    """`t layer head entropy effective_support max_prob`; what was measured of these states before is not again."""
    owner, tables = context.kept.get("sharpness", (None, {}))
    belongs = next(iter(states.values())).query
    if owner is not belongs:
        tables = {}
        context.kept["sharpness"] = belongs, tables
    todo = [(t, layer) for t in temperatures for layer in states if (t, layer) not in tables]
    for done, (t, layer) in enumerate(todo):
        context.progress(done / len(todo), f"temperature {t:g}, layer {layer}")
        entropy, largest = states[layer].sharpness(t)
        means = {"entropy": entropy.mean(1), "effective_support": np.exp(entropy).mean(1), "max_prob": largest.mean(1)}
        tables[t, layer] = pd.DataFrame({"t": t, "layer": layer, "head": range(len(entropy)), **means})
    return pd.concat([tables[t, layer] for t in temperatures for layer in states], ignore_index=True)


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


def check_temperatures(values: list[float] | None, usual: tuple[float, ...], lm: Model | None = None) -> list[float]:
    """Distinct temperatures in order, `usual` unless given; with `lm` one for each of its layers. Errors: BadSetting"""
    temperatures = [check_temperature(t) for t in (usual if values is None else values)]
    if lm is not None:
        if len(temperatures) != lm.num_layers:
            raise BadSetting(f"{len(temperatures)} temperatures were given and {lm.name} has {lm.num_layers} layers.")
        return temperatures
    if not 1 <= len(set(temperatures)) <= MOST:
        raise BadSetting(f"{len(set(temperatures))} temperatures were asked for: choose between 1 and {MOST}.")
    return sorted(set(temperatures))
