"""A stored study as small as one can be: what a new one needs, and what the contract of all of them is tried on."""

from analysis.studies.stored.panels import column
from analysis.studies.stored.runner import Setting, Windows, option
from analysis.studies.text.held_out import ids_hash, sample_windows

PARTS = 3


class TinyMeans(Windows):
    """A new study is such a class: its options, what it measures, how that is shown, and what comes again."""

    file = "means-{length}"

    length: int = option(32, "tokens of a window of text", low=16)
    windows: int = option(4, "held-out windows of text", low=2, high=4096)
    times: float = option(2.0, "what token numbers are multiplied with")
    rows: list[int] | None = option(None, "only these windows")

    def mean(self, run: Setting, index: int) -> float:
        return self.times * float(run.windows[index].mean())

    def measure(self, run: Setting) -> dict:
        rows = []
        for index in self.rows or range(PARTS):
            run.context.progress(index / PARTS, f"window {index}")
            row = {"window": index, "mean": self.mean(run, index)}
            rows.append(run.part("mean", [index, row["mean"]], lambda row=row: row))
        return {"rows": rows, "protocol": run.about(run.windows, kernel="none")}

    def sample(self, run: Setting, numbers: dict) -> dict:
        return {"first": float(sample_windows(run.lm, self.length)[0].mean())}

    def part(self, run: Setting, numbers: dict) -> dict:
        return {"rows": [{"window": 0, "mean": self.mean(run, 0)}], "protocol": {"text": ids_hash(run.windows)}}

    @staticmethod
    def shown(numbers: dict) -> dict:
        sentence = f"The mean of {len(numbers['rows'])} windows was taken."
        return {"sentence": sentence, "columns": [column("mean", "mean")], "panels": [], "notes": []}
