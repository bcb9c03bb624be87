"""What every head of the model reads in a text: exact statistics of dense attention, for a map of the heads."""

from typing import Any

import pandas as pd

from analysis.models import Model
from analysis.runs import Result
from analysis.statistics import CORE, MORE, HeadReading
from analysis.studies.context import Context, Reading, check_seed, protocol, read
from analysis.studies.text.text import token_table

KERNEL = "streamed statistics"
SINK = 0.5  # a head that leaves as much on the first token reads little else


def statistics(
    model: str = "demo",
    text: str = "",
    mass: float = 0.9,
    window: int = 128,
    without_first: bool = False,
    seed: int = 0,
    long_text: str = "windows",
    *,
    context: Context,
) -> Result:
    """Entropy, rank, sink, window and distance of every head's attention, exact means over all queries of a text.

    `mass` of the rank, `window` tokens of the window mass. `without_first` leaves each window's first token out of all
    but `first_token_mass` and renormalises. numbers: `rows` with the columns of `attention_statistics`, `sentence`,
    `induction_queries` (share of tokens that stood in their window before). tables: `heads` (`layer head`, the six,
    `previous_token` and `induction`: mass on the token before, and on what followed earlier copies of this token),
    `chance` (`layer` and the same for a head that reads all visible keys alike), `distance` (`layer head low high mass
    uniform`), `tokens`. Errors: BadSetting, TooLarge.
    """
    check_seed(seed)
    lm = context.model(model)
    reading = read(context, lm, text, long_text)
    found = read_heads(lm, reading, context, mass=mass, window=window, without_first=without_first)
    heads = found.table()
    before = found.counts[0, 0, CORE.index("entropy")]
    numbers = {
        "rows": heads[["layer", "head", *CORE]].to_dict("records"),
        "sentence": _sentence(heads, found.chance(), mass),
        "induction_queries": float(found.counts[0, 0, len(CORE) + MORE.index("induction")] / max(1, before)),
        "without_first": without_first,
        "notes": [*reading.notes, *sink_notes(without_first)],
        "protocol": protocol(
            "statistics", lm, text, len(reading.tokens), seed=seed, mass=mass, near=window, kernel=KERNEL,
            without_first=without_first,
        ),
    }  # fmt: skip
    tables = {"heads": heads, "chance": found.chance(), "distance": found.distances(), "tokens": token_table(reading)}
    return Result(numbers, tables)


def read_heads(lm: Model, reading: Reading, context: Context, **settings: Any) -> HeadReading:
    """All windows of a text, read one by one."""
    found = HeadReading(lm.num_layers, lm.num_heads, **settings)
    for index, ids in enumerate(reading.windows):
        context.progress(index / len(reading.windows), f"reading window {index + 1} of {len(reading.windows)}")
        found.read(lm, ids)
    return found


def sink_notes(without_first: bool) -> list[str]:
    """What is said of a number when the first token is left out."""
    if not without_first:
        return []
    return [
        "The first token of each window is left out, and what a head gives to the others is renormalised to 100 %; "
        "the first-token mass is what was left out."
    ]


def _sentence(heads: pd.DataFrame, chance: pd.DataFrame, mass: float) -> str:
    sinks = int((heads["first_token_mass"] > SINK).sum())
    sharp = heads.loc[heads["entropy"].idxmin()]
    ranks = heads["top_p_rank"]
    said = (
        f"{sinks} of {len(heads)} heads leave more than half of their attention on the first token; half of the heads "
        f"need {ranks.median():,.0f} keys or fewer for {mass:.0%} of it (reading all alike would need "
        f"{chance['top_p_rank'].mean():,.0f}); the sharpest is head {int(sharp['head'])} of layer "
        f"{int(sharp['layer'])}"
    )
    induction = heads.loc[heads["induction"].idxmax()] if heads["induction"].notna().any() else None
    if induction is None:
        return said + "."
    return said + (
        f", and head {int(induction['head'])} of layer {int(induction['layer'])} most reads what followed earlier "
        f"copies of a token ({induction['induction']:.0%} of its attention, chance {chance['induction'].mean():.0%})."
    )
