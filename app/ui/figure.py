"""A figure that Streamlit sends as it is. The tests check each property of every figure; a reader's page need not."""

from functools import cache

import plotly.io
import streamlit.elements.plotly_chart  # noqa: F401  it registers the template
from plotly.basedatatypes import BaseFigure
from plotly.colors import get_colorscale
from plotly.validator_cache import ValidatorCache


class Figure(BaseFigure):
    """`figure` (a dict with data and layout) with Streamlit's template, neither copied nor checked.

    plotly's own Figure copies every number twice, and its list of every property that there is takes 8 MB for as long
    as the app runs: Streamlit's template needs it once, after that it is let go.
    """

    def __init__(self, figure: dict):
        self._plain = {"data": figure["data"], "layout": {"template": _template(), **figure["layout"]}}

    def to_dict(self) -> dict:
        """What is sent; not to be changed."""
        return self._plain


def colours(name: str) -> list:
    """The [place, colour] pairs of one of plotly's scales: by name alone the browser may take other ones."""
    return get_colorscale(name)


@cache
def _template() -> dict:
    template = plotly.io.templates["streamlit"].to_plotly_json()
    ValidatorCache._json_cache = None
    return template
