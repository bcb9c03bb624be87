"""What a softmax temperature does to every head on a text, from kept queries and keys: no forward pass per value."""

import numpy as np
import pandas as pd
import torch

from ...answer import Answer, doc, record
from ...commands.temperature import Temperature
from ...errors import BadSetting
from ...methods.focal import check_temperature
from ...models import Model
from ...statistics.states import States
from ..context import Context, protocol
from ..text.states import fits, head_window, telling_query
from ..text.text import keys_table

# The best constant temperature of the paper.
PAPER = 0.4
MOST = 32
KERNEL = "scores from kept queries and keys"
FIXED = (
    "Each layer is sharpened alone here, on the queries and keys of the dense model. The perplexity shows what all "
    "layers do together."
)
MEASURES = ["entropy", "effective_support", "max_prob"]


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
    notes: list[str] = doc("what to bear in mind")
    heads: pd.DataFrame = doc("t layer head, means over queries: entropy (nats), effective_support (keys), max_prob")
    layers: pd.DataFrame = doc("the same as means over heads")
    keys: pd.DataFrame = doc("keys that the query can read: key position piece word distance", name="query")
    tokens: pd.DataFrame = doc("tokens of the text")
    weights: np.ndarray = doc("float32 [t, keys]: what the query reads of them through the head")


@torch.no_grad()
def temperature(request: Temperature, *, context: Context) -> Sharpness:
    """Entropy, effective support (mean of e^entropy) and largest probability of every head at up to 32 temperatures
    `t`, on window `part` of a text; 1, dense attention, is always measured beside. Queries and keys are kept, so a new
    value costs no forward pass; where they pass 256 MB `layer` is measured alone. Errors: BadSetting."""
    temperatures = sorted({1.0, *check_temperatures(request.t, (PAPER,))})
    window, layer, head = head_window(request, context), request.layer, request.head
    length, states = len(window.ids), window.by_layer
    query = request.query
    if query is None:
        query = telling_query(window.states, head, window.words, window.offset)
    if not 0 <= query < length:
        raise BadSetting(f"Tokens of this window run from 0 to {length - 1:,}, and {query:,} was asked for.")
    notes = [*window.reading.notes, FIXED]
    if not fits(window.lm, length):
        states = {layer: states[layer]}
        notes.append(f"Layer {layer} alone: the text is long.")
    heads = measured(context, states, temperatures)
    rows = [window.states.scores(head, query, query + 1, t)[0].double().softmax(-1) for t in temperatures]
    weights = torch.stack(rows).cpu()  # [t, query + 1]
    entropy = torch.special.entr(weights).sum(-1)
    reads = pd.DataFrame({"entropy": entropy, "effective_support": entropy.exp(), "max_prob": weights.amax(-1)})
    about = {"layer": layer, "head": head, "part": request.part, "window": length, "kernel": KERNEL}
    return Sharpness(
        t=temperatures,
        layer=layer,
        head=head,
        query=query,
        length=length,
        offset=window.offset,
        reads=reads.to_dict("records"),
        sentences=[_sentence(heads, value, length) for value in temperatures],
        notes=notes,
        heads=heads,
        layers=heads.groupby(["t", "layer"], as_index=False)[MEASURES].mean(),
        keys=keys_table(window.words, np.arange(query + 1), query, window.offset),
        tokens=window.words,
        weights=weights.float().numpy(),
        protocol=protocol("temperature", window.lm, request.text, length, **about),
    )


def measured(context: Context, states: dict[int, States], temperatures: list[float]) -> pd.DataFrame:
    """`t layer head entropy effective_support max_prob`; what was measured of these states before is not again."""
    tables = context.once("sharpness", context.kept["states"][0], dict)
    todo = [(t, layer) for t in temperatures for layer in states if (t, layer) not in tables]
    for done, (t, layer) in enumerate(todo):
        context.progress(done / len(todo), f"temperature {t:g}, layer {layer}")
        entropy, largest = states[layer].sharpness(t)
        means = dict(zip(MEASURES, (entropy.mean(1), np.exp(entropy).mean(1), largest.mean(1)), strict=True))
        tables[t, layer] = pd.DataFrame({"t": t, "layer": layer, "head": range(len(entropy)), **means})
    return pd.concat([tables[t, layer] for t in temperatures for layer in states], ignore_index=True)


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
