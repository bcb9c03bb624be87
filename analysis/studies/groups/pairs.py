"""Which far-apart tokens of a text share a group, how much they attend to each other, and what chance would give."""

from typing import Any

import numpy as np
import torch
from pandas import DataFrame, concat

from ...answer import Answer, doc, record
from ...commands.groups import Pairs
from ...groups.pairs import ArmShares, DistanceShares, Pair, PairCollector
from ..context import STREAMED, Context, protocol, read
from ..text.held_out import check_range
from ..text.states import check_head
from ..text.text import named, numbered, quoted, token_table
from .contents import router_notes
from .far import ARMS, CENTROIDS, LISTED, ROUTER, TOKENS, chance_members, collect, far, far_shuffled, routing_vectors
from .routers import memberships, router_facts, shared_router

COPY, INDUCTION, WORD, GROUP = KINDS = "copy", "induction", "same word", "same group"
SAID = {COPY: ", the same token", INDUCTION: ", what came next after an earlier copy", WORD: ", the same word"}
SAID[GROUP] = ""


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
    """The strongest far pairs of one group (Focus, section 5), and three null controls beside them."""
    lm, min_distance = context.model(request.model), request.min_distance
    check_range("The smallest distance", min_distance, 1, lm.max_positions - 1)
    check_range("The number of pairs", request.top, 1, 5000)
    first = lm.layer_numbers[0] if request.layer is None else request.layer
    place = check_head(lm, first, request.head or 0)
    layer = None if request.layer is None else place
    reading = read(context, lm, request.text, request.long_text)
    router, control = shared_router(context, lm, request.router)
    words = token_table(reading)
    of_content = torch.tensor(words["content"].to_numpy())
    narrowed: dict[str, Any] = {"layer": layer, "group": request.group, "head": request.head}
    if request.content and not any(chosen is not None for chosen in narrowed.values()) and request.top <= LISTED:
        # The usual list was collected when the text was first read.
        from_afar = far(context, lm, reading, of_content, router, control, min_distance, request.seed)
        shares, listed = from_afar.shares, from_afar.listed.head(request.top)
    else:
        affinity, members = memberships(router, routing_vectors(context, lm, reading, router))
        by_control = memberships(control, routing_vectors(context, lm, reading, control))[1]
        chance = chance_members(lm, len(words), router, request.seed)
        shares = collector = PairCollector(
            dict(zip(ARMS, (members, by_control, chance), strict=True)),
            affinity,
            min_distance=min_distance,
            top=request.top,
            content=of_content if request.content else None,
            **narrowed,
        )
        collect(context, lm, reading.windows, collector)
        listed = collector.table()
    all_shares = [shares]
    if request.shuffled:
        all_shares.append(far_shuffled(context, lm, reading, router, min_distance, request.seed, request.head))
    listed = described(numbered(lm, listed), words, reading.tokens.ids)
    controls = numbered(lm, concat([arm.controls() for arm in all_shares], ignore_index=True))
    notes = [*reading.notes, *router_notes(router, request.text)]
    longest = max(stop - start for start, stop in reading.tokens.spans)
    if longest <= min_distance + 1:
        notes.append(
            f"The text has {longest} tokens and a far pair needs at least {min_distance + 2}: lower the smallest "
            "distance, or give a longer text."
        )
    settings = {"seed": request.seed, "router": request.router, "min_distance": min_distance}
    return FarPairs(
        **shares.numbers(),
        router=router_facts(request.router, router),
        sentence=_sentence(listed, controls, min_distance),
        notes=notes,
        tokens=words,
        pairs=listed,
        controls=controls,
        distance=concat([arm.by_distance() for arm in all_shares], ignore_index=True),
        protocol=protocol("pairs", lm, request.text, len(words), kernel=STREAMED, **settings),
    )


def described(listed: DataFrame, words: DataFrame, ids: np.ndarray) -> DataFrame:
    """The pairs of a collector with the words of both tokens (`query`, `key`), what the tokens are called in them
    (`query_named`, `key_named`, as "ra in C|ra|le") and the pair's `kind`; `ids` the tokens of the text.

    The first kind that fits: `copy`, the key is the query's token; `induction`, the key stands right after an earlier
    copy of the query's token (it is what came next); `same word`, another piece of the same word; `same group`.
    """
    queries, keys = listed["query_position"].to_numpy(), listed["key_position"].to_numpy()
    word = words["word"].to_numpy()
    # Upper and lower case are one word.
    folded = np.array([spelled.casefold() for spelled in word], dtype=object)
    fits = {
        COPY: ids[queries] == ids[keys],
        # A window's first token is never a key.
        INDUCTION: (keys > 0) & (ids[keys - 1] == ids[queries]),
        WORD: (folded[queries] == folded[keys]).astype(bool),
    }
    return listed.assign(
        query=word[queries],
        key=word[keys],
        query_named=[named(words, position) for position in queries],
        key_named=[named(words, position) for position in keys],
        kind=np.select(list(fits.values()), list(fits), GROUP),
    )


def _sentence(listed: DataFrame, controls: DataFrame, min_distance: int) -> str:
    if listed.empty:
        return (
            f"No two tokens at least {min_distance} apart share a group and attend to each other under these filters."
        )
    mean = controls.groupby("arm")[["pairs_share", "mass_share"]].mean()
    times = {arm: f"{lift:.2f}" for arm, lift in (mean["mass_share"] / mean["pairs_share"]).dropna().items()}
    router, centroids, tokens = (times.get(arm, "no pair") for arm in (ROUTER, CENTROIDS, TOKENS))
    best = listed.iloc[0]
    return (
        f"Far pairs of one group draw {router} times the attention that chance would give them (random centroids "
        f"{centroids}, random tokens {tokens}); the strongest pair here is "
        f"{quoted(best['query'])} reading {quoted(best['key'])}, {int(best['distance']):,} tokens "
        f"back{SAID[best['kind']]}."
    )
