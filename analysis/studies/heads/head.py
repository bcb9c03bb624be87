"""What heads read in a text: exact statistics of all for a map, and of one its pattern, what one token reads, and its
numbers query by query."""

import numpy as np
import pandas as pd
import torch

from analysis.errors import BadSetting
from analysis.runs import Result
from analysis.statistics import CORE, MORE, SINK, HeadReading, head_labels
from analysis.statistics.numerics import SAMPLE
from analysis.statistics.states import States
from analysis.studies.context import Context, check_seed, protocol, read
from analysis.studies.text.one_pass import head_statistics
from analysis.studies.text.query import telling_query
from analysis.studies.text.states import check_head, states_of, window_of
from analysis.studies.text.text import keys_table, token_table

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
    tokens of the window) also `tile`, exact; `row`, all of what token `query` of the window reads (unless given, the
    whole word with the strongest read from `window` or more tokens back). tables: `keys`, its `top` keys: `key position
    piece word distance attention`; `queries`: `position` in the text and the statistics of each query; `distance` (`low
    high mass uniform`); `tokens` of the whole text. `key`, `query` and the axes count in the window, `position` in the
    text. `without_first` leaves the window's first token out and renormalises. numbers: `cell`, `length`, `offset` of
    the window in the text, `query`, `summary` (means of the statistics), `chance`, `sentence`, `notes`. Errors:
    BadSetting.
    """
    lm = context.model(model)
    check_head(lm, layer, head)
    reading = read(context, lm, text, long_text)
    offset, ids = window_of(reading, part)
    length = len(ids)
    tile = _tile(rows, columns, length)
    states = states_of(context, lm, ids, layer)[layer]
    words = token_table(reading)
    query = telling_query(states, head, words, offset, window) if query is None else query
    if not 0 <= query < length or not 1 <= top <= 1000:
        raise BadSetting(
            f"Tokens of this window run from 0 to {length - 1:,} and up to 1,000 keys are listed: token {query:,} and "
            f"{top:,} keys were asked for."
        )
    found = HeadReading(1, 1, mass, window, without_first, head=(0, 0))
    context.progress(0.5, f"layer {layer}, head {head}")
    arrays, cell = _stream(states, head, ids, found, query, tile)
    best = np.argsort(-arrays["row"][: query + 1], kind="stable")[:top]
    best = best[arrays["row"][best] > 0]
    listed = keys_table(words, best, query, offset).assign(attention=arrays["row"][best])
    pooling = f"Every one of the {length:,} tokens has its own row and column."
    if cell > 1:
        pooling = f"A cell is {cell} queries and {cell} keys: the mean over the queries of what they give to these keys"
        pooling += " together."
    place = {"layer": layer, "head": head}
    about = {**place, "part": part, "mass": mass, "near": window, "window": length, "without_first": without_first}
    numbers = {
        **{**place, "query": query, "cell": cell, "length": length, "offset": offset},
        "summary": found.table().drop(columns=["layer", "head"]).iloc[0].to_dict(),
        "chance": found.chance().drop(columns="layer").iloc[0].to_dict(),
        "pooling": pooling,
        "sentence": _sentence(listed, words["word"][offset + query], layer, head),
        "without_first": without_first,
        "notes": [*reading.notes, *sink_notes(without_first)],
        "protocol": protocol("head", lm, text, length, kernel="scores from kept queries and keys", **about),
    }
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
    states: States, head: int, ids: np.ndarray, found: HeadReading, query: int, tile: tuple | None
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
        if found.without_first:
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
            values = p.numpy()[inside, tile[2] : tile[3]]
            shown[places[inside] - tile[0], : values.shape[1]] = values
    pattern /= np.bincount(np.arange(length) // cell)[:, None]
    arrays = {"pattern": pattern.astype(np.float32), "row": row}
    return arrays | ({"tile": shown} if tile else {}), cell


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


def statistics(
    model: str = "demo",
    text: str = "",
    mass: float = 0.9,
    window: int = 128,
    without_first: bool = False,
    seed: int = 0,
    long_text: str = "windows",
    *,
    context: Context,
) -> Result:
    """Entropy, rank, sink, window and distance of every head's attention, exact means over all queries of a text.

    `mass` of the rank, `window` tokens of the window mass. `without_first` leaves each window's first token out of all
    but `first_token_mass` and renormalises. numbers: `rows` with the columns of `attention_statistics`, `sentence`,
    `induction_queries` (share of tokens that stood in their window before), `numerics` (`largest_score difference
    own_difference` of the worst layer, see `statistics.Numerics`, `dtype queries`). tables: `numerics` (per layer),
    `heads` (`layer head`, the six,
    `previous_token`, `induction` and `far_peaks` as `HeadReading` defines them, and `label`, see `head_labels`),
    `chance` (`layer` and the same for a head that reads all visible keys alike), `distance` (`layer head low high mass
    uniform`), `tokens`. Errors: BadSetting, TooLarge.
    """
    check_seed(seed)
    lm = context.model(model)
    reading = read(context, lm, text, long_text)
    found, numerics = head_statistics(context, lm, reading, mass, window, without_first)
    heads, exact = found.table(), numerics.table()
    heads["label"] = head_labels(heads, found.chance())
    before = found.counts[0, 0, CORE.index("entropy")]
    about = {"seed": seed, "mass": mass, "near": window, "without_first": without_first}
    numbers = {
        "rows": heads[["layer", "head", *CORE]].to_dict("records"),
        "sentence": _of_all(heads, found.chance(), mass, window),
        "induction_queries": float(found.counts[0, 0, len(CORE) + MORE.index("induction")] / max(1, before)),
        "numerics": exact.drop(columns="layer").max().to_dict() | {"dtype": str(lm.dtype)[6:], "queries": SAMPLE},
        "without_first": without_first,
        "notes": [*reading.notes, *sink_notes(without_first)],
        "protocol": protocol("statistics", lm, text, len(reading.tokens), kernel="streamed statistics", **about),
    }
    tables = {"heads": heads, "chance": found.chance(), "distance": found.distances(), "tokens": token_table(reading)}
    return Result(numbers, tables | {"numerics": exact})


def sink_notes(without_first: bool) -> list[str]:
    """What is said of a number when the first token is left out."""
    if not without_first:
        return []
    return [
        "The first token of each window is left out, and what a head gives to the others is renormalised to 100%; "
        "the first-token mass is what was left out."
    ]


def _of_all(heads: pd.DataFrame, chance: pd.DataFrame, mass: float, window: int) -> str:
    sinks = int((heads["first_token_mass"] >= SINK).sum())
    sharp = heads.loc[heads["entropy"].idxmin()]
    ranks = heads["top_p_rank"]
    said = (
        f"{sinks} of {len(heads)} heads leave more than half of their attention on the first token; half of the heads "
        f"need {ranks.median():,.0f} keys or fewer for {mass:.0%} of it (reading all alike would need "
        f"{chance['top_p_rank'].mean():,.0f}); the sharpest is head {int(sharp['head'])} of layer "
        f"{int(sharp['layer'])}"
    )
    if heads["far_peaks"].notna().any():
        far = heads.loc[heads["far_peaks"].idxmax()]
        said += (
            f"; head {int(far['head'])} of layer {int(far['layer'])} picks out most from {window} or more tokens back "
            f"({far['far_peaks']:.0%} of its attention above chance)"
        )
    induction = heads.loc[heads["induction"].idxmax()] if heads["induction"].notna().any() else None
    if induction is None:
        return said + "."
    return said + (
        f", and head {int(induction['head'])} of layer {int(induction['layer'])} most reads what followed earlier "
        f"copies of a token ({induction['induction']:.0%} of its attention, chance {chance['induction'].mean():.0%})."
    )
