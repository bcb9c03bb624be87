"""Which distances a head prefers before it has seen a text: its mean query on its mean key, turned apart."""

import numpy as np
import pandas as pd

from ...answer import Worded, doc, record
from ...commands.heads import HeadPreference
from ...routers.preferences import QueryStatistics, query_statistics
from ..context import Context, protocol, read
from ..text.states import check_head, states_of, window_of

# Distances that are drawn, closer together near the token.
POINTS = 160


@record
class PreferredDistances(Worded):
    """Which distances one head prefers by its mean query alone."""

    layer: int = doc("layer of the head")
    head: int = doc("the head in its layer")
    concentration: float = doc("R = |E q| / E|q|, 0 to 1: how nearly one way its queries point before their rotation")
    preference: pd.DataFrame = doc("distance in tokens, and the logit of the mean query on the mean key so far back")


def head_preference(request: HeadPreference, *, context: Context) -> PreferredDistances:
    """The logit that a head's mean query in window `part` of a text gives its mean key at every distance, and its
    concentration R, after TriAttention (arXiv 2604.04921): where R is near 1, the distance decides what the head reads.
    Errors: BadSetting, BadModel without rotary positions."""
    lm, layer, head = context.model(request.model), request.layer, request.head
    check_head(lm, layer, head)
    reading = read(context, lm, request.text, request.long_text)
    ids = window_of(reading, request.part)[1]
    belongs = lm.name, lm.revision, str(lm.device), request.text, request.part, request.long_text
    statistics: QueryStatistics = context.once("mean queries", belongs, lambda: query_statistics(lm, [ids]))
    place = lm.layer_numbers.index(layer)
    distances = np.unique(np.geomspace(1, lm.max_positions, POINTS).astype(int) - 1)
    logits = statistics.preference(place, head, distances) * states_of(context, lm, ids, layer)[layer].scaling
    concentration = float(statistics.concentration()[place, head])
    best = int(distances[logits.argmax()])
    where = "the token itself" if best == 0 else f"{best:,} token{'s' * (best != 1)} back"
    return PreferredDistances(
        layer=layer,
        head=head,
        concentration=concentration,
        preference=pd.DataFrame({"distance": distances, "logit": logits}),
        notes=reading.notes,
        sentence=f"By its mean query alone, head {layer}.{head} prefers {where}; its queries point one way by "
        f"{concentration:.0%}.",
        protocol=protocol(
            *("head-preference", lm, request.text, len(ids)), layer=layer, head=head, part=request.part, window=len(ids)
        ),
    )
