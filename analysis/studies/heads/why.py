"""Why a head reads a key: the score of one pair by its writers, and which writers explain the head over many pairs."""

from typing import Any

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...commands.heads import Why
from ...errors import BadSetting
from ...models.own import own_reading
from ...probes.explained import LEAST, Explaining, Removal, removals, strongest_pairs
from ...probes.moved import moved
from ...probes.why import explained_by
from ...probes.writers import Stream
from ...statistics.states import States
from ..context import Context, protocol
from ..text.states import head_window, telling_query

# Pairs of writers and tokens of the vocabulary that are listed, and writers that are removed.
LISTED, TOKENS, REMOVED = 40, 10, 10
# Slopes of the measured on the predicted change between which both agree.
CLOSE = (0.8, 1.25)
KERNEL = "layers run again at single places, norms frozen"


@record
class WhyThisKey(Worded):
    """Why a head reads a key. Queries, keys and pairs count in the window, `offset` is its first token in the text."""

    layer: int = doc("layer of the head")
    head: int = doc("the head in its layer")
    query: int = doc("the query")
    key: int = doc("the key")
    offset: int = doc("first token of the window in the text")
    logit: float = doc("their scaled score before the softmax and before any soft cap")
    capped: float = doc("the same after the model's soft cap")
    attention: float = doc("share of the query's attention that the key gets")
    rest: float = doc("the score of all pairs of writers that `parts` does not list")
    share: float | None = doc("what was moved, of all that the head wrote at the query, by projection")
    margin: float | None = doc("mean score of the keys that the head reads most over that of other tokens")
    pairs: int = doc("such keys and their queries in the window")
    rows: list[Removal] = doc("writers removed from one stream: change of the score, predicted and measured")
    slopes: str = doc("how far measured changes are from the predicted ones and by what, in a sentence")
    parts: pd.DataFrame = doc("query_writer key_writer score: the strongest pairs of writers")
    spectrum: pd.DataFrame = doc("wavelength score most distance of every rotary frequency")
    distance: pd.DataFrame = doc("the score of the same query and key at other distances: distance logit")
    vocabulary: pd.DataFrame = doc("token change: the logits that what was moved raises and lowers most")
    writers: pd.DataFrame = doc("side writer margin low high share: who explains the head over the pairs")
    tokens: pd.DataFrame = doc("tokens of the text")


def why(request: Why, *, context: Context) -> WhyThisKey:
    """Why a head gives a key its score, in window `part` of a text (`probes.why`), and which writers explain what it
    reads there: of the pairs that it reads most, each key held against other tokens that its query could read
    (`probes.explained`). The writers with the largest part are removed from their stream, and the change of the score
    is held against the predicted one. Errors: BadSetting, BadModel."""
    window, layer, head = head_window(request, context), request.layer, request.head
    lm, ids, words = window.lm, window.ids, window.words
    query, key = _pair(request, window.states, words, window.offset)
    context.progress(0.2, f"score of token {query:,} and token {key:,}")
    place = lm.layer_numbers.index(layer)
    stream = Stream(lm.lm, torch.as_tensor(np.asarray(ids)).long(), place, [query, key])
    found = explained_by(stream, layer, head, query, key)
    direct = moved(stream, found)
    context.progress(0.4, f"who explains head {layer}.{head}")
    notes, margin, rows, slopes = [], None, [], ""
    writers = pd.DataFrame(columns=["side", "writer", "margin", "low", "high", "share"])
    pairs = strongest_pairs(window.states, head)
    if len(pairs):
        explaining = Explaining(lm, ids, layer, head, pairs, request.seed)
        explained = explaining.explained()
        margin = float(explained.margin.mean())
        order = explained.writers["margin"].abs().sort_values(ascending=False, kind="stable").index
        writers = explained.writers.loc[order].reset_index(drop=True)
        context.progress(0.7, "removing writers")
        rows = list(removals(explaining, explained, REMOVED, request.by))
        slopes = _slopes(rows, float(explaining.logits.mean()))
    else:
        notes.append(f"Nowhere in this window does the head give one token {LEAST:.0%} of its attention.")
    change = np.zeros(0) if direct is None else direct.change
    order = np.argsort(-change, kind="stable")
    # The tokens whose logits rise and fall most.
    ends = [*order[:TOKENS], *order[-TOKENS:]]
    pushed = {"token": [lm.tokenizer.decode([int(token)]) for token in ends], "change": change[ends]}
    listed = found.parts.loc[found.parts["score"].abs().sort_values(ascending=False, kind="stable").index[:LISTED]]
    distances = np.unique(np.geomspace(1, len(ids), 120).astype(int)) if found.frequencies else np.zeros(0, int)
    about: dict[str, Any] = {"layer": layer, "head": head, "part": request.part, "window": len(ids), "by": request.by}
    return WhyThisKey(
        layer=layer,
        head=head,
        query=query,
        key=key,
        offset=window.offset,
        logit=found.logit,
        capped=found.capped,
        attention=found.attention,
        rest=float(found.logit - listed["score"].sum()),
        share=None if direct is None else direct.share,
        margin=margin,
        pairs=len(pairs),
        rows=rows,
        slopes=slopes,
        sentence=_sentence(writers, listed, layer, head),
        notes=[*own_reading(lm), *window.reading.notes, *notes],
        parts=listed.reset_index(drop=True),
        spectrum=found.by_frequency(),
        distance=pd.DataFrame({"distance": distances, "logit": found.at_distances(distances)}),
        vocabulary=pd.DataFrame(pushed),
        writers=writers,
        tokens=words,
        protocol=protocol("why", lm, request.text, len(ids), **about, seed=request.seed, kernel=KERNEL),
    )


