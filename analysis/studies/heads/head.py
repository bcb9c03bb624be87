"""What heads read in a text: exact statistics of all for a map, and of one its pattern, what one token reads, and its
numbers query by query."""

import math
from typing import Any

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...commands.heads import Head, Statistics
from ...errors import BadSetting
from ...models.own import own_reading
from ...statistics import CORE, SINK, HeadReading, head_labels
from ...statistics.numerics import SAMPLE
from ...statistics.states import States
from ..context import Context, protocol, read
from ..text.kept import Readings
from ..text.one_pass import KIND, one_pass, restored
from ..text.states import head_window, query_blocks, telling_query
from ..text.text import keys_table, token_table

# Cells of a pattern, and tokens of an exact tile, on each side.
SIDE = 256
BLOCK_VALUES = 1 << 20
KERNEL = "scores from kept queries and keys"


@record
class OneHead(Worded):
    """What one head reads. Keys, queries and axes count in the window, `position` in the text."""

    layer: int = doc("layer of the head")
    head: int = doc("the head in its layer")
    query: int = doc("the token whose reading `row` and `keys` show")
    cell: int = doc("neighbouring queries and keys of a cell of the pattern")
    length: int = doc("tokens of the window")
    offset: int = doc("first token of the window in the text")
    summary: dict = doc("means of the head's statistics over the queries")
    chance: dict = doc("the same of a head that reads all visible keys alike")
    pooling: str = doc("what a cell of the pattern shows, in words")
    without_first: bool = doc("the window's first token is left out and the others renormalised")
    keys: pd.DataFrame = doc("strongest keys of the query: key position piece word distance attention")
    queries: pd.DataFrame = doc("position and the statistics of every query")
    distance: pd.DataFrame = doc("attention by distance: low high mass uniform")
    tokens: pd.DataFrame = doc("tokens of the text")
    pattern: np.ndarray = doc("float32 [cells, cells]: mean over a cell's queries of what they give to its keys")
    row: np.ndarray = doc("float32 [length]: all that the query reads")
    tile: np.ndarray | None = doc("float32, the exact attention of the rows and columns asked for", default=None)


def head(request: Head, *, context: Context) -> OneHead:
    """What one head reads in window `part` of a text, from its queries and keys, block by block. The token whose keys
    are listed is by default the whole word with the strongest read from `window` or more tokens back; `rows` and
    `columns` ([first, past the last], at most 256 tokens) are given exactly. Errors: BadSetting."""
    window, layer, head = head_window(request, context), request.layer, request.head
    length, offset, words, states = len(window.ids), window.offset, window.words, window.states
    tile = _tile(request.rows, request.columns, length)
    query = request.query
    if query is None:
        query = telling_query(states, head, words, offset, request.window)
    if not 0 <= query < length:
        raise BadSetting(f"Tokens of this window run from 0 to {length - 1:,}, and token {query:,} was asked for.")
    measured = HeadReading(1, 1, request.mass, request.window, request.without_first, head=(0, 0))
    context.progress(0.5, f"layer {layer}, head {head}")
    arrays = _stream(states, head, window.ids, measured, query, tile)
    best = np.argsort(-arrays["row"][: query + 1], kind="stable")[: request.top]
    best = best[arrays["row"][best] > 0]
    listed = keys_table(words, best, query, offset).assign(attention=arrays["row"][best])
    cell = _cell(length)
    pooling = f"Every one of the {length:,} tokens has its own row and column."
    if cell > 1:
        pooling = f"A cell is {cell} queries and {cell} keys: the mean over the queries of what they give to these keys"
        pooling += " together."
    queries = measured.queries()
    queries["position"] += offset
    about: dict[str, Any] = {"layer": layer, "head": head, "part": request.part, "mass": request.mass}
    about |= {"near": request.window, "window": length, "without_first": request.without_first, "kernel": KERNEL}
    return OneHead(
        layer=layer,
        head=head,
        query=query,
        cell=cell,
        length=length,
        offset=offset,
        summary=measured.table().drop(columns=["layer", "head"]).iloc[0].to_dict(),
        chance=measured.chance().drop(columns="layer").iloc[0].to_dict(),
        pooling=pooling,
        sentence=_sentence(listed, words["word"][offset + query], layer, head),
        without_first=request.without_first,
        notes=[*own_reading(window.lm), *window.reading.notes, *sink_notes(request.without_first)],
        keys=listed,
        queries=queries,
        distance=measured.distances().drop(columns=["layer", "head"]),
        tokens=words,
        **arrays,
        protocol=protocol("head", window.lm, request.text, length, **about),
    )


