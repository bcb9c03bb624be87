"""What heads read in a text: exact statistics of all for a map, and of one its pattern, what one token reads, and its
numbers query by query."""

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...errors import BadSetting
from ...statistics import CORE, MORE, SINK, HeadReading, head_labels
from ...statistics.numerics import SAMPLE
from ...statistics.states import States
from ..context import Context, check_seed, protocol, read
from ..text.one_pass import head_statistics
from ..text.query import telling_query
from ..text.states import check_head, states_of, window_of
from ..text.text import keys_table, token_table

SIDE = 256  # cells of a pattern, and tokens of an exact tile, on each side
BLOCK_VALUES = 1 << 20
TOP = 20
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
) -> OneHead:
    """What one head reads in window `part` of a text, from its queries and keys, block by block.

    `query`: the token whose `top` keys are listed, unless given the whole word with the strongest read from `window` or
    more tokens back. `rows` and `columns` ([first, past the last], at most 256 tokens of the window): a part of the
    attention that is given exactly. `without_first` leaves the window's first token out and renormalises. Errors:
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
    reading_of_head = HeadReading(1, 1, mass, window, without_first, head=(0, 0))
    context.progress(0.5, f"layer {layer}, head {head}")
    arrays, cell = _stream(states, head, ids, reading_of_head, query, tile)
    best = np.argsort(-arrays["row"][: query + 1], kind="stable")[:top]
    best = best[arrays["row"][best] > 0]
    listed = keys_table(words, best, query, offset).assign(attention=arrays["row"][best])
    pooling = f"Every one of the {length:,} tokens has its own row and column."
    if cell > 1:
        pooling = f"A cell is {cell} queries and {cell} keys: the mean over the queries of what they give to these keys"
        pooling += " together."
    about = {"layer": layer, "head": head, "part": part, "mass": mass, "near": window, "window": length}
    about["without_first"] = without_first
    queries = reading_of_head.queries()
    queries["position"] += offset
    return OneHead(
        layer=layer,
        head=head,
        query=query,
        cell=cell,
        length=length,
        offset=offset,
        summary=reading_of_head.table().drop(columns=["layer", "head"]).iloc[0].to_dict(),
        chance=reading_of_head.chance().drop(columns="layer").iloc[0].to_dict(),
        pooling=pooling,
        sentence=_sentence(listed, words["word"][offset + query], layer, head),
        without_first=without_first,
        notes=[*reading.notes, *sink_notes(without_first)],
        keys=listed,
        queries=queries,
        distance=reading_of_head.distances().drop(columns=["layer", "head"]),
        tokens=words,
        **arrays,
        protocol=protocol("head", lm, text, length, kernel=KERNEL, **about),
    )


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
    states: States, head: int, ids: np.ndarray, reading: HeadReading, query: int, tile: tuple | None
) -> tuple[dict[str, np.ndarray], int]:
    """(arrays `pattern`, `row` and, where asked for, `tile`; tokens of a cell) of one head; fills `reading`."""
    length = len(ids)
    cell = -(-length // SIDE)
    cells = -(-length // cell)
    pattern, row = np.zeros((cells, cells)), np.zeros(length, np.float32)
    exact = np.zeros((tile[1] - tile[0], tile[3] - tile[2]), np.float32) if tile else None
    reading.begin(torch.from_numpy(np.asarray(ids)).long()[None], torch.ones(1, length, dtype=torch.bool))
    size = max(1, BLOCK_VALUES // length)
    for start in range(0, length, size):
        stop = min(start + size, length)
        scores = states.scores(head, start, stop).cpu()
        even = torch.zeros_like(scores).masked_fill_(scores == float("-inf"), float("-inf"))
        if reading.without_first:
            p = scores.index_fill(1, torch.tensor([0]), float("-inf")).softmax(-1).nan_to_num_(0.0)
        else:
            p = scores.softmax(-1)
        reading.measure(scores, even, start)
        places = np.arange(start, stop)
        pooled = np.add.reduceat(p.numpy(), np.arange(0, stop, cell), axis=1)
        np.add.at(pattern[:, : pooled.shape[1]], places // cell, pooled)
        if start <= query < stop:
            row[:stop] = p[query - start]
        if tile:
            inside = (places >= tile[0]) & (places < tile[1])
            values = p.numpy()[inside, tile[2] : tile[3]]
            exact[places[inside] - tile[0], : values.shape[1]] = values
    pattern /= np.bincount(np.arange(length) // cell)[:, None]
    arrays = {"pattern": pattern.astype(np.float32), "row": row}
    return arrays | ({"tile": exact} if tile else {}), cell


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


@record
class HeadStatistics(Worded):
    """What every head of the model reads in a text, as means over all queries."""

    rows: list[dict] = doc("layer, head and the six statistics of `attention_statistics` of every head")
    induction_queries: float = doc("share of the tokens that stood in their window before")
    numerics: dict = doc("largest_score difference own_difference of the worst layer, see `statistics.Numerics`")
    without_first: bool = doc("each window's first token is left out and the others renormalised")
    heads: pd.DataFrame = doc("rows, with previous_token induction far_peaks of `HeadReading` and a label")
    chance: pd.DataFrame = doc("per layer the same of a head that reads all visible keys alike")
    distance: pd.DataFrame = doc("attention by distance: layer head low high mass uniform")
    tokens: pd.DataFrame = doc("tokens of the text")
    layer_numerics: pd.DataFrame = doc("the numerics of every layer", name="numerics")


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
) -> HeadStatistics:
    """Entropy, rank, sink, window and distance of every head's attention, exact means over all queries of a text.

    `mass` of the rank, `window` tokens of the window mass. `without_first` leaves each window's first token out of all
    but `first_token_mass` and renormalises. Errors: BadSetting, TooLarge.
    """
    check_seed(seed)
    lm = context.model(model)
    reading = read(context, lm, text, long_text)
    measured, numerics = head_statistics(context, lm, reading, mass, window, without_first)
    heads, chance, exact = measured.table(), measured.chance(), numerics.table()
    heads["label"] = head_labels(heads, chance)
    scored = measured.counts[0, 0, CORE.index("entropy")]
    about = {"seed": seed, "mass": mass, "near": window, "without_first": without_first}
    repeated = measured.counts[0, 0, len(CORE) + MORE.index("induction")]
    return HeadStatistics(
        rows=heads[["layer", "head", *CORE]].to_dict("records"),
        sentence=_of_all(heads, chance, mass, window),
        induction_queries=float(repeated / max(1, scored)),
        numerics=exact.drop(columns="layer").max().to_dict() | {"dtype": str(lm.dtype)[6:], "queries": SAMPLE},
        without_first=without_first,
        notes=[*reading.notes, *sink_notes(without_first)],
        heads=heads,
        chance=chance,
        distance=measured.distances(),
        tokens=token_table(reading),
        layer_numerics=exact,
        protocol=protocol("statistics", lm, text, len(reading.tokens), kernel="streamed statistics", **about),
    )


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
    sentence = (
        f"{sinks} of {len(heads)} heads leave more than half of their attention on the first token; half of the heads "
        f"need {ranks.median():,.0f} keys or fewer for {mass:.0%} of it (reading all alike would need "
        f"{chance['top_p_rank'].mean():,.0f}); the sharpest is head {int(sharp['head'])} of layer "
        f"{int(sharp['layer'])}"
    )
    if heads["far_peaks"].notna().any():
        far = heads.loc[heads["far_peaks"].idxmax()]
        sentence += (
            f"; head {int(far['head'])} of layer {int(far['layer'])} picks out most from {window} or more tokens back "
            f"({far['far_peaks']:.0%} of its attention above chance)"
        )
    induction = heads.loc[heads["induction"].idxmax()] if heads["induction"].notna().any() else None
    if induction is None:
        return sentence + "."
    return sentence + (
        f", and head {int(induction['head'])} of layer {int(induction['layer'])} most reads what followed earlier "
        f"copies of a token ({induction['induction']:.0%} of its attention, chance {chance['induction'].mean():.0%})."
    )
