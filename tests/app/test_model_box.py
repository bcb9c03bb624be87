"""The model's chip: what is here and whether it fits, precision and device, and what the Hub says of another one."""

import pytest

from analysis import available
from analysis.available import OnHand, OnTheHub
from analysis.errors import BadModel
from app import model_box
from tests.made.in_process import in_chip, markup, opened
from tests.made.results import status

GB = 10**9
HERE = [
    OnHand("owner/tiny", "llama", 40_000_000, 2048, 80_000_000),
    OnHand("owner/middle", "qwen2", 3 * GB, 32768, 6 * GB),
    OnHand("owner/large", "qwen2", 7 * GB, None, 14 * GB),
    OnHand("owner/huge", "llama", 70 * GB, 131072, 140 * GB),
]


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr(available, "on_hand", lambda: HERE)
    monkeypatch.setattr(available, "devices", lambda: ["auto", "cpu", "cuda:0", "spread"])
    monkeypatch.setattr(model_box, "free_memory", lambda: 10 * GB)


def test_models_on_the_disk_are_listed_with_whether_they_fit(client):
    assert in_chip(opened(), "model").options == [
        "demo",
        "owner/tiny · fits · llama, 40 M parameters, reads 2,048 tokens",
        "owner/middle · fits in bfloat16 · qwen2, 3 B parameters, reads 32,768 tokens",
        "owner/large · needs 8-bit · qwen2, 7 B parameters",
        "owner/huge · too large for this machine · llama, 70 B parameters, reads 131,072 tokens",
    ]


def test_precision_and_device_are_chosen_and_stand_in_the_address(client):
    app = opened(model="owner/tiny")
    app.selectbox(key="Precision_0").set_value("bfloat16").run()
    app.selectbox(key="Device_0").set_value("cuda:0").run()
    assert "model" in app.query_params and app.query_params["model"] == "owner/tiny", "nothing is loaded yet"
    app.button(key="load_held").click().run()
    assert app.query_params["model"] == "owner/tiny@bfloat16@cuda:0" and not app.error
    assert [box.value for box in app.selectbox if box.label in ("Precision", "Device")] == ["bfloat16", "cuda:0"]
    assert in_chip(app, "model").value == "owner/tiny"
    assert model_box.called("owner/tiny@bfloat16@cuda:0") == "owner/tiny, bfloat16, cuda:0"


def test_the_hub_is_asked_before_anything_is_downloaded(client, monkeypatch):
    on_hub = OnTheHub("owner/new", 3 * GB, 6 * GB, "apache-2.0", True)
    monkeypatch.setattr(available, "on_the_hub", lambda name: on_hub)
    app = opened()
    app.text_input(key="model_name").set_value("owner/new").run()
    assert (
        "owner/new: 3 B parameters, 6.0 GB to download, licence apache-2.0, gated: accept its licence on its page and "
        "set HF_TOKEN first, fits in bfloat16." in markup(app)
    )
    button = app.button(key="fetch_model")
    assert button.label == "Download it, ~10 min" and "perhaps 10 min" in button.help, (
        "ten megabytes a second, until one was downloaded here"
    )
    button.click().run()
    (job,) = client.states.values()
    assert (job.verb, job.args) == ("fetch", {"model": "owner/new"}) and app.query_params["job"] == job.id
    client.states[job.id] = status("done", verb="fetch", args={"model": "owner/tiny"}, fraction=1.0)
    app.run()
    app.button(key="job_use").click().run()
    assert app.query_params["model"] == "owner/tiny" and not app.error


def test_a_hub_that_cannot_be_reached_is_said_and_the_model_in_use_stays(client, monkeypatch):
    def silent(name):
        raise BadModel(f"{name} is not on this machine and the Hugging Face Hub cannot be reached: check it.")

    monkeypatch.setattr(available, "on_the_hub", silent)
    app = opened()
    app.text_input(key="model_name").set_value("owner/new").run()
    assert "the Hugging Face Hub cannot be reached" in markup(app) and app.session_state["model"] == "demo"
    assert not [button for button in app.button if button.key in ("fetch_model", "load_model")]


def test_a_shared_demo_chooses_no_precision(client, monkeypatch):
    monkeypatch.setenv("FOCUSCOPE_DEMO", "1")
    assert not [box for box in opened().selectbox if box.label == "Precision"]
