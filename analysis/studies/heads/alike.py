"""Which heads read like one head: all others by how alike their attention is, at queries spread over a window."""

import numpy as np
import pandas as pd
import torch

from analysis.errors import BadSetting
from analysis.metrics.intervals import BLOCKS, interval
from analysis.runs import Result
from analysis.statistics.alike import likeness
from analysis.statistics.states import States
from analysis.studies.context import Context, protocol, read
from analysis.studies.heads.head import sink_notes
from analysis.studies.text.states import check_head, scope, states_of, windows_of

TOP = 10  # heads that are listed
PLACES, NEAR = 16, 8  # stretches of the window, and neighbouring queries of each


def alike(
    model: str = "demo",
    text: str = "",
    layer: int = 0,
    head: int = 0,
    top: int = TOP,
    without_first: bool = False,
    part: int | None = 0,
    long_text: str = "windows",
    *,
    context: Context,
) -> Result:
    """The `top` heads whose attention is most like that of one head, in window `part` of a text or in all (null).

    Likeness: `statistics.alike.likeness`, mean over up to 16 stretches of 8 neighbouring queries spread over a window;
    the interval is over the stretches. `without_first` leaves the window's first token out and renormalises. tables:
    `heads` (`layer head likeness low high`), the most alike first. numbers: `even` (likeness to a head that reads all
    visible keys alike), `median` (of all other heads), `queries`, `scope` in words, `sentence`, `notes`. Errors:
    BadSetting.
    """
    lm = context.model(model)
    check_head(lm, layer, head)
    if not 1 <= top <= 1000:
        raise BadSetting(f"Up to 1,000 heads are listed: {top:,} were asked for.")
    reading = read(context, lm, text, long_text)
    first = 1 + without_first  # the first token sees nothing but itself, which tells no head from another
    windows = windows_of(reading, part, first + 1)
    if not windows:
        raise BadSetting("A text of one or two tokens tells no head from another: give a longer one.")
    values: dict[tuple[int, int], list[float]] = {}
    evens, queries = [], 0
    for at, (_, ids) in enumerate(windows):
        starts = spread(first, len(ids))
        scores = _scores(states_of(context, lm, ids, layer)[layer], head, starts, without_first)
        own = [one.softmax(-1) for one in scores]
        for place in range(lm.num_layers):
            context.progress((at + place / lm.num_layers) / len(windows), f"layer {place}")
            states = states_of(context, lm, ids, place)[place]
            for other in range(lm.num_heads):
                if (place, other) != (layer, head):
                    found = _alike(own, _scores(states, other, starts, without_first))
                    values[place, other] = values.get((place, other), []) + found
        hidden = [one == float("-inf") for one in scores]
        evens += _alike(own, [torch.zeros(one.shape).masked_fill(one, float("-inf")) for one in hidden])
        queries += sum(map(len, own))
    rows = [(*cell, *_mean(found)) for cell, found in values.items()]
    table, even = pd.DataFrame(rows, columns=["layer", "head", "likeness", "low", "high"]), float(np.mean(evens))
    found = table.sort_values("likeness", ascending=False, kind="stable").head(top).reset_index(drop=True)
    count = sum(len(ids) for _, ids in windows)
    about = {"layer": layer, "head": head, "part": part, "window": count, "without_first": without_first}
    numbers = {
        **{"even": even, "median": float(table["likeness"].median()), "queries": queries},
        **{"scope": scope(reading, part), "sentence": _sentence(found, even, layer, head)},
        "notes": [*reading.notes, *sink_notes(without_first)],
        "protocol": protocol("alike", lm, text, count, kernel="scores from kept queries and keys", **about),
    }
    return Result(numbers, {"heads": found})


def spread(first: int, length: int) -> list[tuple[int, int]]:
    """(first query, past the last) of up to PLACES stretches of NEAR queries in first..length, apart where they fit."""
    near = min(NEAR, length - first)
    places = max(1, min(PLACES, (length - first) // near))
    return [(int(start), int(start) + near) for start in np.linspace(first, length - near, places)]


@torch.no_grad()
def _scores(states: States, head: int, starts: list[tuple[int, int]], without_first: bool) -> list[torch.Tensor]:
    """The scores of a head, [queries, keys] of every stretch, -inf where a key is not read."""
    found = [states.scores(head, *stretch).cpu() for stretch in starts]
    for scores in found if without_first else []:
        scores[:, 0] = float("-inf")
    return found


def _alike(own: list[torch.Tensor], scores: list[torch.Tensor]) -> list[float]:
    """The likeness of attention to what other scores give, of each stretch."""
    return [float(likeness(one, other.softmax(-1)).mean()) for one, other in zip(own, scores, strict=True)]


def _mean(values: list[float]) -> tuple[float, float | None, float | None]:
    """(mean, low, high) over the stretches."""
    found = interval(values, fewest=BLOCKS)
    return float(np.mean(values)), found.low, found.high


def _sentence(table: pd.DataFrame, even: float, layer: int, head: int) -> str:
    if table.empty:
        return "The model has no other head."
    best = table.iloc[0]
    return (
        f"Head {int(best['head'])} of layer {int(best['layer'])} reads most like head {head} of layer {layer}: "
        f"likeness {best['likeness']:.0%}, and {even:.0%} for a head that reads all tokens alike."
    )
