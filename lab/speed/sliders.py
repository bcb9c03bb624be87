"""How long do the pages take to answer a moved slider? Stored stops, then new values of every method, in Chromium."""

from analysis.errors import BadSetting
from analysis.models import Model
from analysis.studies.speed.bench_sliders import bench_sliders, sentence, tool
from analysis.studies.stored.panels import panel, presented, series
from analysis.studies.stored.runner import TIMES, Setting, Sizes, Study

WHATS = {"stored": "Stops that are stored", "new": "New values"}  # the word of a row -> the title of its chart
MACHINE = ("browser", "viewport", "cores", "processor", "load_average")


class Moved(Sizes):
    """What the study can be asked for."""

    def check(self, lm: Model) -> None:
        if self.model != "demo":
            raise BadSetting("The sliders are moved in an app of its own, on the bundled model: leave the model out.")
        tool()


def measure(run: Setting) -> dict:
    """`rows` as `bench_sliders` gives them. Errors: BadSetting, AnalysisError without Playwright or Chromium."""
    bench = bench_sliders(run.context).numbers
    protocol = bench["protocol"]
    about = {name: protocol[name] for name in MACHINE} | {"text": protocol["text"], "tokens": protocol["read"]}
    return {"rows": bench["rows"], "protocol": about | {"kernel": f"the app in {protocol['browser']}"}}


def shown(numbers: dict) -> dict:
    """How the times are told."""
    rows, about = numbers["rows"], numbers["protocol"]
    moved = [row for row in rows if row["met"] is not None]
    by_what = {title: [row for row in moved if row["what"] == what] for what, title in WHATS.items()}
    drawn = [_drawn(title, those) for title, those in by_what.items() if those]
    machine = f"{about['cores']} cores of {about['processor']}, with a load of {about['load_average']:.1f} at the end"
    return presented("sliders", sentence(rows), drawn, f"{about['browser']} on {machine}.")


def sample(run: Setting, numbers: dict) -> dict:
    """How many sliders of each kind the rows name that are there today, and the tokens that are read; no browser."""
    sliders, named = tool(), {row["slider"].partition(": ")[0] for row in numbers["rows"]}
    sliders_of = {"stored": sliders.stored(), "new": sliders.live()}
    found = {what: sum((one.label or one.name) in named for one in those) for what, those in sliders_of.items()}
    return {what: float(count) for what, count in found.items()} | {"tokens": float(sliders.READ)}


def _drawn(title: str, moved: list[dict]) -> dict:
    """A mark for each slider, beside its target; its bar reaches to the slowest move."""
    median, worst, target = ([row[f"{name}_ms"] for row in moved] for name in ("median", "worst", "target"))
    lines = [series("median", median, median, worst), series("target", target)]
    names = [row["slider"].partition(": ")[0] for row in moved]  # of a method its first slider, whose name the rows say
    return panel(title, "slider", "slider", names, "milliseconds", lines)


sliders = Study("sliders", __doc__, Moved, measure, shown, sample, whole=TIMES)
