"""Which far-apart tokens of a text share a group, how much they attend to each other, and what chance would give."""

from typing import Any

import numpy as np
import torch
from pandas import DataFrame, concat

from ...answer import Answer, doc, record
from ...commands.groups import Pairs
from ...errors import BadSetting
from ...groups.pairs import Pair, PairCollector
from ...groups.shares import ArmShares, DistanceShares
from ...models import Model
from ..context import STREAMED, Context, Reading, check_seed, protocol, read
from ..text.states import check_head
from ..text.text import named, quoted, token_table
from .contents import router_notes
from .far import (
    CENTROIDS,
    LISTED,
    ROUTER,
    TOKENS,
    collect,
    far,
    far_shuffled,
    feed,
    of_arms,
)
from .routers import router_facts, router_for

COPY, INDUCTION, WORD, GROUP = KINDS = "copy", "induction", "same word", "same group"
SAID = dict(
    zip(KINDS, (", the same token", ", what came next after an earlier copy", ", the same word", ""), strict=True)
)


@record
class FarPair(Pair):
    """A far pair with its words."""

    query: str = doc("the word of the token that reads")
    key: str = doc("the word of the token that is read")
    query_named: str = doc('the token within its word, as "ra in C|ra|le"')
    key_named: str
    kind: str = doc(f"the first that fits of {', '.join(KINDS)}")


@record
class FarPairs(Answer):
    """The strongest far pairs of one group, and what chance would give."""

    far_pairs: int = doc("pairs at least the smallest distance apart, over all layers")
    same_group_pairs: int = doc("those of them that share a group")
    router: dict[str, Any] = doc("the router's name, sizes and how it was made")
    sentence: str = doc("the result in words")
    notes: list[str] = doc("what a reader must know of the text and the router")
    tokens: DataFrame = doc("the tokens of the text with their words")
    pairs: DataFrame = doc("the strongest, one row each", row=FarPair)
    controls: DataFrame = doc("one row per layer and arm", row=ArmShares)
    distance: DataFrame = doc("one row per arm and bin of distance", row=DistanceShares)


def pairs(request: Pairs, *, context: Context) -> FarPairs:
    """The strongest far pairs of one group (Focus, section 5), and three null controls beside them.

    `min_distance` tokens lie at least between query and key; `content` lists pairs of content words only; `layer`,
    `group`, `head` narrow the list. `shuffled`: whether the text is read once more with its tokens shuffled, as one of
    the controls.
    """
    check_seed(request.seed)
    lm = context.model(request.model)
    _check(lm, request.min_distance, request.top, request.layer, request.head)
    reading = read(context, lm, request.text, request.long_text)
    focus_router, control = router_for(context, lm, request.router)
    words = token_table(reading)
    of_content = torch.tensor(words["content"].to_numpy())
    if request.content and (request.layer, request.group, request.head) == (None, None, None) and request.top <= LISTED:
        # The usual list was collected when the text was first read.
        from_afar = far(context, lm, reading, of_content, focus_router, control, request.min_distance, request.seed)
        shares, listed = from_afar.shares, from_afar.listed.head(request.top)
    else:
        affinity, arms = of_arms(context, lm, reading, focus_router, control, request.seed)
        filters: dict[str, Any] = {
            "content": of_content if request.content else None,
            "layer": request.layer,
            "group": request.group,
            "head": request.head,
        }
        collector = PairCollector(arms, affinity, min_distance=request.min_distance, top=request.top, **filters)
        collect(lm, reading.windows, [feed(collector)], context)
        shares, listed = collector, collector.table()
    all_shares = [shares]
    if request.shuffled:
        all_shares.append(
            far_shuffled(context, lm, reading, focus_router, request.min_distance, request.seed, request.head)
        )
    listed = described(listed, words, reading.tokens.ids)
    controls = concat([arm.controls() for arm in all_shares], ignore_index=True)
    settings = {
        "seed": request.seed,
        "router": request.router,
        "min_distance": request.min_distance,
        "kernel": STREAMED,
    }
    return FarPairs(
        **shares.numbers(),
        router=router_facts(request.router, focus_router),
        sentence=_sentence(listed, controls, request.min_distance),
        notes=[*reading.notes, *router_notes(focus_router, request.text), *_short(reading, request.min_distance)],
        tokens=words,
        pairs=listed,
        controls=controls,
        distance=concat([arm.by_distance() for arm in all_shares], ignore_index=True),
        protocol=protocol("pairs", lm, request.text, len(words), **settings),
    )


def described(listed: DataFrame, words: DataFrame, ids: np.ndarray) -> DataFrame:
    """The pairs of a collector with the words of both tokens (`query`, `key`), what the tokens are called in them
    (`query_named`, `key_named`, as "ra in C|ra|le") and the pair's `kind`; `ids` the tokens of the text.

    The first kind that fits: `copy`, the key is the query's token; `induction`, the key stands right after an earlier
    copy of the query's token (it is what came next); `same word`, another piece of the same word; `same group`.
    """
    queries, keys = (listed[f"{side}_position"].to_numpy() for side in ("query", "key"))
    word = words["word"].to_numpy()
    fits = {
        COPY: ids[queries] == ids[keys],
        # A window's first token is never a key.
        INDUCTION: (keys > 0) & (ids[keys - 1] == ids[queries]),
        WORD: [a.casefold() == b.casefold() for a, b in zip(word[queries], word[keys], strict=True)],
    }
    called = {
        f"{side}_named": [named(words, position) for position in to] for side, to in (("query", queries), ("key", keys))
    }
    kind = np.select([np.asarray(fit, bool) for fit in fits.values()], list(fits), GROUP)
    return listed.assign(query=word[queries], key=word[keys], **called, kind=kind)


def _check(model: Model, min_distance: int, top: int, layer: int | None, head: int | None) -> None:
    if not 1 <= min_distance < model.max_positions:
        raise BadSetting(
            f"The smallest distance is {min_distance} tokens and must lie between 1 and {model.max_positions - 1}, "
            "one less than the model reads at once."
        )
    if not 1 <= top <= 5000:
        raise BadSetting(f"{top} pairs were asked for: choose between 1 and 5,000.")
    check_head(model, layer or 0, head or 0)


def _short(reading: Reading, min_distance: int) -> list[str]:
    longest = max(stop - start for start, stop in reading.tokens.spans)
    if longest > min_distance + 1:
        return []
    return [
        f"The text has {longest} tokens and a far pair needs at least {min_distance + 2}: lower the smallest distance, "
        "or give a longer text."
    ]


def _sentence(listed: DataFrame, controls: DataFrame, min_distance: int) -> str:
    if listed.empty:
        return (
            f"No two tokens at least {min_distance} apart share a group and attend to each other under these filters."
        )
    mean = controls.groupby("arm")[["pairs_share", "mass_share"]].mean()
    lift = (mean["mass_share"] / mean["pairs_share"]).map(
        lambda times: "no pair" if np.isnan(times) else f"{times:.2f}"
    )
    best = listed.iloc[0]
    return (
        f"Far pairs of one group draw {lift[ROUTER]} times the attention that chance would give them (random centroids "
        f"{lift[CENTROIDS]}, random tokens {lift[TOKENS]}); the strongest pair here is "
        f"{quoted(best['query_named'])} reading {quoted(best['key_named'])}, {int(best['distance']):,} tokens "
        f"back{SAID[best['kind']]}."
    )
