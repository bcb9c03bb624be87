"""What every benchmark answers with, whatever it times."""

from ...answer import Answer, doc, record
from ...timing import Timing

ENDS = {"": "median", "_low": "low", "_high": "high"}


@record
class Benchmark(Answer):
    """Times on this machine."""

    rows: list[dict] = doc("what was timed, with its times in milliseconds")
    sentence: str = doc("the result in words")


def ends(name: str, ratio: Timing) -> dict[str, float]:
    """`name`, `name_low` and `name_high` of a ratio over the rounds."""
    return {f"{name}{end}": getattr(ratio, of) for end, of in ENDS.items()}
