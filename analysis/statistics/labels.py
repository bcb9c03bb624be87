"""One short name for what a head does, from its statistics and those of even reading."""

import pandas as pd

# Mass on the first token: little else is read.
SINK = 0.5
# Mass on the token right before.
PREVIOUS = 0.3
# Times what even reading puts on the tokens that follow earlier copies.
INDUCTION = 3.0
# Far peaks above even reading.
FAR = 0.05
# Mass less than the window back.
LOCAL = 0.9
# Of the entropy of even reading.
DIFFUSE = 0.8


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