def _tile(rows: list[int] | None, columns: list[int] | None, length: int) -> tuple[slice, slice] | None:
    """Rows and columns of the exact tile. Errors: BadSetting."""
    if rows is None and columns is None:
        return None
    sides = []
    for edges in (rows, columns):
        if edges is None or len(edges) != 2 or not 0 <= edges[0] < edges[1] <= length or edges[1] - edges[0] > SIDE:
            raise BadSetting(
                f"An exact tile has rows and columns as [first, past the last] within 0 to {length:,}, at most {SIDE} "
                f"of each, and {rows} and {columns} were given."
            )
        sides.append(slice(*edges))
    return sides[0], sides[1]


def _cell(length: int) -> int:
    """Neighbouring queries and keys that a cell of a pattern pools."""
    return -(-length // SIDE)


@torch.no_grad()
def _stream(
    states: States, head: int, ids: np.ndarray, measured: HeadReading, query: int, tile: tuple[slice, slice] | None
) -> dict[str, np.ndarray]:
    """`pattern`, `row` and, where asked for, `tile` of one head; fills `measured`."""
    length, cell = len(ids), _cell(len(ids))
    cells = -(-length // cell)
    pattern, row = np.zeros((cells, cells)), np.zeros(length, np.float32)
    exact, (down, across) = None, tile or (slice(0, 0), slice(0, 0))
    if tile:
        exact = np.zeros((down.stop - down.start, across.stop - across.start), np.float32)
    measured.begin(torch.from_numpy(np.asarray(ids)).long()[None], torch.ones(1, length, dtype=torch.bool))
    for start, stop in query_blocks(length, BLOCK_VALUES):
        scores = states.scores(head, start, stop).cpu()
        even = torch.where(scores.isinf(), scores, 0.0)
        readable = scores.index_fill(1, torch.tensor([0]), -math.inf) if measured.without_first else scores
        weights = readable.softmax(-1).nan_to_num_(0.0).numpy()
        # `measure` works on the scores in place, so the weights are taken before.
        measured.measure(scores, even, start)
        places = np.arange(start, stop)
        pooled = np.add.reduceat(weights, np.arange(0, stop, cell), axis=1)
        np.add.at(pattern[:, : pooled.shape[1]], places // cell, pooled)
        if start <= query < stop:
            row[:stop] = weights[query - start]
        if exact is not None:
            inside = (places >= down.start) & (places < down.stop)
            values = weights[inside][:, across]
            exact[places[inside] - down.start, : values.shape[1]] = values
    pattern /= np.bincount(np.arange(length) // cell)[:, None]
    arrays = {"pattern": pattern.astype(np.float32), "row": row}
    return arrays | ({} if exact is None else {"tile": exact})


def _sentence(listed: pd.DataFrame, word: str, layer: int, head: int) -> str:
    if listed.empty:
        return f"Head {layer}.{head} has nothing to read from {word!r} once the first token is left out."
    best = listed.iloc[0]
    back = int(best["distance"])
    where = "the token itself" if back == 0 else f"{back:,} token{'s' * (back != 1)} back"
    return (
        f"From {word!r}, head {layer}.{head} reads {best['word']!r} most ({where}): "
        f"{best['attention']:.0%} of its attention."
    )


@record
class HeadStatistics(Worded):
    """What every head of the model reads in a text, as means over all queries."""

    rows: list[dict] = doc("layer, head and the six statistics of `attention_statistics` of every head")
    numerics: dict = doc("largest_score difference own_difference of the worst layer, see `statistics.Numerics`")
    without_first: bool = doc("each window's first token is left out and the others renormalised")
    heads: pd.DataFrame = doc(
        "rows, with previous_token induction far_peaks, a label; sink_mass entry_mass gate selected_mass where it has"
    )
    chance: pd.DataFrame = doc("per layer the same of a head that reads all visible keys alike")
    distance: pd.DataFrame = doc("attention by distance: layer head low high mass uniform")
    tokens: pd.DataFrame = doc("tokens of the text")
    layer_numerics: pd.DataFrame = doc("the numerics of every layer", name="numerics")


def statistics(request: Statistics, *, context: Context) -> HeadStatistics:
    """Entropy, rank, sink, window and distance of every head's attention, exact means over all queries of a text;
    `without_first` leaves the first token out of all but `first_token_mass`. Errors: BadSetting, TooLarge."""
    lm = context.model(request.model)
    reading = read(context, lm, request.text, request.long_text)
    options = (request.mass, request.window, request.without_first)
    tensors = Readings(context, lm, reading.windows).find(KIND, [options])
    measured, numerics = restored(lm, options, tensors or one_pass(context, lm, reading, options=options))
    heads, chance, exact = measured.table(), measured.chance(), numerics.table()
    heads["label"] = head_labels(heads, chance)
    sinks, sharp = int((heads["first_token_mass"] >= SINK).sum()), heads.loc[heads["entropy"].idxmin()]
    sentence = (
        f"{sinks} of {len(heads)} heads leave more than half of their attention on the first token; half of the heads "
        f"need {heads['top_p_rank'].median():,.0f} keys or fewer for {request.mass:.0%} of it (reading all alike would "
        f"need {chance['top_p_rank'].mean():,.0f}); the sharpest is {_named(sharp)}"
    )
    if heads["far_peaks"].notna().any():
        far = heads.loc[heads["far_peaks"].idxmax()]
        sentence += (
            f"; {_named(far)} picks out most from {request.window} or more tokens back ({far['far_peaks']:.0%} of its "
            "attention above chance)"
        )
    if heads["induction"].notna().any():
        copying = heads.loc[heads["induction"].idxmax()]
        sentence += (
            f", and {_named(copying)} most reads what followed earlier copies of a token ({copying['induction']:.0%}"
            f" of its attention, chance {chance['induction'].mean():.0%})"
        )
    about: dict[str, Any] = {"seed": request.seed, "mass": request.mass, "near": request.window}
    about |= {"without_first": request.without_first, "kernel": "streamed statistics"}
    return HeadStatistics(
        rows=heads[["layer", "head", *CORE]].to_dict("records"),
        sentence=f"{sentence}.",
        numerics=exact.drop(columns="layer").max().to_dict() | {"dtype": str(lm.dtype)[6:], "queries": SAMPLE},
        without_first=request.without_first,
        notes=[*own_reading(lm), *reading.notes, *sink_notes(request.without_first)],
        heads=heads,
        chance=chance,
        distance=measured.distances(),
        tokens=token_table(reading),
        layer_numerics=exact,
        protocol=protocol("statistics", lm, request.text, len(reading.tokens), **about),
    )


def sink_notes(without_first: bool) -> list[str]:
    """What is said of a number when the first token is left out."""
    if not without_first:
        return []
    return [
        "The first token of each window is left out, and what a head gives to the others is renormalised to 100%; "
        "the first-token mass is what was left out."
    ]


def _named(row: pd.Series) -> str:
    return f"{int(row['layer'])}.{int(row['head'])}"
