"""A chart that has no line: plotly refuses it, the page says so instead."""

from streamlit.testing.v1 import AppTest

from tests.made.in_process import PATIENCE


def test_a_chart_without_a_line_says_so():
    def page():
        from app.ui import widgets

        empty = {"data": [], "layout": {}}
        assert widgets.chart(empty, {}, title="By distance", key="some", alt="Nothing", select="points") == []
        assert widgets.chart(empty, {}, title="By layer", key="other", alt="Nothing") is None

    app = AppTest.from_function(page, default_timeout=PATIENCE).run()
    assert not app.exception and len(app.caption) == 2
