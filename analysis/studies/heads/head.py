"""One head on one text: its pattern, what one token reads, and its numbers query by query."""

import numpy as np
import pandas as pd
import torch

from analysis.errors import BadSetting
from analysis.runs import Result
from analysis.statistics import HeadReading
from analysis.statistics.states import States
from analysis.studies.context import Context, protocol, read
from analysis.studies.heads.statistics import sink_notes
from analysis.studies.text.states import check_head, states_of, window_of
from analysis.studies.text.text import token_table

SIDE = 256  # cells of a pattern, and tokens of an exact tile, on each side
BLOCK_VALUES = 1 << 20
TOP = 20


def head(
    model: str = "demo",
    text: str = "",
    layer: int = 0,
    head: int = 0,
    query: int | None = None,
    rows: list[int] | None = None,
    columns: list[int] | None = None,
    top: int = TOP,
    without_first: bool = False,
    mass: float = 0.9,
    window: int = 128,
    part: int = 0,
    long_text: str = "windows",
    *,
    context: Context,
) -> Result:
    """What one head reads in window `part` of a text, from its queries and keys, block by block.

    arrays: `pattern` float32 [up to 256, up to 256]: attention of `cell` neighbouring queries, their mean, to as many
    neighbouring keys, their sum, so a row adds up to 1; with `rows` and `columns` ([first, past the last], at most 256
    tokens of the window) also `tile`, exact; `row`, all of what token `query` of the window reads (the last one unless
    given). tables: `keys`, its `top` keys: `key position piece word distance attention`; `queries`: `position` in the
    text and the statistics of each query; `distance` (`low high mass uniform`); `tokens` of the whole text. `key`,
    `query` and the axes count in the window, `position` in the text. `without_first` leaves the window's first token
    out and renormalises. numbers: `cell`, `length`, `offset` of the window in the text, `query`, `summary` (means of
    the statistics), `chance`, `sentence`, `notes`. Errors: BadSetting.
    """
    lm = context.model(model)
    check_head(lm, layer, head)
    reading = read(context, lm, text, long_text)
    offset, ids = window_of(reading, part)
    length = len(ids)
    query = length - 1 if query is None else query
    tile = _tile(rows, columns, length)
    if not 0 <= query < length or not 1 <= top <= 1000:
        raise BadSetting(
            f"Tokens of this window run from 0 to {length - 1:,} and up to 1,000 keys are listed: token {query:,} and "
            f"{top:,} keys were asked for."
        )
    found = HeadReading(1, 1, mass, window, without_first, head=(0, 0))
    states = states_of(context, lm, text, part, ids, layer)[layer]
    context.progress(0.5, f"layer {layer}, head {head}")
    arrays, cell = _stream(states, head, ids, found, query, tile, without_first)
    words = token_table(reading)
    listed = _keys(arrays["row"], query, top, offset, words)
    numbers = {
        **{"layer": layer, "head": head, "query": query, "cell": cell, "length": length, "offset": offset},
        "summary": found.table().drop(columns=["layer", "head"]).iloc[0].to_dict(),
        "chance": found.chance().drop(columns="layer").iloc[0].to_dict(),
        "pooling": _pooling(cell, length),
        "sentence": _sentence(listed, words["word"][offset + query], layer, head),
        "without_first": without_first,
        "notes": [*reading.notes, *sink_notes(without_first)],
        "protocol": protocol(
            "head", lm, text, length, layer=layer, head=head, part=part, mass=mass, near=window, window=length,
            kernel="scores from kept queries and keys", without_first=without_first,
        ),
    }  # fmt: skip
    queries = found.queries()
    queries["position"] += offset
    distance = found.distances().drop(columns=["layer", "head"])
    return Result(numbers, {"keys": listed, "queries": queries, "distance": distance, "tokens": words}, arrays)


