"""What every test of the app's pages checks: plotly knows each property of each figure that is drawn."""

import json
from collections.abc import Iterator

import plotly.graph_objects
import plotly.io
import pytest

from app.ui.figure import Figure

# Figures of this process that plotly took: pages draw the same one many times.
ACCEPTED: set[str] = set()


@pytest.fixture(autouse=True)
def checked(monkeypatch):
    """A figure that plotly refuses, or would send otherwise, fails the page that draws it."""
    plain = Figure.to_dict

    def to_dict(self) -> dict:
        sent = plain(self)
        text = _json(sent)
        if text not in ACCEPTED:
            read = plotly.graph_objects.Figure(**json.loads(text)).to_dict()
            assert dict(_leaves(json.loads(text))) == dict(_leaves(json.loads(_json(read))))
            ACCEPTED.add(text)
        return sent

    monkeypatch.setattr(Figure, "to_dict", to_dict)


def _json(figure: dict) -> str:
    return plotly.io.to_json(figure, validate=False)


def _leaves(value: object, *place: str) -> Iterator[tuple[tuple, object]]:
    inside = value.items() if isinstance(value, dict) else ()
    for name, part in inside:
        yield from _leaves(part, *place, name)
    if not inside and value != []:  # plotly leaves out a list of nothing
        yield place, value
