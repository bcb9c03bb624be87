"""The quality tab with the methods as they describe themselves: every one is offered, and every control of it works."""

import pytest

from analysis.methods import describe
from tests.made import quality, results
from tests.made.quality import opened

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


def front(app, name: str) -> None:
    """Bring a method to the front, whose card is drawn."""
    app.query_params["quality_paint"] = name
    app.run()


@pytest.mark.parametrize("start", range(0, len(FREE), 6))
def test_every_method_has_a_card_with_its_controls(start):
    names = FREE[start : start + 6]
    app = opened(quality="~~".join(names))
    for name in names:
        front(app, name)
        drawn = {widget.key for kind in ("slider", "select_slider", "selectbox") for widget in getattr(app, kind)}
        for field in METHODS[name]["fields"]:
            assert field["price"] != "live" or f"quality.{name}.{field['name']}" in drawn, (name, field["name"])
        assert not app.error and not app.exception, name


def test_a_choice_of_a_method_is_asked_for():
    app = opened(quality="magicpig~variant-hub~~longformer~widths-growing~dilation-2")
    front(app, "magicpig")
    app.selectbox(key="quality.magicpig.variant").set_value("paper").run()
    front(app, "longformer")
    app.slider(key="quality.longformer.dilation").set_value(3).run()
    assert not app.exception and not app.error
    word = app.session_state["quality"]
    assert "hub" not in word and "widths-growing" in word and "dilation-3" in word
