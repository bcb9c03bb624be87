"""docs/try.html and the report on a telephone, in the dark and by keys alone: in Chromium, and in Firefox where there
is one, which also gives Python's numbers."""

import io
import time

import numpy as np
import pytest
from PIL import Image
from scipy.special import entr

from analysis import load_model
from analysis.corpus import sample_texts
from analysis.pages.try_page import LENGTH
from tests.made import firefox
from tests.made.browsing import PATIENCE
from tests.pages.test_live_report import attention, parts
from tests.pages.test_try_page import PAGE, losses

pytestmark = pytest.mark.browser
DARK, LIGHT = (23, 22, 20), (255, 255, 255)  # --st-background-color
READABLE = 4.5  # WCAG's contrast of text
CONTROLS = "button, input, textarea, [tabindex]"
# Of a page: whether it is drawn, what of it is cut at the sides, and where the keys are.
DRAWN = "!document.getElementById('screen').hidden && document.querySelector('.card .measured') !== null"
CUT = f"""[...document.querySelectorAll('{CONTROLS}')].filter((one) => one.getClientRects().length
  && (one.getBoundingClientRect().right > innerWidth + 1 || one.getBoundingClientRect().left < -1)).length"""
REACHED = "document.activeElement.matches('{}')"
STATE = """({ kept: document.querySelector('.keep .share').textContent, wide: document.documentElement.scrollWidth,
  head: document.querySelector('.card .measured').dataset.head,
  chosen: document.querySelectorAll('.heads [role=gridcell][aria-selected=true]').length })"""


@pytest.fixture(scope="module", params=["try", "report"])
def path(request, reported):
    """The two pages."""
    return PAGE if request.param == "try" else reported


class Chromium:
    """A tab of Chromium as `firefox.Tab` is one."""

    def __init__(self, tab) -> None:
        self.tab, self.press = tab, tab.keyboard.press

    def __call__(self, words: str):
        return self.tab.evaluate(words)

    def until(self, words: str) -> None:
        # wait_for_function evaluates a string in the page, whose policy forbids that
        ends = time.monotonic() + PATIENCE / 1000
        while not self.tab.evaluate(words):
            assert time.monotonic() < ends, words
            self.tab.wait_for_timeout(50)

    def picture(self) -> bytes:
        return self.tab.screenshot()


def pixels(picture: bytes) -> np.ndarray:
    """[H, W, 3] of a PNG."""
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)


def luminance(colours: np.ndarray) -> np.ndarray:
    """WCAG's relative luminance of colours [..., 3]."""
    shares = colours / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def reach(tab, where: str) -> None:
    """Press Tab until the keys are at what a selector names."""
    for _ in range(40):
        tab.press("Tab")
        if tab(REACHED.format(where)):
            return
    raise AssertionError(f"no key reaches {where}")


def looks_and_keys(tab, width: int, background: tuple[int, int, int]) -> None:
    """What holds on either page in either browser."""
    tab.until(DRAWN)
    assert tab(STATE)["wide"] <= width and tab(CUT) == 0
    drawn = pixels(tab.picture())[:844, :width]
    colours, counts = np.unique(drawn.reshape(-1, 3), axis=0, return_counts=True)
    assert tuple(colours[counts.argmax()]) == background
    if background == DARK:
        assert (luminance(drawn) > 0.9).mean() < 0.001, "nothing is left in white"
    # The answer stands in the first fifth.
    words, around = luminance(drawn[: len(drawn) // 5]), luminance(np.array(background))
    pairs = ((words.max(), around), (around, words.min()))
    assert max((light + 0.05) / (dark + 0.05) for light, dark in pairs) >= READABLE

    reach(tab, ".keep input")
    before, share = tab.picture(), tab(STATE)["kept"]
    tab.press("ArrowRight")
    tab.until(f"document.querySelector('.keep .share').textContent !== '{share}'")
    reach(tab, ".heads [role=gridcell]")
    assert (pixels(tab.picture()) != pixels(before)).any(), "where the keys are is seen"
    head = tab(STATE)["head"]
    tab.press("ArrowRight")
    tab.press("ArrowRight")
    tab.press("Enter")
    tab.until(f"document.querySelector('.card .measured').dataset.head !== '{head}'")
    assert tab(STATE)["chosen"] == 1
    tab.press("Tab")
    assert not tab(REACHED.format(".heads [role=gridcell]")), "the map is one stop of the keys"


@pytest.mark.parametrize("width, scheme", [(390, "dark"), (1440, "light")])
def test_a_page_fits_is_readable_and_answers_keys_in_chromium(alone, path, width, scheme):
    page = alone(path)
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    looks_and_keys(Chromium(page), width, DARK if scheme == "dark" else LIGHT)


@pytest.fixture(scope="module")
def fox(tmp_path_factory):
    """A tab of Firefox; what compares with it is skipped where none is installed."""
    if firefox.installed() is None:
        pytest.skip("no Firefox is installed: apt-get install firefox-esr")
    with firefox.launched(tmp_path_factory.mktemp("firefox")) as tab:
        yield tab


@pytest.mark.parametrize("width, scheme", [(390, "dark"), (1440, "light")])
def test_a_page_fits_is_readable_and_answers_keys_in_firefox(fox, path, width, scheme):
    fox.open(path, width, 844, dark=scheme == "dark")
    looks_and_keys(fox, width, DARK if scheme == "dark" else LIGHT)


def test_firefox_gives_python_s_numbers(fox, path):
    fox.open(path, 1440, 844)
    fox.until(DRAWN)
    if path == PAGE:
        ids = load_model().tokenizer(sample_texts()["story"][1][:LENGTH]).input_ids
        fox.until("document.body.dataset.measured === '1'")
        assert float(fox("document.body.dataset.loss")) == pytest.approx(losses(ids, 1.0)[0], abs=1e-3)
        return
    read, arrays = parts(path.read_text(encoding="utf-8"))
    places = np.arange(read["length"])
    far = (places[:, None] - places >= read["distance"]) & (places > 0)
    weights = [attention(read, arrays, head, 1.0) for head in read["heads"]]
    entropy = [entr(p).sum(-1).mean() for p in weights]
    numbers = fox("({ ...document.body.dataset })")
    assert float(numbers["entropy"]) == pytest.approx(np.mean(entropy), abs=1e-3)
    assert float(numbers["far"]) == pytest.approx(np.mean([(p * far).sum(-1).mean() for p in weights]), abs=1e-3)
