"""Quality vs speed, the methods that save memory or the time of the prompt: what it asks for, draws and tells."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from app import cached
from tests.made import results
from tests.made.in_process import markup, opened as opened_page, part
from tests.made.quality import continuation
from tests.made.results import STUDIES


@pytest.fixture
def client(client, monkeypatch):
    monkeypatch.setattr(results, "CONTEXT", 2048)
    monkeypatch.setitem(STUDIES, "continuation", continuation)
    return client


def opened(**link: object) -> AppTest:
    return opened_page("views/quality_vs_speed.py", **link)


def wanted(name: str, text: str, **more: object) -> dict:
    args = {"model": "demo", "texts": [text], "methods": [{"name": name, "settings": {}}], "prefix": 1024}
    return args | {"continuation": 256, "cuts": 4, "share": None, "seed": 0} | more


def shown(app: AppTest) -> tuple[dict, dict]:
    columns = {column["label"]: column["shown"] for column in part(app, "table")["columns"]}
    return json.loads(app.get("plotly_chart")[0].proto.spec), columns


def test_memory_is_drawn_against_the_bytes_that_are_held(client):
    app = opened(quality_saves="memory")
    assert not app.error and client.store.find("continuation", wanted("snapkv", cached.samples()[0][0]))
    figure, columns = shown(app)
    assert [trace["x"] for trace in figure["data"]] == [[4.0], [2.0]] and figure["data"][1]["y"] == [0.02]
    assert figure["layout"]["xaxis"]["title"]["text"] == "KV cache held, MB (left is better)"
    assert columns["method"] == ["Dense", "SnapKV"] and columns["of dense"] == ["100.0%", "50.0%"]
    assert "SnapKV holds 50% of dense attention&#x27;s KV cache" in markup(app) and "from 16 stretches" in markup(app)
    assert app.slider(key="quality_memory.snapkv.ratio").value == 0.5
    app.slider(key="quality_memory.snapkv.ratio").set_value(0.9).run()
    assert app.query_params["quality_memory"] == "snapkv~ratio-0.9"
    spec = [{"name": "snapkv", "settings": {"ratio": 0.9}}]
    assert client.store.find("continuation", wanted("snapkv", cached.samples()[0][0], methods=spec))


def test_a_budget_is_one_for_all_and_blocks_are_a_bound_until_they_are_timed(client):
    app = opened(quality_saves="prefill", quality_equal=25)
    assert client.store.find("continuation", wanted("xattention", cached.samples()[0][0], share=0.25))
    figure, columns = shown(app)
    hollow = figure["data"][-1]
    assert hollow["x"] == [4.0] and hollow["marker"]["symbol"].endswith("-open")
    assert columns["blocks of the prompt read"] == ["–", "25.0%"] and columns["prompt, times dense"] == ["1.00", "–"]
    assert "no chosen method stays within 5%" in markup(app).lower()
    assert app.button(key="quality_launch_xattention").label == "Measure the speed of XAttention here"
    assert "methods xattention" in app.code[-1].value and "--share 0.25" in app.code[-1].value


def test_all_of_a_family_in_one_click(client):
    app = opened(quality_saves="memory", quality_memory="none")
    assert "Choose a method" in markup(app) and not app.get("plotly_chart")
    app.button(key="quality_memory_all").click().run()
    assert app.multiselect(key="quality_memory_pick").value == ["snapkv"] and app.get("plotly_chart")
    assert app.button(key="quality_memory_all").disabled
