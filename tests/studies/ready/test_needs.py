"""A method says what it needs, and that is all: a new one with fitted state is one class and one line in METHODS."""

import json
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from analysis.__main__ import main
from analysis.declaration import field
from analysis.errors import BadModel, NotFitted
from analysis.fitted import Fitted
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.studies import STUDIES
from analysis.studies.ready.candidates import CHOSEN, FIND, candidates
from tests.made.evaluating import TEXT


@dataclass
class Thinned(Method):
    """Reads the window, and of each layer every so manieth token before, as calibrated."""

    title: ClassVar[str] = "Thinned"
    needs: ClassVar[str] = "calibration"

    fitted: Fitted | None = None
    window: int = field(4, "tokens that are always read", low=1, high=64)
    clusters: int = 2

    @classmethod
    def build(cls, fitted=None, **settings):
        return cls(fitted=fitted, **settings)

    def fit(self, model, windows):
        self.fitted = Fitted("thinned", {"step": torch.full((model.num_layers,), float(self.clusters))})
        return self

    def check(self, lm):
        if self.fitted is None:
            raise NotFitted("Nothing was calibrated.")

    def mask(self, block):
        distance = block.distances()
        return (distance < self.window) | (distance % int(self.fitted["step"][block.layer]) == 0)


class Unable(Method):
    """Runs on no model."""

    title: ClassVar[str] = "Unable"

    def check(self, lm):
        raise BadModel("This model cannot run it: choose another one.")


@pytest.fixture
def one_line(monkeypatch):
    """What adding a method is."""
    monkeypatch.setitem(METHODS, "thinned", Thinned)


def test_every_need_has_a_function_and_every_function_is_needed():
    assert {method.needs for method in METHODS.values()} == set(FIND)
    assert set(CHOSEN) < set(FIND)


def test_a_new_method_with_fitted_state_is_calibrated_stored_and_evaluated(one_line, home, context, capsys):
    model = context.model(str(home / "tiny"))
    ask = {"model": str(home / "tiny"), "text": context.add_text("a text", TEXT), "window": 24, "context": context}
    methods = [{"name": "dense"}, {"name": "thinned"}, {"name": "thinned", "settings": {"window": 9}}]
    dense, narrow, wide = STUDIES["evaluate"](**ask, methods=methods).numbers["rows"]
    assert dense["reads_causal"] == 1 and 0.5 < narrow["reads_causal"] < wide["reads_causal"] < 1
    assert (narrow["title"], wide["label"]) == ("Thinned", "Thinned, window 9") and narrow["settings"] == {"window": 4}
    place = context.state_dirs(model)[0] / "methods" / "thinned.safetensors"
    assert Fitted.load(place)["step"].tolist() == [2.0] * model.num_layers, "fitted on the samples, and stored"
    (home / "words.txt").write_text(TEXT)
    words = ["fit-method", "thinned", str(home / "words.txt"), "--clusters", "3", "--model", str(home / "tiny")]
    assert main([*words, "--state", str(place.parents[1]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["tensors"] == {"step": [model.num_layers]}
    again = STUDIES["evaluate"](**ask, methods=[{"name": "thinned"}]).numbers
    assert again["rows"][0]["reads_causal"] < narrow["reads_causal"], "the new numbers are read"
    assert "Thinned was calibrated on this text, which flatters it." in again["notes"]


def test_what_a_model_cannot_run_is_left_out_when_all_are_asked_for(monkeypatch, home, context):
    few = {name: METHODS[name] for name in ("dense", "focal_learned")} | {"unable": Unable}
    monkeypatch.setattr("analysis.studies.ready.candidates.METHODS", few)
    model = context.model(str(home / "tiny"))
    assert [candidate.name for candidate in candidates(context, model, None)] == ["dense"]
    with pytest.raises(BadModel, match="cannot run it"):
        candidates(context, model, [{"name": "unable"}])
