"""Softmax temperature in-process with hand-made results: the slider, one query, perplexity, layers, the paper."""

import html
import json

import pytest

from analysis.errors import BadSetting
from analysis.runs import Result
from app.heads import live
from app.selection.sparsify import FOCAL_STUDIES, SOFTMAX
from app.temperature import temperature_charts
from tests.conftest import ROOT
from tests.made.in_process import captions, columns, figures, markup, opened, part
from tests.made.results import CONTEXT, LAYERS, STUDIES, protocol
from tests.made.training import put_bundled

BUNDLED = ROOT / "models_cache" / "demo" / "studies"


def page(**link: object):
    return opened("temperature", **link)


def test_the_page_opens_with_the_live_picture_of_a_head_and_nothing_slow(client):
    app = page()
    assert (
        app.title[0].value == "At the paper's temperature of 0.4 heads read 7 tokens instead of 20." and not app.error
    )
    assert client.asked == ["inspect", "model", "queries-keys", "head"] and not figures(app)
    sent = part(app, "sharpen")
    assert (sent["layer"], sent["head"], sent["t"], sent["query"]) == (LAYERS // 2, 0, 0.4, CONTEXT - 1)
    app.selectbox(key="layer_pick").set_value(2).run()
    assert app.query_params["layer"] == "2" and part(app, "sharpen")["layer"] == 2
    assert part(page(softmax=0.85, head="1.1"), "sharpen")["t"] == 0.85, "any value of the slider stands in a link"
    page(query=CONTEXT + 3)
    assert [run.request.get("part", 0) for run in client.store.list("queries-keys", 5)] == [1, 0]


def test_of_a_large_model_the_layer_in_use_is_sent_alone(client, monkeypatch):
    monkeypatch.setattr(live, "MOST", 1)
    app = page(head="2.1")
    assert part(app, "sharpen")["layers"] == [2] and "Layer 2 alone: the model is large." in markup(app)


def test_every_head_is_measured_exactly_in_the_study(client):
    app = page(layer=1, head=1, sharpness="max_prob")
    (request,) = [run.request for run in client.store.list("temperature")]
    assert (request["t"], request["layer"], request["head"]) == (list(SOFTMAX), 1, 1)
    layers, heads = figures(app)[:2]
    assert [trace["name"] for trace in layers["data"]] == [f"layer {layer}" for layer in range(LAYERS)]
    widths = [[trace["line"]["width"] for trace in figure["data"]] for figure in (layers, heads)]
    assert widths == [[1.5, 4, 1.5], [1.5, 4]]


def test_temperatures_are_trained_with_every_setting(client, monkeypatch):
    def fitted(args, text):
        numbers = {"held_out": [3.25, 3.125], "temperature": [0.5, 0.75], "notes": []}
        return Result(numbers | {"protocol": protocol("fit-method", args, 64)})

    monkeypatch.setitem(STUDIES, "fit-method", fitted)
    app = page(temperature_evidence="yes")
    app.button(key="learned_run").click().run()
    assert client.job.args == {"model": "demo", "method": "focal_learned"}
    client.done("fit-method", client.job.args)
    client.states.clear()
    page_text = markup(page(temperature_evidence="yes"))
    assert "changes by −0.1250 nats per token" in page_text and "(1 is dense attention): 0.50, 0.75." in page_text
    client.states.clear()
    app = page(temperature_evidence="yes", learned_steps=20, learned_rate=0.01)
    app.button(key="learned_preset_0").click().run()
    app.button(key="learned_run").click().run()
    printed = {"mean": "literal", "tau_max": 10.0, "offset": 0.0}
    assert client.job.args == {"model": "demo", "method": "focal_learned", "steps": 20, "rate": 0.01} | printed


def test_without_a_study_the_command_stands_there_and_with_one_its_panels(client):
    assert not page().info, "the drawer is closed"
    app = page(temperature_evidence="yes")
    assert app.code[0].value == "python -m analysis study temperature --model demo"
    rows = columns(app)
    assert rows["setting"] == ["Baseline", "Focal Attn (Constant)", "Focal Attn (Learned)"]
    assert rows["Average, %"] == ["55.83", "58.02", "56.71"] and "duplicated" in markup(app), "the paper's"
    app.button(key="small_temperature").click().run()
    assert client.job.verb == "study" and client.job.args["corpus"].count("+") == 2
    client.states.clear()
    before = len(figures(page(temperature_evidence="yes")))
    (study,) = put_bundled(client.store, "temperature")
    app = page(temperature_evidence="yes")
    assert html.escape(study["sentence"]) in markup(app) and len(figures(app)) == before + len(study["panels"])


def test_studies_of_training_are_shown_one_at_a_time_or_their_command_is(client):
    (study,) = put_bundled(client.store, "focal-temperatures")
    app = page(temperature_evidence="yes")
    drawn = len(figures(app))
    assert html.escape(study["sentence"]) in markup(app)
    for name in ("scaling", "tasks"):
        app.segmented_control(key="trained_with").set_value(name).run()
        assert any(f"study focal-{name} --corpus DIR" in code.value for code in app.code)
    assert app.query_params["trained_with"] == "tasks" and len(figures(app)) == drawn - len(study["panels"])


@pytest.mark.parametrize(
    "choice", [name for name, (study, *_) in FOCAL_STUDIES.items() if (BUNDLED / f"{study}.json").is_file()]
)
def test_bundled_studies_of_training_are_drawn_with_their_rows(client, choice):
    (numbers,) = put_bundled(client.store, FOCAL_STUDIES[choice][0])
    app = page(trained_with=choice)
    assert not app.error and len(figures(app)) == 2 + len(numbers["panels"])
    assert {len(cells) for cells in columns(app).values()} == {len(numbers["rows"])}


def test_perplexity_on_this_text_is_a_job_with_its_price_and_is_shown_when_done(client):
    app = page()
    assert any("First time on this machine" in (button.help or "") for button in app.button)
    app.button(key="temperature_run").click().run()
    args = client.job.args
    assert client.job.verb == "temperature-curve" and args["t"] == list(SOFTMAX) and args["layers"] == [0.6]
    client.done("temperature-curve", args)
    app.run()
    assert "No temperature beats dense." in markup(app) and len(figures(app)) == 1
    assert len(figures(page(temperature_tab="text"))) == 5, "by position and layer in the study"
    assert "Bars: 95% interval over 4 blocks of 64 tokens in this text" in captions(app)


def test_a_temperature_for_every_layer_is_measured_and_stands_in_the_url(client):
    app = page(by_layer="1~0.8~1")
    assert app.number_input(key="by_layer_1").value == 0.8
    assert "Perplexity 10.50 against 10.00 dense on this text: +5.0%" in markup(app)
    assert client.store.list("temperature-curve", 1)[0].request["by_layer"] == [1.0, 0.8, 1.0]
    app.number_input(key="by_layer_0").set_value(0.6).run()
    assert app.query_params["by_layer"] == "0.6~0.8~1"
    app.button(key="by_layer_none").click().run()
    assert "by_layer" not in app.query_params and "All are 1, which is dense attention" in markup(app)
    by_layer = app.button(key="by_layer_all")
    assert by_layer.label == "All layers at t = 0.4", "the number, not the name of a slider that stands elsewhere"
    by_layer.click().run()
    assert app.query_params["by_layer"] == "0.4~0.4~0.4"


@pytest.mark.parametrize("wrong", ["1~1", "0~1~1", "1~1~9", "1~1~1..2"])
def test_temperatures_that_do_not_fit_the_model_are_dropped(client, wrong):
    app = page(by_layer=wrong)
    assert "temperatures of the layers" in captions(app) and "All are 1" in markup(app) and not app.error


def test_a_refusal_is_one_sentence_and_the_rest_stays(client):
    client.refusals["temperature-curve"] = BadSetting("Layers of this model have no softmax: choose another model.")
    app = page(by_layer="1~0.8~1")
    assert len(app.error) == 1 and "no softmax" in app.error[0].value and app.button(key="temperature_run")


def test_intervals_are_drawn_only_where_they_are_known():
    table = {"t": [0.5, 1.0], "difference": [0.2, 0.0], "low": [0.1, 0.0], "high": [0.4, 0.0]}
    (line,) = temperature_charts.change({"a": table}, "t", "t")["data"]
    assert line["error_y"]["array"] == [pytest.approx(0.2), 0]
    assert line["error_y"]["arrayminus"][0] == pytest.approx(0.1)
    (unknown,) = temperature_charts.change({"a": table | {"low": [None, None]}}, "t", "t")["data"]
    assert unknown["error_y"]["visible"] is False and json.dumps(unknown)
