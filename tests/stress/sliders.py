"""Sliders of the real app in Chromium: from the key to the first frame that shows the redrawn chart.

What `study sliders` times, and nothing of the app is faked: a page is opened, its slider is moved stop by stop.
"""

import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from analysis.corpus import sample_texts, text_hash
from analysis.methods import METHODS
from app.selection.menu import address
from tests.stress.chromium import launched
from tests.stress.server import served

MOVES = 9  # that are timed of each slider, fewer where so many new values are not left
SPAN = 5  # stored stops between which a slider goes to and fro
STORED, NEW = 300, 800  # milliseconds: targets
READ = 1024  # tokens that a method reads, or whose prompt it compresses
PATIENCE = 30_000  # milliseconds for one move
VIEW = {"width": 1400, "height": 1000}


@dataclass(frozen=True)
class Slider:
    """A control of a `page` and the chart that answers it.

    `link`: address of the page; `name`: of the slider; empty: the first slider inside `card`. `chart`: its key.
    `label`: the method that it belongs to. `new`: every stop is asked for the first time, else each was seen before.
    """

    page: str
    link: str
    name: str
    chart: str
    card: str = ""
    label: str = ""
    new: bool = False


def stored() -> list[Slider]:
    """The sliders whose stops are stored once each was looked at; those of *Decide* move in the browser alone."""
    opened = {"pairs_filters": "yes", "pairs_more": "yes"}
    return [
        Slider("Long-range pairs", address("links", opened), "Smallest distance, tokens", "pairs_scatter"),
        Slider("Train a router", address("training", {"evidence": "balance"}), "Sinkhorn iterations", "balance_curve"),
    ]


def live() -> list[Slider]:
    """The first slider of every method with a setting that is moved live, over `READ` tokens of the story."""
    sliders = []
    for name, method in METHODS.items():
        about = method.describe()
        if not any(field["price"] == "live" for field in about["fields"]):
            continue
        saves, link = about["saves"], {"text": text_hash(sample_texts()["story"][1])}
        if saves == "reads":
            link |= {"quality": name, "quality_read": READ}
        else:
            link |= {"quality_saves": saves, f"quality_{saves}": name, "quality_prefix": READ}
        card = f"quality_card_{name}" if saves == "reads" else f"quality_{saves}_card_{name}"
        place = address("methods", link)
        look = {"card": card, "label": about["title"], "new": True}
        sliders.append(Slider("Quality vs speed", place, "", f"quality_curves_{saves}", **look))
    return sliders


def timed(progress: Callable[[float, str], None], sliders: Sequence[Slider] | None = None) -> tuple[list[dict], dict]:
    """Time `sliders` (default: all) on a fresh state folder that is thrown away: a row each, and what they ran on.

    Rows: `page slider what median_ms worst_ms moves target_ms met refused`; `refused` says why a slider could not be
    moved, which then has no numbers. Errors: AnalysisError without a browser, or where the app does not start.
    """
    chosen, rows = [*stored(), *live()] if sliders is None else sliders, []
    with tempfile.TemporaryDirectory(prefix="focuscope-sliders-") as folder, launched() as browser:
        with served(Path(folder)) as server:
            for number, slider in enumerate(chosen):
                progress(number / len(chosen), " ".join(filter(None, (slider.page, slider.label or slider.name))))
                tab = browser.new_page(viewport=VIEW)
                tab.set_default_timeout(PATIENCE)
                try:
                    rows.append(_row(tab, f"http://{server.address}", slider))
                finally:
                    tab.close()
        about = {"browser": f"Chromium {browser.version}", "cores": os.cpu_count(), "viewport": VIEW}
    return rows, about | {"processor": platform.machine(), "load_average": os.getloadavg()[0], "read": READ}


def _row(tab, address: str, slider: Slider) -> dict:
    """Open the page of a slider and move it."""
    from playwright.sync_api import Error

    target = NEW if slider.new else STORED
    row = {"page": slider.page, "slider": slider.label or slider.name, "what": "new" if slider.new else "stored"}
    row |= {"median_ms": None, "worst_ms": None, "moves": 0, "target_ms": target, "met": None, "refused": ""}
    try:
        row["slider"] = _opened(tab, address, slider)
        took = _times(tab, slider)
    except Error as error:
        sentences = _refusal(tab).all_inner_texts() or str(error).splitlines()
        return row | {"refused": sentences[0].strip()}
    median, worst = (1000 * of(took) for of in (statistics.median, max))
    return row | {"median_ms": median, "worst_ms": worst, "moves": len(took), "met": median <= target}


def _opened(tab, server: str, slider: Slider) -> str:
    """Open the page, until its chart is drawn; returns what the slider is called."""
    # The first page of a server loads the model too.
    from tests.made.browsing import PATIENCE as LOADED, settle

    tab.goto(server + slider.link, timeout=LOADED)
    drawn = tab.locator(f".st-key-{slider.chart} :is(.main-svg, .curves svg)").first
    drawn.or_(_refusal(tab)).first.wait_for(timeout=LOADED)
    settle(tab)
    drawn.wait_for(timeout=1000)
    if slider.card:
        tab.get_by_role("button", name="Settings").click()
    name = _thumb(tab, slider).get_attribute("aria-label")
    return f"{slider.label}: {name}" if slider.label else name


def _refusal(tab):
    """Why there is no chart."""
    return tab.get_by_test_id("stAlert").or_(tab.locator(".fs-quiet", has_text="was never fitted to this model"))


def _thumb(tab, slider: Slider):
    around = tab.locator(f".st-key-{slider.card}") if slider.card else tab
    return around.get_by_role("slider", name=slider.name or None).first


def _times(tab, slider: Slider) -> list[float]:
    """Seconds of each timed move."""
    from tests.made.browsing import moved, redrawn

    def go(moves: Iterable[tuple]) -> list[float]:
        return [moved(tab, thumb, key, charts=[slider.chart], patience=PATIENCE) for thumb, key in moves]

    thumb = _thumb(tab, slider)
    left, right = _room(thumb)
    forth, back = ("ArrowRight", "ArrowLeft") if right >= left else ("ArrowLeft", "ArrowRight")
    room, behind = max(left, right), min(left, right)
    if not slider.new:
        span = min(room, SPAN)
        lap = [(thumb, forth)] * span + [(thumb, back)] * span
        # A stop that nobody has seen is computed, on a slow machine by its button, which is not what is timed.
        for _, key in lap:
            redrawn(tab, partial(thumb.press, key))
        return go((lap * MOVES)[:MOVES])
    took = _until_refused(go, thumb, forth, min(room, MOVES))
    if count := min(behind, MOVES - len(took)):
        # What it has seen.
        go([(thumb, back)] * (abs(_room(thumb)[0] - left)))
        took += _until_refused(go, thumb, back, count)
    return took


def _until_refused(go: Callable, thumb, key: str, count: int) -> list[float]:
    """Seconds of up to `count` moves one way, as far as the method takes what the slider offers."""
    from playwright.sync_api import Error

    took: list[float] = []
    for _ in range(count):
        try:
            took += go([(thumb, key)])
        except Error:
            if not took:
                raise
            break
    return took


def _room(thumb) -> tuple[int, int]:
    """Stops on the left and on the right of a slider."""
    low, high, step, now = thumb.evaluate("one => [one.min, one.max, one.step, one.value].map(Number)")
    return round((now - low) / (step or 1)), round((high - now) / (step or 1))
