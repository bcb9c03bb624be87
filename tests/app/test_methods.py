"""The quality tab with the methods as they describe themselves: every one is offered, and every control of it works."""

import pytest

from analysis.methods import describe
from tests.made import quality, results
from tests.made.quality import opened
from tests.made.results import STUDIES

METHODS = describe()
FREE = [
    name
    for name, about in METHODS.items()
    if name != "dense" and about["needs"] != "router" and about["saves"] == "reads"
]


@pytest.fixture(autouse=True)
def made(client, monkeypatch):
    """Hand-made answers for the real methods."""
    monkeypatch.setattr(results, "CONTEXT", 2048)
    monkeypatch.setattr(quality, "DESCRIBED", METHODS)
    monkeypatch.setitem(STUDIES, "evaluate", quality.evaluate)


@pytest.mark.parametrize("at", range(0, len(FREE), 6))
def test_every_method_has_a_card_with_its_controls(at):
    names = FREE[at : at + 6]
    app = opened(quality="~~".join(names))
    drawn = {one.key for kind in ("slider", "select_slider", "selectbox") for one in getattr(app, kind)}
    for name in names:
        for field in METHODS[name]["fields"]:
            assert field["price"] != "live" or f"quality.{name}.{field['name']}" in drawn, (name, field["name"])
    assert not app.error


def test_a_choice_of_a_method_is_asked_for():
    app = opened(quality="magicpig~variant-hub~~longformer~widths-growing~dilation-2")
    app.selectbox(key="quality.magicpig.variant").set_value("paper").run()
    app.slider(key="quality.longformer.dilation").set_value(3).run()
    assert not app.exception and not app.error
    said = app.session_state["quality"]
    assert "hub" not in said and "widths-growing" in said and "dilation-3" in said
