"""How long pages take to answer a moved slider, on the real app in Chromium; driven by a tool of the tests."""

from types import ModuleType

import pandas as pd

from ...answer import doc, record
from ...corpus import sample_texts, text_hash
from ...errors import BadSetting
from ...places import CACHE, revision
from ..context import Context, made_on
from .benched import Benchmark

TOOL = "tests.stress.sliders"


@record
class SliderTimes(Benchmark):
    """Milliseconds from the key that moves a slider to the first frame that shows the redrawn chart."""

    table: pd.DataFrame = doc("the rows", name="rows")


def bench_sliders(context: Context) -> SliderTimes:
    """Start the app on a fresh state, open the pages in headless Chromium, and move their sliders stop by stop: at
    stored stops, then the first slider of every method with live settings, over 1,024 tokens of the bundled story. A
    row whose slider could not be moved says why in `refused` and has no numbers. Errors: BadSetting where the
    checkout's tests are missing, AnalysisError without Playwright or Chromium.
    """
    rows, machine = tool().timed(context.progress)
    about = {"verb": "bench", "what": "sliders", "model": "demo", "revision": revision("demo", CACHE)}
    about |= {"text": text_hash(sample_texts()["story"][1]), "seed": None, "kernel": None, **machine}
    return SliderTimes(rows=rows, sentence=sentence(rows), table=pd.DataFrame(rows), protocol=made_on(**about))


def tool() -> ModuleType:
    """The tool of the tests, which opens no browser before something is timed. Errors: BadSetting without it."""
    try:
        import tests.stress.sliders as found
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("tests"):
            raise BadSetting(f"{error.name} is not installed: pip install -r requirements-dev.txt.") from None
        raise BadSetting(f"{TOOL} is not installed: run it in a checkout of Focuscope's repository.") from None
    return found


def sentence(rows: list[dict]) -> str:
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
