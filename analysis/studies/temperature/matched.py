"""At which size, or after how many tokens, a model with a temperature is as good as one without."""

import math
from collections.abc import Sequence

from analysis.studies.temperature.rows import Pooled, sure

NO_GAIN = "no gain seen"
OUTSIDE = "outside what was measured"
GAIN = "gain"


def reached(x: Sequence[float], losses: Sequence[float], loss: float) -> float | None:
    """The `x` (rising: parameters or tokens) at which a curve of losses comes to `loss`, between two measured points
    where it falls, interpolated over log x; None where no falling stretch holds it."""
    for (a, high), (b, low) in zip(zip(x, losses, strict=True), list(zip(x, losses, strict=True))[1:], strict=False):
        if low <= loss <= high and low < high:
            share = (high - loss) / (high - low)
            return math.exp(math.log(a) + share * (math.log(b) - math.log(a)))
    return None


def parameters(rows: list[dict], dense: list[dict]) -> list[dict]:
    """For each row (a model with a temperature, with `against_dense`): how many parameters dense training needs to come
    as low, by the dense rows of all sizes. `arm width parameters matched saved verdict`; `saved` as a share."""
    ladder = sorted(dense, key=lambda row: row["parameters"])
    sizes, losses = ([row[name] for row in ladder] for name in ("parameters", "loss"))
    return [_matched(row, "parameters", row["parameters"], reached(sizes, losses, row["loss"])) for row in rows]


def tokens(row: dict, trained: Pooled, dense: Pooled) -> dict:
    """After how many tokens a model with a temperature is where dense training ends. `arm width tokens matched saved
    verdict`."""
    places = range(len(trained.parts[0]["checkpoints"]))
    seen = [trained.tokens(at) for at in places]
    losses = [float(trained.means(at).mean()) for at in places]
    return _matched(row, "tokens", row["tokens"], reached(seen, losses, float(dense.means().mean())))


def _matched(row: dict, what: str, own: int, found: float | None) -> dict:
    """What is saved: of parameters the match is dense training's, which needs more; of tokens it is the row's own,
    which needs fewer."""
    ratio = None if found is None else own / found if what == "parameters" else found / own
    verdict = NO_GAIN if sure(row) >= 0 else OUTSIDE if ratio is None or ratio > 1 else GAIN
    known = verdict == GAIN
    about = {"arm": row["arm"], "width": row["width"], what: own, "verdict": verdict}
    return about | {"matched": found if known else None, "saved": 1 - ratio if known else None}


def in_words(listed: list[dict]) -> str:
    """Matched parameters or tokens of several models in one clause."""
    gains = [row for row in listed if row["verdict"] == GAIN]
    outside = [row for row in listed if row["verdict"] == OUTSIDE]
    if not gains and not outside:
        return NO_GAIN
    said = [f"{row['saved']:.0%} fewer ({row['arm']}, width {row['width']})" for row in gains]
    said += [f"a gain {OUTSIDE} ({row['arm']}, width {row['width']})" for row in outside]
    rest = len(listed) - len(said)
    return ", ".join(said) + (f"; {NO_GAIN} in {rest} of {len(listed)}" if rest else "")
