"""How long pages take to answer a moved slider, on the real app in Chromium; driven by a tool of the tests."""

from types import ModuleType

import pandas as pd

from analysis.corpus import sample_texts, text_hash
from analysis.errors import BadSetting
from analysis.places import CACHE, revision
from analysis.runs import Result
from analysis.studies.context import Context, made_on

TOOL = "tests.stress.sliders"


def bench_sliders(context: Context) -> Result:
    """Start the app on a fresh state, open the pages in headless Chromium, and move their sliders stop by stop: at
    stored stops, then the first slider of every method with live settings, over 1,024 tokens of the bundled story.

    numbers: `rows` (also a table): `page slider what median_ms worst_ms moves target_ms met refused`, milliseconds from
    the key to the first frame that shows the redrawn chart; `what`: `stored` or `new`; `refused`: why a slider could
    not be moved, which then has no numbers; `sentence`. Errors: BadSetting where the checkout's tests are missing,
    AnalysisError without Playwright or Chromium.
    """
    rows, machine = tool().timed(context.progress)
    about = {"verb": "bench", "what": "sliders", "model": "demo", "revision": revision("demo", CACHE)}
    about |= {"text": text_hash(sample_texts()["story"][1]), "seed": None, "kernel": None, **machine}
    numbers = {"rows": rows, "sentence": sentence(rows), "protocol": made_on(**about)}
    return Result(numbers, {"rows": pd.DataFrame(rows)})


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
    found = [row for row in rows if row["met"] is not None]
    said = f"{sum(row['met'] for row in found)} of {len(found)} within their target"
    for what, stops in (("stored", "stored stops"), ("new", "new values")):
        if mine := [row for row in found if row["what"] == what]:
            slowest = max(mine, key=lambda row: row["median_ms"])
            said += f"; the slowest of {stops} is {slowest['page']}, {slowest['slider']}, with "
            said += f"{slowest['median_ms']:,.0f} ms (target {slowest['target_ms']})"
    refused = len(rows) - len(found)
    return f"{said}{f'; {refused} could not be moved' if refused else ''}."
