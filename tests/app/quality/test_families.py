"""Quality vs speed, the methods that save memory or the time of the prompt: what it asks for, draws and tells."""

import json

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from analysis.runs import Result
from app import cached
from app.quality import search
from tests.made import results
from tests.made.in_process import markup, opened as opened_page, part, put, redrawn
from tests.made.quality import DESCRIBED, continuation, evaluate, field, method
from tests.made.results import STUDIES

PROTOCOL = {"protocol": {"verb": "head-split", "model": "demo", "tokens": 64}}


@pytest.fixture
def client(client, monkeypatch):
    monkeypatch.setattr(results, "CONTEXT", 2048)
    monkeypatch.setitem(STUDIES, "continuation", continuation)
    monkeypatch.setitem(STUDIES, "evaluate", evaluate)
    return client


def opened(**link: object) -> AppTest:
    return opened_page("views/quality_vs_speed.py", **{"text": cached.sample("story")} | link)


def wanted(name: str, text: str, **more: object) -> dict:
    args = {"model": "demo", "texts": [text], "methods": [{"name": name, "settings": {}}], "prefix": 256}
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
    assert columns["at most, reading the prompt"] == ["4 MB", "3 MB"]
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


def test_a_search_is_a_job_and_its_winner_is_told_with_its_verdict(client):
    text = cached.samples()[0][0]
    app = opened(quality_saves="memory", quality_lose=2, quality_prefix=128)
    app.button(key="quality_search").click().run()
    job = client.states["0123456789ab"]
    methods = [{"name": "snapkv", "settings": {}}]
    wanted = {"model": "demo", "texts": [text], "saves": "memory", "prefix": 128, "methods": methods, "lose": 0.02}
    wanted |= {"continuation": 128, "cuts": 32, "seed": 0}
    assert (job.verb, job.args) == ("search", wanted)
    rows = [
        {"label": f"<b>{at}</b>", "budget": at / 4, "difference": 3 - at, "stretches": 2 * at, "left": at > 2}
        for at in (1, 2, 3)
    ]
    numbers = {"rows": rows, "frontier": [row["label"] for row in rows], "lose": 0.02, "sentence": "<b>3</b> holds."}
    numbers |= {"protocol": {"verb": "search", "model": "demo", "tokens": 100}}
    client.store.put("search", wanted, Result(numbers), numbers["protocol"], 60.0)
    app = opened(quality_saves="memory", quality_lose=2, quality_prefix=128)
    assert "&lt;b&gt;3&lt;/b&gt; holds." in markup(app) and not app.error
    early, late, front = json.loads(app.get("plotly_chart")[1].proto.spec)["data"]
    assert (early["x"], early["y"]) == ([0.25, 0.5], [1.0, 1.0]) and late["x"] == [0.75] and len(front["x"]) == 3


def test_a_job_that_a_part_of_the_page_submits_stands_on_top_at_once(client):
    app = opened(quality_saves="memory", quality_prefix=128)
    assert not app.get("progress")
    app.button(key="quality_search").click()
    redrawn(app, "quality_search")
    assert app.get("progress") and app.button(key="job_cancel") and app.query_params["job"]


def test_a_search_over_methods_that_read_less_leaves_out_those_that_look_at_every_key(client):
    text = put(client, "a text of some length " * 400)
    app = opened(text=text, quality="streaming_llm~n_sink-2~~oracle_topk")
    app.button(key="quality_search").click().run()
    job = client.states["0123456789ab"]
    asked = [{"name": "streaming_llm", "settings": {"n_sink": 2}}]
    assert (job.verb, job.args["saves"], job.args["methods"]) == ("search", "reads", asked) and not app.error
    assert "quality_search" not in [one.key for one in opened(text=text, quality="oracle_topk").button]


def test_a_prompt_is_as_long_as_a_text_has_eight_times():
    assert [search.fitting(1024, tokens) for tokens in (10, 2245, 9216, 99_999)] == [64, 128, 1024, 1024]


@pytest.mark.parametrize("prefix, window, there", [(512, 64, True), (256, 64, False), (256, 32, True)])
def test_a_search_uses_the_prompt_that_the_page_shows_if_it_has_eight_windows(
    client, monkeypatch, prefix, window, there
):
    ratio, last = field("ratio", 0.5, low=0.0, high=0.99), field("window", window, low=1, high=1024)
    monkeypatch.setitem(DESCRIBED, "snapkv", method("SnapKV", ratio, last, saves="memory"))
    text = put(client, "a text of some length " * 600)
    app = opened(text=text, quality_saves="memory", quality_memory="snapkv", quality_prefix=prefix)
    assert ("quality_search" in [one.key for one in app.button]) == there and not app.error
    if there:
        app.button(key="quality_search").click().run()
        assert client.states["0123456789ab"].args["prefix"] == prefix


def test_a_text_too_short_for_a_search_says_how_long_it_has_to_be(client):
    app = opened(quality_saves="prefill")
    assert "A search needs 4 stretches of 640 tokens and this text has" in markup(app) and not app.error
    assert "quality_search" not in [one.key for one in app.button]


def test_the_heads_of_duo_attention_stand_beside_what_the_text_would_miss(client, monkeypatch):
    def split(args: dict, text: str) -> Result:
        assert (args["ratio"], args["text"]) == (0.25, cached.sample("story"))
        rows = {"layer": [1, 0], "head": [0, 1], "rise": [0.2, -0.1], "far": [0.3, 0.6]}
        table = pd.DataFrame(rows | {"whole": [False, True], "missed": [True, False]})
        return Result(
            {"sentence": "It lets 1 of 2 keep every key.", "notes": ["Of first order."]} | PROTOCOL, {"heads": table}
        )

    duo = method("DuoAttention", field("ratio", 0.5, low=0.0, high=0.99), saves="memory")
    monkeypatch.setitem(DESCRIBED, "duo_attention", duo)
    monkeypatch.setitem(STUDIES, "head-split", split)
    app = opened(quality_saves="memory", quality_memory="snapkv~~duo_attention~ratio-0.25")
    assert not app.error and "head-split" not in client.asked, "the drawer is closed"
    app = opened(quality_saves="memory", quality_memory="snapkv~~duo_attention~ratio-0.25", quality_split="yes")
    assert not app.error and "It lets 1 of 2 keep every key." in markup(app) and "Of first order." in markup(app)
    columns = {column["label"]: column["shown"] for column in part(app, "table", 1)["columns"]}
    assert columns["loss without it"] == ["0.2000", "-0.1000"] and columns["keeps"] == [
        "sinks and a window",
        "every key",
    ]
    assert columns["would keep by loss"] == ["every key", "sinks and a window"]
    assert not any(
        "DuoAttention let" in one.label for one in opened(quality_saves="memory", quality_memory="snapkv").expander
    ), "only then"
