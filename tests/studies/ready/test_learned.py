"""Temperatures that are trained for a model that exists: stored, found by every verb, and told when they saw ahead."""

import json

import pytest

from analysis.__main__ import main
from analysis.commands.quality import FOCAL_AS_PRINTED, FitMethod
from analysis.errors import BadSetting, NotFitted
from analysis.methods.focal import DENSE, FocalWeights
from analysis.studies import STUDIES
from analysis.studies.ready.calibration import fit_method
from tests.made.evaluating import TEXT


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