def _pair(request: Why, states: States, words: pd.DataFrame, offset: int) -> tuple[int, int]:
    """The query and key that were asked for, else the strongest far read and what it reads most. Errors: BadSetting."""
    query = telling_query(states, request.head, words, offset) if request.query is None else request.query
    if not 0 <= query < states.length:
        raise BadSetting(f"Tokens of this window run from 0 to {states.length - 1:,}, and {query:,} was asked for.")
    if (key := request.key_token) is not None:
        if not 0 <= key <= query:
            raise BadSetting(f"Token {query:,} reads tokens 0 to {query:,}, and key {key:,} was asked for.")
        return query, key
    # The window's first token, a sink, is the answer for no query that has another.
    scores = states.scores(request.head, query, query + 1)[0]
    return query, int(scores[1:].argmax()) + 1 if len(scores) > 1 else 0


def _slopes(rows: list[Removal], score: float) -> str:
    """What a slope owes to the norms, and what the score does where later writers follow."""
    slopes = [row.slope for row in rows if row.slope is not None]
    if not slopes:
        return ""
    near, scales = sum(CLOSE[0] <= slope <= CLOSE[1] for slope in slopes), [row.rescaled for row in rows]
    followed = [row.followed for row in rows if row.followed is not None]
    text = (
        f"{near} of {len(slopes)} slopes lie between {CLOSE[0]:g} and {CLOSE[1]:g}. With the norms as they were each "
        f"is 1; they multiply what is left by {min(scales):.2f} to {max(scales):.2f}, of a mean score of {score:.1f}, "
        "which outweighs a writer that gave little"
    )
    later = f"; where later writers follow, the median slope is {np.median(followed):.2f}" if followed else ""
    return f"{text}{later}."


def _sentence(writers: pd.DataFrame, parts: pd.DataFrame, layer: int, head: int) -> str:
    """The writer of the keys' stream and that of the queries' that explain most."""
    if writers.empty:
        best = parts.iloc[0]
        return (
            f"The largest part of this score, {best['score']:.2f}, is what {best['query_writer']} wrote at the query "
            f"times what {best['key_writer']} wrote at the key."
        )
    sides = [writers[writers["side"] == side].iloc[0] for side in ("query", "key")]
    named = [f"{row['writer']} ({row['share']:.0%})" for row in sides]
    return f"Head {layer}.{head} finds its keys by {named[1]} in their stream and {named[0]} in the query's."
