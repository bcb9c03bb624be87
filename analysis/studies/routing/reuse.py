"""Do layers read the same keys? The overlap of their best keys on a text, and which of them could choose for others."""

import numpy as np
import pandas as pd

from ...answer import Worded, doc, record
from ...commands.routing import Reuse
from ...errors import BadSetting
from ...metrics.anchors import place_anchors, served, spelled, spread
from ...statistics.best_keys import overlaps, rows_of, whole_layers
from ..context import Context, protocol, read
from ..text.states import scope, windows_of


@record
class ReusedKeys(Worded):
    """How far layers choose the same keys."""

    overlap: pd.DataFrame = doc("layer other shared: the share of a layer's best keys that are another's too")
    chance: float = doc("the same of keys drawn at random")
    pattern: str = doc("F a layer that chooses, S one that reads what the last F chose, by the overlaps")
    mean: float = doc("overlap of each layer with the one that chooses for it, mean over layers that do not choose")
    even: float = doc("the same with as many layers that choose at even distances")
    queries: int = doc("queries that were compared")
    scope: str = doc("what of the text was read, in words")


def reuse(request: Reuse, *, context: Context) -> ReusedKeys:
    """The overlap of the layers' `k` best keys on a text, in one pass, and the best places of `anchors` layers that
    choose keys for those below. Errors: BadSetting for a text too short."""
    lm = context.model(request.model)
    reading = read(context, lm, request.text, request.long_text)
    windows = [ids for _, ids in windows_of(reading, request.part, 4 * request.k)]
    if not windows:
        few = f"For {request.k:,} keys a text of {4 * request.k:,} tokens is needed"
        raise BadSetting(f"{few}: give a longer text, or fewer keys.")
    whole, shares = whole_layers(lm), overlaps(lm, windows, request.k)
    count, numbers = min(request.anchors, len(whole)), [lm.layer_numbers[layer] for layer in whole]
    anchors = place_anchors(shares, count)
    mean, even = served(shares, anchors), served(shares, spread(len(whole), count))
    seen = np.concatenate([rows_of(len(ids)) + 1 for ids in windows])
    chance, size = float((request.k / seen).mean()), sum(map(len, windows))
    cells = [(numbers[row], numbers[column], share) for (row, column), share in np.ndenumerate(shares)]
    return ReusedKeys(
        overlap=pd.DataFrame(cells, columns=["layer", "other", "shared"]),
        chance=chance,
        pattern=spelled([whole[anchor] for anchor in anchors], lm.num_layers),
        mean=mean,
        even=even,
        queries=len(seen),
        scope=scope(reading, request.part),
        sentence=f"By overlap, layers {', '.join(str(numbers[layer]) for layer in anchors)} choose best for the rest: "
        f"{mean:.0%} of their {request.k} best keys are shared, {even:.0%} at even distances, {chance:.0%} by chance.",
        notes=[*reading.notes, "More overlap need not mean less loss, which export-eviction measures."],
        protocol=protocol("reuse", lm, request.text, size, part=request.part, window=size, kernel="masked blocks"),
    )