def _tile(rows: list[int] | None, columns: list[int] | None, length: int) -> tuple[int, int, int, int] | None:
    """(first row, past the last, first column, past the last) of the exact tile. Errors: BadSetting."""
    if rows is None and columns is None:
        return None
    for edges in (rows, columns):
        if edges is None or len(edges) != 2 or not 0 <= edges[0] < edges[1] <= length or edges[1] - edges[0] > SIDE:
            raise BadSetting(
                f"An exact tile has rows and columns as [first, past the last] within 0 to {length:,}, at most {SIDE} "
                f"of each, and {rows} and {columns} were given."
            )
    return (*rows, *columns)


@torch.no_grad()
def _stream(
    states: States,
    head: int,
    ids: np.ndarray,
    found: HeadReading,
    query: int,
    tile: tuple[int, int] | None,
    without_first: bool,
) -> tuple[dict[str, np.ndarray], int]:
    """(arrays `pattern`, `row` and, where asked for, `tile`; tokens of a cell) of one head; fills `found`."""
    length = len(ids)
    cell = -(-length // SIDE)
    cells = -(-length // cell)
    pattern, row = np.zeros((cells, cells)), np.zeros(length, np.float32)
    shown = np.zeros((tile[1] - tile[0], tile[3] - tile[2]), np.float32) if tile else None
    found.begin(torch.from_numpy(np.asarray(ids)).long()[None], torch.ones(1, length, dtype=torch.bool))
    size = max(1, BLOCK_VALUES // length)
    for start in range(0, length, size):
        stop = min(start + size, length)
        scores = states.scores(head, start, stop).cpu()
        even = torch.zeros_like(scores).masked_fill_(scores == float("-inf"), float("-inf"))
        if without_first:
            p = scores.index_fill(1, torch.tensor([0]), float("-inf")).softmax(-1).nan_to_num_(0.0)
        else:
            p = scores.softmax(-1)
        found.measure(scores, even, start)
        places = np.arange(start, stop)
        pooled = np.add.reduceat(p.numpy(), np.arange(0, stop, cell), axis=1)
        np.add.at(pattern[:, : pooled.shape[1]], places // cell, pooled)
        if start <= query < stop:
            row[:stop] = p[query - start]
        if tile:
            inside = (places >= tile[0]) & (places < tile[1])
            right = min(stop, tile[3])
            if right > tile[2]:
                shown[places[inside] - tile[0], : right - tile[2]] = p.numpy()[inside, tile[2] : right]
    pattern /= np.bincount(np.arange(length) // cell)[:, None]
    arrays = {"pattern": pattern.astype(np.float32), "row": row}
    return arrays | ({"tile": shown} if tile else {}), cell


def _keys(row: np.ndarray, query: int, top: int, offset: int, words: pd.DataFrame) -> pd.DataFrame:
    best = np.argsort(-row[: query + 1], kind="stable")[:top]
    best = best[row[best] > 0]
    there = words.iloc[offset + best]
    return pd.DataFrame(
        {
            "key": best,
            "position": offset + best,
            "piece": there["piece"].to_numpy(),
            "word": there["word"].to_numpy(),
            "distance": query - best,
            "attention": row[best],
        }
    )


def _pooling(cell: int, length: int) -> str:
    if cell == 1:
        return f"Every one of the {length:,} tokens has its own row and column."
    return (
        f"A cell is {cell} queries and {cell} keys: the mean over the queries of what they give to these keys together."
    )


def _sentence(listed: pd.DataFrame, word: str, layer: int, head: int) -> str:
    if listed.empty:
        return f"Head {head} of layer {layer} has nothing to read from {word!r} once the first token is left out."
    best = listed.iloc[0]
    back = int(best["distance"])
    where = "the token itself" if back == 0 else f"{back:,} token{'s' * (back != 1)} back"
    return (
        f"From {word!r}, head {head} of layer {layer} reads {best['word']!r} most ({where}): "
        f"{best['attention']:.0%} of its attention."
    )
