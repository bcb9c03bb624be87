"""How long do the pages take to answer a moved slider? Stored stops, then new values of every method, in Chromium."""

from types import ModuleType

from analysis.corpus import sample_texts, text_hash
from analysis.errors import BadSetting
from analysis.models import Model
from analysis.studies.stored.panels import Row, panel, presented, series
from analysis.studies.stored.runner import TIMES, Setting, Study

TOOL = "tests.stress.sliders"
# The word of a row -> the title of its chart.
WHATS = {"stored": "Stops that are stored", "new": "New values"}
MACHINE = ("browser", "viewport", "cores", "processor", "load_average")


class Sliders(Study):
    """Starts the app on a fresh state, opens the pages in headless Chromium, and moves their sliders stop by stop: at
    stored stops, then the first slider of every method with live settings, over 1,024 tokens of the bundled story.

    `rows`: milliseconds from the key that moves a slider to the first frame that shows the redrawn chart; one that
    could not be moved says why in `refused` and has no numbers. Errors: BadSetting where the checkout's tests are
    missing, AnalysisError without Playwright or Chromium.
    """

    whole = TIMES

    def check(self, lm: Model) -> None:
        if self.model != "demo":
            raise BadSetting("The sliders are moved in an app of its own, on the bundled model: leave the model out.")
        tool()

    def measure(self, run: Setting) -> dict:
        rows, machine = tool().timed(run.context.progress)
        about = {name: machine[name] for name in MACHINE} | {"kernel": f"the app in {machine['browser']}"}
        about |= {"text": text_hash(sample_texts()["story"][1]), "tokens": machine["read"]}
        return {"rows": rows, "protocol": about}

    def sample(self, run: Setting, numbers: dict) -> dict:
        sliders, named = tool(), {row["slider"].partition(": ")[0] for row in numbers["rows"]}
        sample = {}
        for what, moved in {"stored": sliders.stored(), "new": sliders.live()}.items():
            sample[what] = float(sum((slider.label or slider.name) in named for slider in moved))
        return sample | {"tokens": float(sliders.READ)}

    @staticmethod
    def shown(numbers: dict) -> dict:
        about = numbers["protocol"]
        moved = [row for row in numbers["rows"] if row["met"] is not None]
        charts = []
        for what, title in WHATS.items():
            if rows := [row for row in moved if row["what"] == what]:
                # A mark for each slider, beside its target; its bar reaches to the slowest move.
                median, worst, target = ([row[f"{key}_ms"] for row in rows] for key in ("median", "worst", "target"))
                lines = [series("median", median, median, worst), series("target", target)]
                # Of a method, its first slider: the rows say its whole name.
                names = [row["slider"].partition(": ")[0] for row in rows]
                charts.append(panel(title, "slider", "slider", names, "milliseconds", lines))
        machine = f"{about['cores']} cores of {about['processor']}"
        note = f"{about['browser']} on {machine}, with a load of {about['load_average']:.1f} at the end."
        return presented("sliders", sentence(numbers["rows"]), charts, note)


def tool() -> ModuleType:
    """The tool of the tests, which opens no browser before something is timed. Errors: BadSetting without it."""
    try:
        import tests.stress.sliders as sliders
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("tests"):
            raise BadSetting(f"{error.name} is not installed: pip install -r requirements-dev.txt.") from None
        raise BadSetting(f"{TOOL} is not installed: run it in a checkout of Focuscope's repository.") from None
    return sliders


def sentence(rows: list[Row]) -> str:
    """How many sliders keep their target, and the slowest stored one and new one."""
    moved = [row for row in rows if row["met"] is not None]
    text = f"{sum(row['met'] for row in moved)} of {len(moved)} within their target"
    for kind, stops in (("stored", "stored stops"), ("new", "new values")):
        if of_kind := [row for row in moved if row["what"] == kind]:
            slowest = max(of_kind, key=lambda row: row["median_ms"])
            text += f"; the slowest of {stops} is {slowest['page']}, {slowest['slider']}, with "
            text += f"{slowest['median_ms']:,.0f} ms (target {slowest['target_ms']})"
    if len(moved) < len(rows):
        text += f"; {len(rows) - len(moved)} could not be moved"
    return f"{text}."
