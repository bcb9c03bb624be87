"""A method says what it needs, and that is all: a new one with fitted state is one class and one line in METHODS.
Temperatures that are trained for a model that exists are stored, found by every verb, and told when they saw ahead."""

import json
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from analysis.__main__ import main
from analysis.commands.quality import FOCAL_AS_PRINTED, FitMethod
from analysis.declaration import field
from analysis.errors import BadModel, BadSetting, NotFitted
from analysis.fitted import Fitted
from analysis.methods import METHODS, describe
from analysis.methods.base import Method
from analysis.methods.focal import DENSE, FocalWeights
from analysis.seam.attention import apply
from analysis.studies import STUDIES
from analysis.studies.ready.calibration import fit_method
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


def test_every_need_has_a_function_and_what_a_model_cannot_run_is_left_out(monkeypatch, home, context):
    assert {method.needs for method in METHODS.values()} == set(FIND)
    assert set(CHOSEN) < set(FIND)
    few = {name: METHODS[name] for name in ("dense", "focal_learned")} | {"unable": Unable}
    monkeypatch.setattr("analysis.studies.ready.candidates.METHODS", few)
    model = context.model(str(home / "tiny"))
    assert [candidate.name for candidate in candidates(context, model, None)] == ["dense"]
    with pytest.raises(BadModel, match="cannot run it"):
        candidates(context, model, [{"name": "unable"}])


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


def test_a_new_method_reads_what_its_mask_says_and_leaves_the_model_as_it_was(one_line, home, context):
    about = describe()["thinned"]
    assert about["fields"][0]["name"] == "window" and "Reads the window" in about["doc"]
    model, ids = context.model(str(home / "tiny")), torch.arange(40)[None] + 5
    every_other = Fitted("thinned", {"step": torch.full((model.num_layers,), 2.0)})
    with torch.no_grad():
        dense = model.lm(ids).logits
        with apply(model, Thinned(every_other, window=64)):
            torch.testing.assert_close(model.lm(ids).logits, dense, rtol=1e-4, atol=1e-4)
        with apply(model, Thinned(every_other, window=1)):
            sparse = model.lm(ids).logits
            changed = ids.clone()
            changed[0, 38] = 7  # token 39 reads odd tokens alone, in every layer
            torch.testing.assert_close(model.lm(changed).logits[0, 39], sparse[0, 39])
        assert not torch.allclose(sparse, dense) and torch.equal(model.lm(ids).logits, dense)


def literal(**settings) -> list[dict]:
    return [{"name": "focal_learned", "settings": {"mean": "literal", **settings}}]


@pytest.mark.slow
def test_what_is_trained_is_stored_and_read_by_the_next_evaluation(home, context, capsys):
    text, model = home / "words.txt", str(home / "tiny")
    text.write_text(TEXT)
    ask = {"model": model, "text": context.add_text("a text", TEXT), "window": 24, "context": context}
    with pytest.raises(NotFitted, match="train some with `fit-method focal_learned`"):
        STUDIES["evaluate"](**ask, methods=[{"name": "focal_learned"}])
    place = ["--model", model, "--state", str(context.state_dirs(context.model(model))[0])]
    assert main(["fit-method", "focal_learned", str(text), "--steps", "3", *place, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    before, after = printed["held_out"]
    assert before > 0 and after > 0 and len(printed["temperature"]) == printed["tensors"]["w"][0]
    assert printed["protocol"]["steps"] == 3 and printed["path"].endswith(FocalWeights.place)
    weights = FocalWeights.load(printed["path"])
    assert weights.about["revision"] == context.model(model).revision and weights.w.abs().max() > 0
    plain, ahead = (
        STUDIES["evaluate"](**ask, methods=methods).numbers
        for methods in ([{"name": "focal_learned"}], literal(tau_min=0.5))
    )
    assert plain["rows"][0]["reads_causal"] == 1 and not any("saw the future" in note for note in plain["notes"])
    assert "Learned Focal Attention was calibrated on this text, which flatters it." in plain["notes"]
    (note,) = [note for note in ahead["notes"] if "saw the future" in note]
    assert "Learned Focal Attention, mean literal" in note
    with pytest.raises(BadSetting, match="mean literal lets later tokens decide over earlier ones"):
        STUDIES["probe"](
            model=model, text=ask["text"], probes=["uuid_needle"], lengths=[60], methods=literal(), context=context
        )


@pytest.mark.slow
def test_limits_offset_mean_and_rate_are_those_that_were_asked_for(home, context):
    """Without an offset temperatures begin at the lower limit: 5 of 11.31. One that is given is where they begin, kept
    below the upper limit."""
    key, model = context.add_text("a text", TEXT), str(home / "tiny")
    request_fields = {"method": "focal_learned", "model": model, "texts": [key], "steps": 1, "rate": 0.0}

    def temperatures(**settings):
        return fit_method(FitMethod(**request_fields, **settings), context=context).temperature

    assert temperatures(offset=8.0) == pytest.approx([8 / DENSE] * 3)
    assert temperatures(tau_max=7.0) == pytest.approx([7 / DENSE] * 3)
    trained = fit_method(FitMethod(**request_fields, **FOCAL_AS_PRINTED), context=context)
    weights = FocalWeights.load(trained.path)
    assert trained.temperature == pytest.approx([5 / DENSE] * 3)
    assert (weights.offset, weights.about["mean"], weights.about["tau_max"]) == (0.0, "literal", 10.0)
    with pytest.raises(BadSetting, match="lies above tau_max"):
        temperatures(tau_min=9.0, tau_max=8.0)


def test_too_little_text_is_one_sentence(home, context):
    few = context.add_text("few", "the cat sat")
    with pytest.raises(BadSetting, match="give more text"):
        fit_method(FitMethod(method="focal_learned", model=str(home / "tiny"), texts=[few]), context=context)
