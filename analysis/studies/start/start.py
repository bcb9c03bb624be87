"""The first look: what does the model read in this text, and which far-apart tokens belong together?"""

import pandas as pd
import torch

from analysis.errors import BadSetting
from analysis.runs import Result
from analysis.studies.context import STREAMED, Context, protocol, read
from analysis.studies.groups.contents import router_notes
from analysis.studies.groups.far import ROUTER, far
from analysis.studies.groups.pairs import SAID, described
from analysis.studies.groups.routers import router_facts, router_for
from analysis.studies.text.text import quoted, token_table

TOP_PAIRS, TOP_WORDS = 20, 4
OFTEN = 2  # a word must be read from afar by at least this many tokens' worth of chance to be named


def start(
    model: str = "demo",
    text: str = "",
    router: str = "k8-top1",
    min_distance: int = 128,
    long_text: str = "windows",
    *,
    context: Context,
) -> Result:
    """What dense attention reads in a text from afar, and its strongest far pairs inside a learned group.

    tables: `tokens` with `received` (far attention drawn, in multiples of chance: the same far attention spread evenly
    over the far tokens), `pairs`, `distance`. numbers: three computed `sentences`, `far_share`, `far_share_uniform`.
    """
    if min_distance < 1:
        raise BadSetting(f"The smallest distance is {min_distance} tokens and must be 1 or more.")
    lm = context.model(model)
    reading = read(context, lm, text, long_text)
    min_distance = max(1, min(min_distance, (max(b - a for a, b in reading.tokens.spans) - 1) // 2))
    made, control = router_for(context, lm, router)
    words = token_table(reading)
    content = torch.tensor(words["content"].to_numpy())
    found = far(context, lm, reading, content, made, control, min_distance)
    words["received"] = found.reading.tokens()
    listed = described(found.listed.head(TOP_PAIRS), words, reading.tokens.ids)
    shares, controls = found.reading.shares(), found.shares.controls()
    controls = controls[controls["arm"] == ROUTER]
    numbers = {
        "sentences": _sentences(words, listed, controls, shares, min_distance),
        "far_share": shares["far"],
        "far_share_uniform": shares["far_uniform"],
        "sink_share": shares["sink"],
        "chance": 1.0,
        "min_distance": min_distance,
        "router": router_facts(router, made),
        "notes": [*reading.notes, *router_notes(made, text)],
        "protocol": protocol("start", lm, text, len(words), router=router, min_distance=min_distance, kernel=STREAMED),
    }
    return Result(numbers, {"tokens": words, "pairs": listed, "distance": found.reading.distances()})


def _sentences(words: pd.DataFrame, listed: pd.DataFrame, controls: pd.DataFrame, shares: dict, far: int) -> list[str]:
    sink = f"{shares['sink']:.0%}" if shares["sink"] >= 0.01 else "under 1%"
    said = [
        f"{shares['far']:.0%} of what the heads read lies {far:,} or more tokens back; reading every token alike would "
        f"put {shares['far_uniform']:.0%} there. The window's first token, where many heads leave attention that they "
        f"do not need, gets {sink}."
    ]
    named = _drawing_words(words)
    if named:
        listing = ", ".join(f"{word!r} ({times:.1f} times chance)" for word, times in named)
        said.append(f"The words most read from afar: {listing}.")
    else:
        said.append("No content word of this text is read from afar more than chance would have it.")
    if listed.empty:
        said.append(f"No two content words {far:,} or more tokens apart share a learned group here.")
    else:
        lift = controls["mass_share"].mean() / controls["pairs_share"].mean()
        best = listed.iloc[0]
        said.append(
            f"{controls['mass_share'].mean():.0%} of the far attention stays inside the learned groups, which hold "
            f"{controls['pairs_share'].mean():.0%} of the far pairs ({lift:.2f} times chance). In the strongest far "
            f"pair, {quoted(best['query_named'])} reads {quoted(best['key_named'])} {int(best['distance']):,} tokens "
            f"back{SAID[best['kind']]}."
        )
    return said


def _drawing_words(words: pd.DataFrame) -> list[tuple[str, float]]:
    """The content words that draw most far attention: mean over their tokens, at least two tokens, above chance."""
    seen = words[words["content"] & words["received"].notna()]
    means = seen.groupby(seen["word"].str.casefold()).agg(
        word=("word", "first"), mean=("received", "mean"), size=("received", "size")
    )
    means = means[(means["size"] >= OFTEN) & (means["mean"] > 1.0)]
    best = means.sort_values(["mean", "size"], ascending=False).head(TOP_WORDS)
    return list(zip(best["word"], best["mean"], strict=True))
