"""The quality tab with the methods as they describe themselves: every one is offered, and every control of it works."""

from dataclasses import dataclass

import pytest
import torch

from analysis.declaration import field as declared
from analysis.methods import METHODS as ALL_METHODS, describe
from analysis.methods.base import Method
from analysis.models import load_model
from analysis.seam.attention import apply
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


@dataclass
class EveryOther(Method):
    """Reads every other token, counted back from the query.

    Source: CONTRIBUTING.md, "Add a method".
    """

    step: int = declared(2, "how far apart the tokens are that are read", low=1, high=64)

    def mask(self, block):
        return (block.distances() % self.step == 0)[None, None]


def test_a_method_added_as_the_readme_says_runs_and_gets_its_controls(monkeypatch):
    monkeypatch.setitem(ALL_METHODS, "every_other", EveryOther)
    about = describe()["every_other"]
    assert about["fields"][0]["name"] == "step" and "every other token" in str(about)
    model, ids = load_model(), torch.arange(40)[None] + 5
    with torch.no_grad():
        dense = model.lm(ids).logits
        with apply(model, EveryOther(step=1)):
            torch.testing.assert_close(model.lm(ids).logits, dense, rtol=1e-4, atol=1e-4)
        with apply(model, EveryOther(step=2)):
            sparse = model.lm(ids).logits
            changed = ids.clone()
            changed[0, 38] = 7  # token 39 reads odd tokens alone, in every layer
            torch.testing.assert_close(model.lm(changed).logits[0, 39], sparse[0, 39])
        assert not torch.allclose(sparse, dense) and torch.equal(model.lm(ids).logits, dense)
