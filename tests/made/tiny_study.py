"""A stored study as small as one can be: what a new one needs, and what the contract of all of them is tried on."""

from dataclasses import dataclass

from analysis.studies.stored.panels import column
from analysis.studies.stored.runner import Setting, Study, Windows, option
from analysis.studies.text.held_out import ids_hash, sample_windows

PARTS = 3


@dataclass(frozen=True)
class Sizes(Windows):
    """A new study is these three functions and their sizes."""

    length: int = option(32, "tokens of a window of text")
    windows: int = option(4, "held-out windows of text")
    times: float = option(2.0, "what token numbers are multiplied with")
    rows: list[int] | None = option(None, "only these windows")


def measure(at: Setting) -> dict:
    rows = []
    for index in at.sizes.rows or range(PARTS):
        at.context.progress(index / PARTS, f"window {index}")
        mean = at.sizes.times * float(at.windows[index].mean())
        rows.append(
            at.context.part(at.work, "mean", [index, mean], lambda _, i=index, m=mean: {"window": i, "mean": m})
        )
    return {"rows": rows, "protocol": at.about(at.windows, kernel="none")}


def shown(numbers: dict) -> dict:
    said = f"The mean of {len(numbers['rows'])} windows was taken."
    return {"sentence": said, "columns": [column("mean", "mean")], "panels": [], "notes": []}


def sample(at: Setting, numbers: dict) -> dict:
    return {"first": float(sample_windows(at.lm, at.sizes.length)[0].mean())}


def part(at: Setting, numbers: dict) -> dict:
    """The first window."""
    mean = at.sizes.times * float(at.windows[0].mean())
    return {"rows": [{"window": 0, "mean": mean}], "protocol": {"text": ids_hash(at.windows)}}


tiny_means = Study(
    "tiny-means", "Do means come again?", Sizes, measure, shown, sample, file="means-{length}", part=part
)
