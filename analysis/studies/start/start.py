"""The first look: what does the model read in this text, and which far-apart tokens belong together?"""

import numpy as np
import pandas as pd
import torch

from ...answer import Answer, doc, record
from ...commands.text import Start
from ..context import STREAMED, Context, Reading, protocol, read
from ..groups.contents import router_notes
from ..groups.far import ROUTER, far
from ..groups.pairs import SAID, described
from ..groups.routers import router_facts, shared_router
from ..text.text import numbered, quoted, token_table

TOP_PAIRS, TOP_WORDS = 40, 4
# A word must be read from afar by at least this many tokens' worth of chance to be named.
OFTEN = 2


@record
class FirstLook(Answer):
    """What dense attention reads in a text from afar."""

    sentences: list[str] = doc("three sentences computed from the text")
    far_share: float = doc("share of the attention that lies far back")
    far_share_uniform: float = doc("the same if every token were read alike")
    sink_share: float = doc("share on the first token of a window")
    chance: float = doc("what a token draws by chance, the unit of `received`")
    min_distance: int = doc("tokens back from which on a token is far")
    router: dict = doc("facts of the router whose groups the pairs are of")
    notes: list[str] = doc("what to bear in mind")
    tokens: pd.DataFrame = doc("tokens of the text; received: far attention drawn, in multiples of chance")
    pairs: pd.DataFrame = doc("the strongest far pairs inside a learned group")
    distance: pd.DataFrame = doc("attention by distance")
    links: np.ndarray = doc("int32 [2, T, n, 2]: far tokens that each reads most, and its far readers; token, head")
    link_share: np.ndarray = doc("float32 [2, T, n]: share of that head's attention; heads count over all layers")


def start(request: Start, *, context: Context) -> FirstLook:
    """What dense attention reads in a text from afar, and its strongest far pairs inside a learned group. Chance: the
    same far attention spread evenly over the far tokens."""
    lm = context.model(request.model)
    reading = read(context, lm, request.text, request.long_text, windows=request.windows)
    min_distance = far_from(reading, request.min_distance)
    focus_router, control = shared_router(context, lm, request.router)
    words = token_table(reading)
    content = torch.tensor(words["content"].to_numpy())
    far_reading = far(context, lm, reading, content, focus_router, control, min_distance)
    words["received"] = far_reading.reading.tokens()
    listed = described(numbered(lm, far_reading.listed.head(TOP_PAIRS)), words, reading.tokens.ids)
    shares, controls = far_reading.reading.shares(), far_reading.shares.controls()
    controls = controls[controls["arm"] == ROUTER]
    about = {"router": request.router, "min_distance": min_distance, "kernel": STREAMED}
    about |= {"fresh": far_reading.fresh or len(words)}
    return FirstLook(
        sentences=_sentences(words, listed, controls, shares, min_distance),
        far_share=shares["far"],
        far_share_uniform=shares["far_uniform"],
        sink_share=shares["sink"],
        chance=1.0,
        min_distance=min_distance,
        router=router_facts(request.router, focus_router),
        notes=[*reading.notes, *router_notes(focus_router, request.text)],
        tokens=words,
        pairs=listed,
        distance=far_reading.reading.distances(),
        links=np.stack([far_reading.links.place.numpy(), far_reading.links.head.numpy()], -1),
        link_share=far_reading.links.share.numpy(),
        protocol=protocol("start", lm, request.text, len(words), **about),
    )


def far_from(reading: Reading, wanted: int) -> int:
    """Tokens back from which on a token is far: in a text shorter than `wanted`, at least its earlier half counts as
    far for the last tokens."""
    return max(1, min(wanted, (max(b - a for a, b in reading.tokens.spans) - 1) // 2))


def _sentences(words: pd.DataFrame, listed: pd.DataFrame, controls: pd.DataFrame, shares: dict, far: int) -> list[str]:
    sink = f"{shares['sink']:.0%}" if shares["sink"] >= 0.01 else "under 1%"
    sentences = [
        f"{shares['far']:.0%} of what the heads read lies {far:,} or more tokens back; reading every token alike would "
        f"put {shares['far_uniform']:.0%} there. The window's first token, where many heads leave attention that they "
        f"do not need, gets {sink}."
    ]
    # The content words that draw most far attention: mean over their tokens, at least two tokens, above chance.
    content = words[words["content"] & words["received"].notna()]
    drawing = content.groupby(content["word"].str.casefold()).agg(
        word=("word", "first"), mean=("received", "mean"), size=("received", "size")
    )
    drawing = drawing[(drawing["size"] >= OFTEN) & (drawing["mean"] > 1.0)]
    drawing = drawing.sort_values(["mean", "size"], ascending=False).head(TOP_WORDS)
    if len(drawing):
        listing = ", ".join(f"{row.word!r} ({row.mean:.1f} times chance)" for row in drawing.itertuples())
        sentences.append(f"The words most read from afar: {listing}.")
    else:
        sentences.append("No content word of this text is read from afar more than chance would have it.")
    if listed.empty:
        sentences.append(f"No two content words {far:,} or more tokens apart share a learned group here.")
    else:
        lift = controls["mass_share"].mean() / controls["pairs_share"].mean()
        best = listed.iloc[0]
        sentences.append(
            f"{controls['mass_share'].mean():.0%} of the far attention stays inside the learned groups, which hold "
            f"{controls['pairs_share'].mean():.0%} of the far pairs ({lift:.2f} times chance). In the strongest far "
            f"pair, {quoted(best['query'])} reads {quoted(best['key'])} {int(best['distance']):,} tokens "
            f"back{SAID[best['kind']]}."
        )
    return sentences
