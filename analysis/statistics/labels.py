"""One short name for what a head does, from its statistics and those of even reading."""

import pandas as pd

SINK = 0.5  # mass on the first token: little else is read
PREVIOUS = 0.3  # mass on the token right before
INDUCTION = 3.0  # times what even reading puts on the tokens that follow earlier copies
FAR = 0.05  # far peaks above even reading
LOCAL = 0.9  # mass less than the window back
DIFFUSE = 0.8  # of the entropy of even reading


def head_labels(heads: pd.DataFrame, chance: pd.DataFrame) -> list[str]:
    """A label for each row of `HeadReading.table`, held against `HeadReading.chance`.

    The first that fits: `sink` (at least half of its attention on the first token), `previous token` (30% or more on
    the token before), `induction` (3 times as much as even reading on what followed earlier copies of a token), `far`
    (`far_peaks` of 5% or more), `diffuse` (80% or more of the entropy of even reading), `local` (90% or more less
    than a window back), else `mixed`. The thresholds are this project's, and a label says less than the numbers.
    """
    even = heads[["layer"]].merge(chance, on="layer", how="left")
    fits = {
        "sink": heads["first_token_mass"] >= SINK,
        "previous token": heads["previous_token"] >= PREVIOUS,
        "induction": heads["induction"] >= INDUCTION * even["induction"].to_numpy(),
        "far": heads["far_peaks"] >= FAR,
        "diffuse": heads["entropy"] >= DIFFUSE * even["entropy"].to_numpy(),
        "local": heads["window_mass"] >= LOCAL,
    }
    return [next((name for name, fit in fits.items() if fit.iloc[row]), "mixed") for row in range(len(heads))]
