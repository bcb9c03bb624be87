"""The panel of a study: what stands on its x axis, which marks are joined, what is dashed."""

import pytest
from streamlit.testing.v1 import AppTest

from analysis.runs.stored import Panel
from analysis.studies.stored.panels import panel, series
from app.ui import studied
from tests.made.in_process import PATIENCE


def drawn(x: list, **options) -> dict:
    lines = [series("ours", [float(place) for place in range(len(x))], **options)]
    return studied.panel_figure(Panel.of(panel("Loss", "x", "by", x, "nats", lines)), ["ours"])


@pytest.mark.parametrize(
    ("x", "mode", "kind"),
    [
        (["novels", "python"], "markers", "category"),
        (["full", 128, 32], "lines+markers", "category"),
        ([0.3, 0.4, 1.0], "lines+markers", None),
        ([16, 128, 1024], "lines+markers", "log"),
        ([16, 128], "lines+markers", None),
        ([1, 512, 1023, 1534, 2045], "lines+markers", None),
        (list(range(20, 520, 20)), "lines", None),
    ],
)
def test_words_are_not_joined_and_a_long_curve_has_no_marks(x, mode, kind):
    figure = drawn(x)
    assert figure["data"][0]["mode"] == mode and figure["layout"]["xaxis"].get("type") == kind


@pytest.mark.parametrize(
    ("x", "named"),
    [
        ([0.3, 0.6, 1.0, 0.62], ["0.3", "0.6", "1"]),
        ([1024, 64, 4096], ["64", "1,024", "4,096"]),
        ([1000, 1, 1.05], ["1", "1,000"]),
        ([7], ["7"]),
    ],
)
def test_names_on_the_axis_have_room(x, named):
    figure = drawn(x)
    assert figure["layout"]["xaxis"]["ticktext"] == named
    assert figure["data"][0]["x"] == x, "every value is drawn, named or not"


def test_printed_numbers_are_dashed_and_intervals_drawn():
    ours = drawn([1, 2], low=[-0.5, 0.5], high=[0.5, 1.5])["data"][0]
    assert ours["line"]["dash"] == "solid" and ours["error_y"]["array"] == [0.5, 0.5]
    paper = drawn([1, 2], paper=True)["data"][0]
    assert paper["name"] == "ours, paper" and paper["line"]["dash"] == "dash"
    assert paper["marker"]["symbol"].endswith("-open")


@pytest.mark.parametrize(
    ("numbers", "digits"),
    [([1e-05, 0.001, None], 6), ([125.4, 0.0], 3), ([0.0002, -0.03], 5), ([1e-9], 6), (["a"], 3), ([7], 3), ([], 3)],
)
def test_a_small_number_keeps_two_digits(numbers, digits):
    assert studied.digits(numbers) == digits


def test_a_chart_without_a_line_says_so():
    def page():
        from app.ui import widgets

        empty = {"data": [], "layout": {}}
        assert widgets.chart(empty, {}, title="By distance", key="some", alt="Nothing", select="points") == []
        assert widgets.chart(empty, {}, title="By layer", key="other", alt="Nothing") is None

    app = AppTest.from_function(page, default_timeout=PATIENCE).run()
    assert not app.exception and len(app.caption) == 2


def test_a_long_sentence_folds_and_an_answer_does_not():
    def page():
        from app.ui import widgets

        widgets.prose(["a < b " * 100 + "end", "short"], "more")
        widgets.prose("an answer " * 100)

    long, answer = (element.value for element in AppTest.from_function(page, default_timeout=PATIENCE).run().html)
    assert long.startswith('<details class="fs-more"><summary><span>a &lt; b') and "b end</span>" in long
    assert long.endswith('</details><p class="fs-more">short</p>') and answer.startswith('<p class="fs-lead">')
